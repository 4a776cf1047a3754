"""What ran, what failed and what was skipped: tests_summary.py JUNIT_FILE SECONDS ROOT."""
import subprocess
import sys
import xml.etree.ElementTree as tree

# How to get what a test was skipped for.
REMEDIES = {
    "e2e.pytorch": "no PyTorch: scripts/pytorch-env.sh makes an environment with it",
    "e2e.real_cupti": "no CUPTI releases: scripts/cupti-env.sh fetches them",
}

results, seconds, root = sys.argv[1:]
cases = tree.parse(results).getroot().findall("testcase")
failed = [case.get("name") for case in cases if case.get("status") == "fail"]
skipped = [case.get("name") for case in cases if case.get("status") in ("notrun", "disabled")]
commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
print(f"\n== Summary{' of ' + commit if commit else ''}: {len(cases)} tests, {len(failed)} failed, {len(skipped)} skipped, {seconds} s in all")
for name in failed:
    print("  failed:  " + name)
for name in skipped:
    print("  skipped: " + name + (f" ({REMEDIES[name]})" if name in REMEDIES else ""))
