#!/usr/bin/env bash
# Makes a clean system in a folder outside the tree, in which tests install the package as on a new machine, and prints the folder. Usage:
# debian-tree.sh [--check] [bookworm|jammy]
#
# bookworm is Debian 12 (C library 2.36); jammy is Ubuntu 22.04, which has the oldest C library (2.35) that can still be downloaded. By debootstrap, as
# root, with the smallest choice of packages (some 60 MB to download, 250 MB kept). Idempotent; `--check` makes nothing and fails if it is not there.
# GPUPROBE_DEBIAN_TREE names another place. jammy's signatures are checked where Ubuntu's keyring is installed; debootstrap says so where it is not.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

check=false
suite=bookworm
for argument in "$@"; do
  case $argument in
    --check) check=true ;;
    bookworm | jammy) suite=$argument ;;
    *) die "usage: debian-tree.sh [--check] [bookworm|jammy]" ;;
  esac
done
place=${GPUPROBE_DEBIAN_TREE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/debian/$suite}
mirror=http://deb.debian.org/debian
[ "$suite" = bookworm ] || mirror=http://archive.ubuntu.com/ubuntu

if [ ! -e "$place/etc/debian_version" ]; then
  ! $check || die "no clean system in $place: run scripts/debian-tree.sh $suite as root"
  [ "$(id -u)" -eq 0 ] || die "debootstrap needs root"
  command -v debootstrap >/dev/null || die "no debootstrap: run scripts/install-deps.sh"
  mkdir -p "$(dirname "$place")"
  rm -rf "$place.new"
  debootstrap --variant=minbase "$suite" "$place.new" "$mirror" >&2
  rm -rf "$place.new"/var/cache/apt/archives/*.deb "$place.new"/var/lib/apt/lists/*
  mv "$place.new" "$place"
fi
echo "$place"
