#!/usr/bin/env bash
# Packs what `cmake --install` makes: a .deb, a tarball and a Python wheel, in build/packages or the folder of --out. The same commit gives the same
# bytes: names are sorted, times are the commit's, owners are root.
#
# package.sh [--build DIR] [--out DIR]     --build: a tree that is built already (build/release is built if it is not named)
# package.sh --check TREE                  only looks whether everything in an installed tree runs on the C library that packages are for
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The packages run on this C library and newer ones: Red Hat 9, Ubuntu 22.04, Debian 12.
glibc=2.34

# check_glibc TREE: fails with the names of what its files need of a newer one.
check_glibc() {
  local too_new  # objdump complains about scripts
  too_new=$({ find "$1" -type f \( -path '*/lib/*' -o -path '*/bin/*' -o -path '*/libexec/*' -o -path '*/samples/*' \) -exec objdump -T {} + 2>/dev/null || true; } | awk -v most="${glibc#2.}" '
    $2 == "file" { file = $1; sub(/:$/, "", file); sub(/.*\//, "", file) }
    match($0, /GLIBC_2\.[0-9]+/) && substr($0, RSTART + 8, RLENGTH - 8) + 0 > most + 0 { print "  " file, $NF, substr($0, RSTART, RLENGTH) }' | sort -u)
  [ -z "$too_new" ] || die "these files need a C library newer than $glibc (scripts/cmake/libstdcxx says how others avoid that):
$too_new"
}

build=
out=$ROOT/build/packages
if [ "${1:-}" = --check ]; then
  [ $# -eq 2 ] || die "--check needs a folder"
  check_glibc "$2"
  exit
fi
while [ $# -gt 0 ]; do
  case "$1" in
    --build | --out) [ $# -ge 2 ] || die "$1 needs a folder" ;;
    *) die "unknown option $1 (there are --build DIR, --out DIR and --check TREE)" ;;
  esac
  [ "$1" = --build ] && build=$2 || out=$2
  shift 2
done
for tool in dpkg-deb objdump python3; do
  command -v "$tool" >/dev/null || die "no $tool: run scripts/install-deps.sh"
done
if [ -z "$build" ]; then
  build=$ROOT/build/release
  build_preset release
fi
[ -e "$build/CMakeCache.txt" ] || die "$build is not a build tree"

version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
SOURCE_DATE_EPOCH=$(git -C "$ROOT" log -1 --format=%ct 2>/dev/null || echo 315532800)
export SOURCE_DATE_EPOCH
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

tree=$work/gpuprobe
cmake --install "$build" --prefix "$tree" >/dev/null
# What the bundled libraries' authors ask for.
mkdir -p "$tree/licenses"
for library in "$tree"/lib/*.so*; do
  [ -L "$library" ] && continue
  package=$(dpkg-query -S "*/$(basename "$library")" 2>/dev/null | head -n 1 | cut -d: -f1) || continue  # ours
  if [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ]; then
    cp -L "/usr/share/doc/$package/copyright" "$tree/licenses/$package"
  fi
done
find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

check_glibc "$tree"

tarball=$out/gpuprobe-$version-linux-x86_64.tar.gz
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -cf - gpuprobe | gzip -n -9 >"$tarball"

deb=$work/deb
mkdir -p "$deb/DEBIAN" "$deb/usr/lib" "$deb/usr/bin" "$deb/usr/share/doc/gpuprobe"
cp -a "$tree" "$deb/usr/lib/gpuprobe"
ln -s ../lib/gpuprobe/bin/gpuprobe "$deb/usr/bin/gpuprobe"
# Where man and the shells look.
mv "$deb"/usr/lib/gpuprobe/share/{man,bash-completion} "$deb/usr/share/"
mkdir -p "$deb/usr/share/zsh/vendor-completions"
mv "$deb"/usr/lib/gpuprobe/share/zsh/site-functions/_gpuprobe "$deb/usr/share/zsh/vendor-completions/"
rm -r "$deb/usr/lib/gpuprobe/share/zsh"
gzip -n -9 "$deb"/usr/share/man/man1/*.1
mv "$deb/usr/lib/gpuprobe/LICENSE" "$deb/usr/share/doc/gpuprobe/copyright"
cat >"$deb/DEBIAN/control" <<EOF
Package: gpuprobe
Version: $version
Architecture: amd64
Maintainer: The gpuprobe authors <gpuprobe@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$deb" | cut -f1)
Depends: libc6 (>= $glibc), libgcc-s1
Section: devel
Priority: optional
Description: profiles distributed GPU training without changing the program
 gpuprobe records every kernel, copy, allocation, NVTX range and NCCL call of
 a training job, and says where each rank's time went, which rank the others
 wait for, and what to do about it.
EOF
dpkg-deb --root-owner-group -Zxz --build "$deb" "$out/gpuprobe_${version}_amd64.deb" >/dev/null

python3 "$ROOT/scripts/python/make_wheel.py" "$tree" "$version" "$glibc" "$out"

say "Packages of gpuprobe $version, for glibc $glibc and newer"
ls -l --block-size=K "$out" | awk 'NR > 1 { print $5, $9 }'
