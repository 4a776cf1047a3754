#!/usr/bin/env bash
# Makes a virtual environment with PyTorch for CUDA from PyPI, for the tests that run it under the probe on the
# simulated node (e2e.pytorch). Nothing of it comes into the tree, and none of NVIDIA's libraries is fetched:
# the node's take their place by name, found through LD_LIBRARY_PATH.
#
#   scripts/pytorch-env.sh
#
# The folder is $GPUPROBE_TEST_PYTORCH, else gpuprobe/pytorch under $XDG_CACHE_HOME or ~/.cache; one environment
# a release of PyTorch.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RELEASE=2.11.0
# What PyTorch imports of pure Python, and numpy.
PACKAGES=(filelock==4.2.12 fsspec==2026.9.0 jinja2==3.1.6 networkx==3.6.1 numpy==2.4.6 sympy==1.14.0 typing-extensions==4.16.0)
FOLDER=${GPUPROBE_TEST_PYTORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pytorch}
TARGET=$FOLDER/torch-$RELEASE

if [ -e "$TARGET/complete" ]; then
  echo "PyTorch $RELEASE is in $TARGET ($(du -sh "$TARGET" | cut -f1))."
  exit 0
fi
[ "$(uname -m)" = x86_64 ] || die "the simulated node is built for x86_64"
python3 -m venv --help >/dev/null 2>&1 || die "python3 has no venv. Remedy: apt-get install python3-venv"
say "PyTorch $RELEASE from PyPI into $TARGET: about 560 MB to download, 1.4 GB kept"
mkdir -p "$FOLDER"
rm -rf "$TARGET"
python3 -m venv "$TARGET"
install=("$TARGET/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --only-binary=:all:)
"${install[@]}" "${PACKAGES[@]}"
"${install[@]}" --no-deps "torch==$RELEASE"
touch "$TARGET/complete"
echo "$TARGET now takes $(du -sh "$TARGET" | cut -f1)."
