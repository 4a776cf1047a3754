#!/usr/bin/env bash
# Makes the Python environment that drives Chromium in the page's tests and pictures, outside the tree, and prints its interpreter.
#
# Chromium is the distribution's (scripts/install-deps.sh); Playwright and axe-core (which checks accessibility) come from PyPI. Idempotent; `--check` makes nothing and
# fails if the environment is not there. GPUPROBE_BROWSER_ENV names another place.
set -euo pipefail

PLACE=${GPUPROBE_BROWSER_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gpuprobe/browser-env}
PACKAGES=(playwright==1.49.1 axe-playwright-python==0.1.4)

works() { "$PLACE/bin/python3" -c 'import playwright.sync_api, axe_playwright_python.sync_playwright' 2>/dev/null; }

if ! works; then
  [ "${1:-}" != --check ] || { echo "no browser environment in $PLACE: run scripts/browser-env.sh" >&2; exit 1; }
  mkdir -p "$(dirname "$PLACE")"
  python3 -m venv "$PLACE" >&2
  "$PLACE/bin/pip" install --quiet --disable-pip-version-check "${PACKAGES[@]}" >&2
  works || { echo "browser-env: the packages were installed into $PLACE, and cannot be imported" >&2; exit 1; }
fi
echo "$PLACE/bin/python3"
