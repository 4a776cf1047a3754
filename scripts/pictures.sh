#!/usr/bin/env bash
# Makes the pictures of docs/ and README.md: each from a run on the simulated node or of `gpuprobe simulate`, opened in Chromium.
#
# pictures.sh [--build DIR] [NAME ...]     --build: a tree that is built already (build/release is built if it is not named); NAME: these pictures only
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build=
if [ "${1:-}" = --build ]; then
  [ $# -ge 2 ] || die "--build needs a folder"
  build=$(realpath "$2")
  shift 2
fi
for tool in chromium pngquant; do
  command -v "$tool" >/dev/null || die "no $tool: run scripts/install-deps.sh"
done
if [ -z "$build" ]; then
  build=$ROOT/build/release
  build_preset release
fi
browser=$("$ROOT/scripts/browser-env.sh")
GPUPROBE_BUILD_DIR=$build GPUPROBE_SOURCE_DIR=$ROOT exec "$browser" -B "$ROOT/scripts/python/pictures.py" "$@"
