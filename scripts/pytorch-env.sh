#!/usr/bin/env bash
# Makes virtual environments with PyTorch for CUDA from PyPI, for the tests that run it under the probe on the
# simulated node (e2e.pytorch*). Nothing of them comes into the tree, and none of NVIDIA's libraries is fetched:
# the node's take their place by name, found through LD_LIBRARY_PATH. Triton, which torch.compile needs, brings
# its own assembler.
#
#   scripts/pytorch-env.sh [RELEASE...]
#
# Without arguments it makes one environment for each release below. The folder is $GPUPROBE_TEST_PYTORCH, else
# gpuprobe/pytorch under $XDG_CACHE_HOME or ~/.cache. What is there already is left alone.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Release, and what it downloads and keeps.
declare -A SIZES=([2.11.0]="750 MB to download, 2.0 GB kept" [2.15.0]="840 MB to download, 2.4 GB kept")
# The Triton that each release requires, for torch.compile.
declare -A TRITON=([2.11.0]=3.6.0 [2.15.0]=3.9.0)
RELEASES=(2.11.0 2.15.0)
# What PyTorch imports of pure Python, and numpy.
PACKAGES=(filelock==4.2.12 fsspec==2026.9.0 jinja2==3.1.6 networkx==3.6.1 numpy==2.4.6 sympy==1.14.0 typing-extensions==4.16.0)
FOLDER=${GPUPROBE_TEST_PYTORCH:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/pytorch}

make_environment() {
  local release=$1 target=$FOLDER/torch-$1 install
  install=("$target/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --only-binary=:all:)
  if [ ! -e "$target/complete" ]; then
    say "PyTorch $release from PyPI into $target: about ${SIZES[$release]}"
    mkdir -p "$FOLDER"
    rm -rf "$target"
    python3 -m venv "$target"
    "${install[@]}" "${PACKAGES[@]}"
    "${install[@]}" --no-deps "torch==$release" "triton==${TRITON[$release]}"
    touch "$target/complete"
  elif ! compgen -G "$target/lib/python3*/site-packages/triton-${TRITON[$release]}.dist-info" >/dev/null; then
    say "Triton ${TRITON[$release]} into $target"
    "${install[@]}" --no-deps "triton==${TRITON[$release]}"
  fi
  echo "PyTorch $release is in $target ($(du -sh "$target" | cut -f1))."
}

[ "$(uname -m)" = x86_64 ] || die "the simulated node is built for x86_64"
python3 -m venv --help >/dev/null 2>&1 || die "python3 has no venv. Remedy: apt-get install python3-venv"
[ $# -gt 0 ] || set -- "${RELEASES[@]}"
for release in "$@"; do
  [ -n "${SIZES[$release]:-}" ] || die "no PyTorch $release here; there is ${RELEASES[*]}"
  make_environment "$release"
done
