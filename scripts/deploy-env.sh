#!/usr/bin/env bash
# Makes the Python environment in which tests hold the Kubernetes manifests of samples/deploy against Kubernetes' schemas. Prints its folder.
#
# Outside the tree: $GPUPROBE_DEPLOY_ENV, else ~/.cache/gpuprobe/deploy-env. Tests that need it skip aloud without it. Idempotent.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

env=${GPUPROBE_DEPLOY_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/deploy-env}
packages=(kubernetes-validate==1.37.0)

stamp=$env/packages.txt
if [ "$(cat "$stamp" 2>/dev/null || true)" != "${packages[*]}" ]; then
  rm -rf "$env"
  mkdir -p "$(dirname "$env")"
  python3 -m venv "$env" >&2 || die "python3 -m venv failed; on Debian it needs the package python3-venv"
  "$env/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
  echo "${packages[*]}" >"$stamp"
fi
echo "$env"
