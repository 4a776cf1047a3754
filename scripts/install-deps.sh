#!/usr/bin/env bash
# Installs what the build and the tests need: distribution packages, and a look for the CUDA toolkit.
#
# Idempotent. When everything is there it changes nothing and needs no privileges; otherwise it installs as root (or with
# sudo), or, as a plain user without sudo, names what is missing and fails. `--check` never installs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# One line a purpose.
PACKAGES=(
  g++ cmake ninja-build ccache git binutils                          # build
  protobuf-compiler libprotobuf-dev libprotoc-dev libprotozero-dev   # wire and file schema
  libabsl-dev libzstd-dev zstd libcli11-dev libspdlog-dev libfmt-dev # collector
  nlohmann-json3-dev libboost-math-dev                               # reports, statistics
  esbuild node-d3 node-typescript chromium pngquant                  # report.html, its tests, and pictures of it
  zlib1g-dev libsqlite3-dev                                          # timelines, tables
  libcpp-httplib-dev libssl-dev prometheus-cpp-dev                   # the page and the hub over HTTP, metrics
  libdw-dev                                                          # native stacks
  libstdc++-12-pic                                                   # packages: a libstdc++ for older C libraries
  libgtest-dev libgmock-dev libbenchmark-dev                         # unit tests, benchmarks
  python3 python3-venv openmpi-bin iproute2 tmux zsh groff-base debootstrap # end-to-end tests
  slurmctld slurmd slurm-client munge                                # tests of srun, and of munge as a proof of who joins
  systemd podman crun                                                # tests of samples/deploy
  libpython3.11-testsuite                                            # end-to-end tests: Python's own
  musl-tools libjemalloc2 libtcmalloc-minimal4 valgrind libc6-dbg gdb # end-to-end tests of odd hosts
  clang-14 clang-format-14 clang-tidy-14                             # fuzzers, lint
)

missing_packages() {
  local package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
  done
}

check_cuda() {
  local header root places=() found
  mapfile -t roots < <(cuda_roots | awk '!seen[$0]++')
  local missing=()
  for header in cuda.h cupti.h nvtx3/nvToolsExt.h nccl.h; do
    found=
    for root in "${roots[@]}" /usr; do
      for places in "$root/include" "$root/extras/CUPTI/include" "$root/targets/x86_64-linux/include"; do
        if [ -e "$places/$header" ]; then
          found=$places
          break 2
        fi
      done
    done
    [ -n "$found" ] || missing+=("$header")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    {
      echo "install-deps: the CUDA toolkit's headers are missing: ${missing[*]}."
      echo "Looked in include, extras/CUPTI/include and targets/x86_64-linux/include of:"
      printf '  %s\n' "${roots[@]}" /usr
      echo "Remedy: install the CUDA toolkit (11.8 to 13.x, with CUPTI) and NCCL's headers, or name their place: CUDAToolkit_ROOT=DIR $0"
    } >&2
    return 1
  fi
  for root in "${roots[@]}"; do
    if [ -x "$root/bin/nvcc" ]; then
      echo "CUDA toolkit: $root ($("$root/bin/nvcc" --version | sed -n 's/.*release //p'))"
      return 0
    fi
  done
  echo "CUDA headers are there, nvcc is not: everything but the samples and the tests that run them can be built."
}

say "Distribution packages"
mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -eq 0 ]; then
  echo "All ${#PACKAGES[@]} packages are installed."
elif [ "${1:-}" = --check ]; then
  die "missing: ${missing[*]}"
else
  command -v apt-get >/dev/null || die "no apt-get here; install the equivalents of: ${missing[*]}"
  run=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || die "missing: ${missing[*]}
Remedy, as root: apt-get install ${missing[*]}"
    run=(sudo -n)
  fi
  echo "Installing: ${missing[*]}"
  "${run[@]}" apt-get update -q
  "${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

say "CUDA toolkit"
check_cuda
