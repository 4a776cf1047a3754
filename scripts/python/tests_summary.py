"""What ran, what failed and what was skipped: tests_summary.py JUNIT_FILE SECONDS ROOT."""
import subprocess
import sys
import xml.etree.ElementTree as tree

results, seconds, root = sys.argv[1:]
cases = tree.parse(results).getroot().findall("testcase")
failed = [case.get("name") for case in cases if case.get("status") == "fail"]


def reason(case):
    """What a skipped test said: what it lacks, and how to get it."""
    said = case.findtext("system-out") or ""
    return next((": " + line.partition("skipped: ")[2] for line in said.splitlines() if line.startswith("skipped: ")), "")


skipped = [case.get("name") + reason(case) for case in cases if case.get("status") in ("notrun", "disabled")]
commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
print(f"\n== Summary{' of ' + commit if commit else ''}: {len(cases)} tests, {len(failed)} failed, {len(skipped)} skipped, {seconds} s in all")
for name in failed:
    print("  failed:  " + name)
for name in skipped:
    print("  skipped: " + name)
