#!/usr/bin/env bash
# Makes a clean Debian 12 in a folder outside the tree, in which tests install the package as on a new machine, and prints the folder.
#
# By debootstrap, as root, with the smallest choice of packages (some 60 MB to download, 250 MB kept). Idempotent; `--check` makes nothing and
# fails if it is not there. GPUPROBE_DEBIAN_TREE names another place.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

place=${GPUPROBE_DEBIAN_TREE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/debian/bookworm}
mirror=http://deb.debian.org/debian

if [ ! -e "$place/etc/debian_version" ]; then
  [ "${1:-}" != --check ] || die "no clean Debian in $place: run scripts/debian-tree.sh as root"
  [ "$(id -u)" -eq 0 ] || die "debootstrap needs root"
  command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"
  mkdir -p "$(dirname "$place")"
  rm -rf "$place.new"
  debootstrap --variant=minbase bookworm "$place.new" "$mirror" >&2
  rm -rf "$place.new"/var/cache/apt/archives/*.deb "$place.new"/var/lib/apt/lists/*
  mv "$place.new" "$place"
fi
echo "$place"
