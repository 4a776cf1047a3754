"""The pages of docs/findings/: what of them the program says, and the commands that show it.

A page begins with the finding's id, its picture, and a screen: commands, and the lines about the finding that the last of them prints. Below stands when the
finding is reported, in the words of `gpuprobe help findings`. `python3 tests/e2e/finding_pages.py --write` renews screens and conditions.
"""
import os
import re
import subprocess
import sys
import tempfile

from harness import GPUPROBE, SOURCE

FOLDER = os.path.join(SOURCE, "docs", "findings")
INDEX = os.path.join(FOLDER, "README.md")

# Screens that are not made anew, each with the reason.
RECORDED_ONCE = {
    "allocation-failed": "the program must run on for ten seconds after the refusal",
    "duplicate-rank": "ids of processes differ from run to run",
    "costly-capture": "the cost is measured, so its figures differ from run to run",
    "device-clock": "needs a library that fakes the clock of the program alone",
    "detail-dropped": "takes two million records",
    "graph-nodes": "the cost is measured, so its figures differ from run to run",
    "hang-over": "times of day differ from run to run",
    "no-step-recorded": "needs a program that knows its steps",
    "rank-died": "a rank is killed while it runs",
    "rank-stopped": "a rank is stopped while it runs",
}
# Pages without a screen, each with the reason.
WITHOUT_SCREEN = {
    "pool-footprint": "no program on the simulated node fragments a pool this much",
    "straggler-unexplained": "the simulated job has no fault that its steps do not show",
}

_SCREEN = re.compile(r"^```\n(\$ .*?)^```\n", re.MULTILINE | re.DOTALL)
_CONDITION = re.compile(r"^\*\*Reported when\*\* (.*)\.$", re.MULTILINE)


def path_of(finding):
    return os.path.join(FOLDER, finding + ".md")


def text_of(finding):
    with open(path_of(finding), encoding="utf-8") as file:
        return file.read()


def conditions():
    """When each finding is reported, by its id, and what "holds up the others" means."""
    lines = subprocess.run([GPUPROBE, "help", "findings"], check=True, capture_output=True, text=True).stdout.splitlines()
    found = dict(re.fullmatch(r"  ([a-z-]+) +(.*)", line).groups() for line in lines if line.startswith("  "))
    return found, next(line for line in lines if line.startswith("A rank holds up the others"))


def condition_on(page):
    match = _CONDITION.search(page)
    return match and match[1]


def screen_on(page):
    """The commands and the printed lines of a page's screen."""
    match = _SCREEN.search(page)
    if match is None:
        return [], ""
    lines = match[1].splitlines(keepends=True)
    commands = [line[2:].strip() for line in lines if line.startswith("$ ")]
    return commands, "".join(line for line in lines if not line.startswith("$ "))


def run_screen(page, cwd):
    """Runs the commands of a page's screen in `cwd`, and returns what the last one printed."""
    printed = ""
    if not os.path.exists(os.path.join(cwd, "tests")):
        os.symlink(os.path.join(SOURCE, "tests"), os.path.join(cwd, "tests"))
    for command in screen_on(page)[0]:
        env = {"PATH": f"{os.path.dirname(GPUPROBE)}:/usr/bin:/bin", "HOME": cwd, "TMPDIR": cwd}
        printed = subprocess.run(["bash", "-euc", command], cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=120).stdout
    return printed


def lines_about(finding, printed):
    """The paragraph of the screen that is about the finding."""
    blocks = re.findall(r"^ (?:\d+|-)  \S.*\n(?:    .*\n)*", printed.partition("\n\n")[2], re.MULTILINE)
    mark = "Nothing stands out" if finding == "healthy" else f"[{finding}]"
    return next(block for block in blocks if mark in block)


def _renew(finding, condition):
    page = text_of(finding)
    renewed = _CONDITION.sub(lambda _: f"**Reported when** {condition}.", page, count=1)
    if screen_on(page)[0] and finding not in RECORDED_ONCE:
        with tempfile.TemporaryDirectory(prefix="gpuprobe-pages-") as cwd:
            shown = lines_about(finding, run_screen(page, cwd))
        commands = "".join(f"$ {command}\n" for command in screen_on(page)[0])
        renewed = _SCREEN.sub(lambda _: f"```\n{commands}{shown}```\n", renewed, count=1)
    if renewed != page:
        with open(path_of(finding), "w", encoding="utf-8") as file:
            file.write(renewed)
        print(f"renewed {os.path.relpath(path_of(finding), SOURCE)}")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: finding_pages.py --write")
    for name, words in conditions()[0].items():
        _renew(name, words)
