#!/usr/bin/env bash
# Makes, outside the tree, what the tests hold gpuprobe against and Debian's packages do not bring: other people's readers of our output, a real
# browser and a real Prometheus, NVIDIA's CUPTI releases, a clean Debian, other Pythons, PyTorch and frameworks that train with it. The first time that is about
# 1.2 GB to download and 3.5 GB in ~/.cache/gpuprobe. What is there is left alone.
#
# Each is made for itself: without one, the tests that need it are skipped and say so. Ends with 1 if one could not be made although its source
# answers.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
PYPI=https://pypi.org/simple/pip/
DEBIAN=http://deb.debian.org/debian/dists/bookworm/InRelease

answers() { python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20)' "$1" 2>/dev/null; }

status=0
# make LIMIT_S SOURCE SCRIPT [ARGUMENT...]
make() {
  local limit=$1 source=$2
  shift 2
  timeout "$limit" "$ROOT/scripts/$1" "${@:2}" && return
  if answers "$source"; then
    status=1
    echo "test-envs.sh: $1 failed, although $source answers"
  else
    echo "test-envs.sh: $1 failed: $source does not answer"
  fi
}

make 120 "$DEBIAN" prometheus-env.sh
make 300 "$PYPI" browser-env.sh
make 300 "$PYPI" analysis-env.sh
make 300 "$PYPI" clickhouse-env.sh
make 300 "$PYPI" deploy-env.sh
# Of each layout of records the newest release; the others change nothing (docs/internals/simulated-cupti.md).
make 300 "$PYPI" cupti-env.sh 11.8.87 12.4.127 12.9.79 13.1.115 13.5.25
if [ "$(id -u)" -eq 0 ]; then
  make 300 "$DEBIAN" debian-tree.sh bookworm
fi
make 120 "$DEBIAN" pythons-env.sh
make 900 "$PYPI" frameworks-env.sh
exit "$status"
