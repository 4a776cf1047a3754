#!/usr/bin/env bash
# Unpacks the Pythons of a newer Debian, with their C library, for the test of Python stacks (e2e.stacks), without installing anything. Usage:
# pythons-env.sh [SUITE]
#
# The suite is forky, which has Python 3.13 and 3.14: some 20 MB to download, 60 MB kept in gpuprobe/pythons under $XDG_CACHE_HOME or ~/.cache,
# where each VERSION/python3 is a command. Idempotent.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

SUITE=${1:-forky}
FOLDER=${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pythons
VERSIONS=(3.13 3.14)
if [ -x "$FOLDER/${VERSIONS[-1]}/python3" ]; then
  echo "Python ${VERSIONS[*]} are in $FOLDER."
  exit 0
fi
command -v apt-get >/dev/null || die "no apt-get here"
say "Python ${VERSIONS[*]} of Debian $SUITE into $FOLDER"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,etc,debs,tree}
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $SUITE main" >"$work/etc/sources.list"
touch "$work/status"
# A world of its own: neither the system's packages nor its lists are touched.
apt() {
  apt-get -q -o Dir::Etc::SourceList="$work/etc/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State::Lists="$work/lists" \
    -o Dir::State::Status="$work/status" -o Dir::Cache="$work/cache" -o APT::Sandbox::User=root "$@"
}
apt update
packages=(libc6 libexpat1 zlib1g)
for version in "${VERSIONS[@]}"; do
  packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib")
done
(cd "$work/debs" && apt download "${packages[@]}")
for package in "$work"/debs/*.deb; do
  dpkg -x "$package" "$work/tree"
done
mkdir -p "$FOLDER"
rm -rf "$FOLDER/tree"
mv "$work/tree" "$FOLDER/tree"
for version in "${VERSIONS[@]}"; do
  mkdir -p "$FOLDER/$version"
  cat >"$FOLDER/$version/python3" <<END
#!/bin/sh
# Python $version of Debian $SUITE on that Debian's C library.
export PYTHONHOME='$FOLDER/tree/usr'
exec '$FOLDER/tree/usr/lib64/ld-linux-x86-64.so.2' --library-path '$FOLDER/tree/usr/lib/x86_64-linux-gnu' '$FOLDER/tree/usr/bin/python$version' "\$@"
END
  chmod +x "$FOLDER/$version/python3"
  "$FOLDER/$version/python3" --version
done
