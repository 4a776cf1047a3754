#!/usr/bin/env bash
# Unpacks Debian's prometheus and promtool for the tests of metrics, alerts and dashboard (e2e.metrics), without installing or starting a
# service. Nothing of it comes into the tree.
#
#   scripts/prometheus-env.sh
#
# The folder is $GPUPROBE_TEST_PROMETHEUS, else gpuprobe/prometheus under $XDG_CACHE_HOME or ~/.cache. Not needed where both programs are on PATH.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

FOLDER=${GPUPROBE_TEST_PROMETHEUS:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/prometheus}
if [ -x "$FOLDER/bin/promtool" ]; then
  echo "$("$FOLDER/bin/promtool" --version | head -n 1) is in $FOLDER."
  exit 0
fi
command -v apt-get >/dev/null || die "no apt-get here; put prometheus and promtool on PATH"
say "Debian's prometheus into $FOLDER: 19 MB to download, 94 MB kept"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
download() { (cd "$work" && apt-get -q download prometheus 2>/dev/null); }
if ! download; then
  [ "$(id -u)" -eq 0 ] || die "apt-get cannot download prometheus. Remedy, as root: apt-get update"
  apt-get -q update
  download || die "apt-get cannot download prometheus"
fi
dpkg -x "$work"/prometheus_*.deb "$work/tree"
mkdir -p "$FOLDER/bin"
cp "$work"/tree/usr/bin/prometheus "$work"/tree/usr/bin/promtool "$FOLDER/bin/"
"$FOLDER/bin/promtool" --version | head -n 1
