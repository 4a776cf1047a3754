# Shared by the scripts: where the tree is, how to speak, how many jobs. Sourced, not run.
# shellcheck shell=bash
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
JOBS=${JOBS:-$(nproc)}

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# Places where a CUDA toolkit may be, one a line, best first: the same list as scripts/cmake/FindCudaHeaders.cmake.
cuda_roots() {
  local root nvcc
  for root in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
    [ -n "$root" ] && echo "$root"
  done
  find /usr/local -maxdepth 1 -name 'cuda-*' 2>/dev/null | sort -rV
  if nvcc=$(command -v nvcc); then
    dirname "$(dirname "$(readlink -f "$nvcc")")"
  fi
  for root in /usr/lib/python3*/site-packages /usr/lib/python3/dist-packages /usr/local/lib/python3*/{site,dist}-packages \
    "${VIRTUAL_ENV:-/nonexistent}"/lib/python3*/site-packages "${HOME:-/nonexistent}"/.local/lib/python3*/site-packages; do
    [ -d "$root/nvidia" ] && find "$root/nvidia" -mindepth 1 -maxdepth 1 -type d
  done
  return 0
}

# build_preset PRESET [TARGET...]: configures and builds, all targets or those named.
build_preset() {
  local preset=$1
  shift
  cd "$ROOT"
  say "Configure and build: preset $preset, $JOBS jobs, in build/$preset"
  cmake --preset "$preset" | tail -n 4
  cmake --build --preset "$preset" -j "$JOBS" ${1:+--target "$@"}
}
