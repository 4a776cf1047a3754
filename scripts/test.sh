#!/usr/bin/env bash
# Everything that must hold before a change goes in: dependencies, release build, format, all tests. Idempotent; as root or as a plain user.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
started=$SECONDS

"$ROOT/scripts/install-deps.sh"
build_preset release
"$ROOT/scripts/lint.sh" --format

say "Tests"
cd "$ROOT/build/release"
status=0
ctest -j 2 --output-on-failure --no-tests=error --output-junit tests.xml >tests.log 2>&1 || status=$?
# Of a green run only the end is worth reading; of a red one, what failed.
if [ "$status" -eq 0 ]; then
  tail -n 15 tests.log
else
  grep -vE '^ *(Start +[0-9]+:|[0-9]+/[0-9]+ Test +#.* Passed )' tests.log
fi

python3 - tests.xml "$((SECONDS - started))" "$ROOT" <<'PY'
import subprocess, sys
import xml.etree.ElementTree as tree
suite = tree.parse(sys.argv[1]).getroot()
cases = suite.findall("testcase")
bad = [c.get("name") for c in cases if c.get("status") == "fail"]
skipped = [c.get("name") for c in cases if c.get("status") in ("notrun", "disabled")]
commit = subprocess.run(["git", "-C", sys.argv[3], "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
print(f"\n== Summary{' of ' + commit if commit else ''}: {len(cases)} tests, {len(bad)} failed, {len(skipped)} skipped, {sys.argv[2]} s in all")
for name in bad:
    print("  failed:  " + name)
for name in skipped:
    print("  skipped: " + name)
PY
exit "$status"
