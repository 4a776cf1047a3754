#!/usr/bin/env bash
# Everything that must hold before a change goes in: release build, format, clang-tidy over what changed, all tests. Idempotent; as root or as
# a plain user. Needs neither privileges nor the network if what install-deps.sh installs is there; else it calls that first.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
started=$SECONDS

if ! "$ROOT/scripts/install-deps.sh" --check >/dev/null 2>&1; then
  "$ROOT/scripts/install-deps.sh"
fi
build_preset release
"$ROOT/scripts/lint.sh" --changed

say "Tests"
cd "$ROOT/build/release"
status=0
ctest -j 2 --output-on-failure --no-tests=error --output-junit tests.xml >tests.log 2>&1 || status=$?
# Prints only the end of a green run, and what failed in a red one.
if [ "$status" -eq 0 ]; then
  tail -n 15 tests.log
else
  grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#.* Passed )' tests.log
fi

python3 "$ROOT/scripts/python/tests_summary.py" tests.xml "$((SECONDS - started))" "$ROOT"
exit "$status"
