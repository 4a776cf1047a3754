"""What ran, what failed and what was skipped: tests_summary.py JUNIT_FILE JUNIT_FILE_OF_THOSE_RUN_AGAIN SECONDS ROOT, of which the second may be missing.
tests_summary.py --again JUNIT_FILE prints which to run again, as ctest -R takes it: nothing if a unit test failed, or more than a few."""
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as tree

MOST_RUN_AGAIN = 4


def cases_of(file):
    return tree.parse(file).getroot().findall("testcase")


def failed_of(cases):
    return [case.get("name") for case in cases if case.get("status") == "fail"]


def reason(case):
    """What a skipped test said: what it lacks, and how to get it."""
    said = case.findtext("system-out") or ""
    return next((": " + line.partition("skipped: ")[2] for line in said.splitlines() if line.startswith("skipped: ")), "")


def print_those_to_run_again(file):
    cases = cases_of(file)
    failed = failed_of(cases)
    could_not_run = [case for case in cases if case.get("status") == "notrun" and not case.find("skipped").get("message").startswith("SKIP_")]
    if 0 < len(failed) <= MOST_RUN_AGAIN and all(name.startswith("e2e.") for name in failed) and not could_not_run:
        print("^(" + "|".join(re.escape(name) for name in failed) + ")$")


def print_summary(file, again, seconds, root):
    cases = cases_of(file)
    failed, unsteady = failed_of(cases), []
    if os.path.exists(again):
        still = failed_of(cases_of(again))
        failed, unsteady = still, [name for name in failed if name not in still]
    skipped = [case.get("name") + reason(case) for case in cases if case.get("status") in ("notrun", "disabled")]
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"\n== Summary{' of ' + commit if commit else ''}: {len(cases)} tests, {len(failed)} failed, {len(skipped)} skipped, {seconds} s in all")
    for name in failed:
        print("  failed:  " + name)
    for name in unsteady:
        print("  failed beside others and passed alone: " + name)
    for name in skipped:
        print("  skipped: " + name)


if sys.argv[1] == "--again":
    print_those_to_run_again(sys.argv[2])
else:
    print_summary(*sys.argv[1:])
