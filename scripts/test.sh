#!/usr/bin/env bash
# Everything that must hold before a change goes in: release build, format, clang-tidy over what changed, all tests. Idempotent; as root or as
# a plain user. Needs no privileges if what install-deps.sh installs is there; else it calls that first.
#
# While it builds, test-envs.sh makes what some tests need besides; without the network these are skipped. GPUPROBE_TEST_ENVS=no makes nothing,
# GPUPROBE_TEST_ENVS=insist fails if something is missing that could have been made.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
started=$SECONDS

if ! "$ROOT/scripts/install-deps.sh" --check >/dev/null 2>&1; then
  "$ROOT/scripts/install-deps.sh"
fi
envs=
if [ "${GPUPROBE_TEST_ENVS:-}" != no ]; then
  mkdir -p "$ROOT/build"
  timeout 900 "$ROOT/scripts/test-envs.sh" >"$ROOT/build/test-envs.log" 2>&1 &
  envs=$!
  trap 'kill "$envs" 2>/dev/null || true' EXIT
fi
build_preset release
"$ROOT/scripts/lint.sh" --changed
if [ -n "$envs" ]; then
  say "What tests need besides"
  made=0
  wait "$envs" || made=$?
  trap - EXIT
  grep -E '^test-envs.sh:' "$ROOT/build/test-envs.log" || echo "Everything that can be made here is there."
  if [ "$made" -eq 1 ] && [ "${GPUPROBE_TEST_ENVS:-}" = insist ]; then
    cat "$ROOT/build/test-envs.log"
    exit "$made"
  fi
fi

say "Tests"
cd "$ROOT/build/release"
# Prints only the end of a green run, and what failed in a red one.
run_tests() { # NAME CTEST_OPTION..., which writes NAME.xml and NAME.log
  local status=0
  ctest --output-on-failure --no-tests=error --output-junit "$1.xml" "${@:2}" >"$1.log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    tail -n 15 "$1.log"
  else
    grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#.* Passed )' "$1.log"
  fi
  return "$status"
}
status=0
rm -f alone.xml
# Many tests wait most of the time; those that do not say how many processors they need.
run_tests tests -j 3 || status=$?
# A few programs that were disturbed by the tests beside them get a second chance alone, which the summary names. Unit tests get none.
again=$(python3 "$ROOT/scripts/python/tests_summary.py" --again tests.xml)
if [ "$status" -ne 0 ] && [ -n "$again" ]; then
  say "What failed, alone"
  status=0
  run_tests alone -j 1 -R "$again" || status=$?
fi

python3 "$ROOT/scripts/python/tests_summary.py" tests.xml alone.xml "$((SECONDS - started))" "$ROOT"
exit "$status"
