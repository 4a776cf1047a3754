#!/usr/bin/env bash
# Makes the Python environment that tests use to read our output with other people's tools: Perfetto's schema, Holistic Trace Analysis, a JSON
# Schema validator, a strict reader of OpenMetrics. Prints its folder.
#
# Outside the tree: $GPUPROBE_ANALYSIS_ENV, else ~/.cache/gpuprobe/analysis-env. Tests that need it skip aloud without it. Idempotent.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

env=${GPUPROBE_ANALYSIS_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/analysis-env}
packages=(perfetto==0.59.1 protobuf HolisticTraceAnalysis==0.5.0 jsonschema==4.26.0 prometheus_client==0.21.1)

stamp=$env/packages.txt
if [ "$(cat "$stamp" 2>/dev/null || true)" != "${packages[*]}" ]; then
  rm -rf "$env"
  mkdir -p "$(dirname "$env")"
  python3 -m venv "$env" >&2 || die "python3 -m venv failed; on Debian it needs the package python3-venv"
  "$env/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" >"$stamp"
fi
echo "$env"
