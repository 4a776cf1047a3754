#!/usr/bin/env bash
# Makes the Python environment in which tests run ClickHouse's current engine (chdb). Prints its folder.
#
# Outside the tree: $GPUPROBE_CLICKHOUSE_ENV, else ~/.cache/gpuprobe/clickhouse-env. Tests that need it skip aloud without it. Idempotent.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

env=${GPUPROBE_CLICKHOUSE_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/clickhouse-env}
packages=(chdb==4.4.0)

stamp=$env/packages.txt
if [ "$(cat "$stamp" 2>/dev/null || true)" != "${packages[*]}" ]; then
  rm -rf "$env"
  mkdir -p "$(dirname "$env")"
  python3 -m venv "$env" >&2 || die "python3 -m venv failed; on Debian it needs the package python3-venv"
  "$env/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" >"$stamp"
fi
echo "$env"
