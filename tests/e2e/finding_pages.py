"""The pages of docs/findings/: what of them the program says, and the commands that show it.

A page begins with the finding's id, its picture, and a screen: commands, and the lines about the finding that the last of them prints. Below stands when the
finding is reported, in the words of `gpuprobe help findings`. README.md lists the pages by topic. `python3 tests/e2e/finding_pages.py --write` renews screens,
conditions and the list.
"""
import os
import re
import subprocess
import sys
import tempfile

from harness import GPUPROBE, SOURCE

FOLDER = os.path.join(SOURCE, "docs", "findings")
INDEX = os.path.join(FOLDER, "README.md")

_SCREEN = re.compile(r"^```\n(\$ .*?)^```\n", re.MULTILINE | re.DOTALL)
_LIST = re.compile(r"^(## (.+)\n\| finding \| in short \|\n\|---\|---\|\n)(?:\|.*\n)*", re.MULTILINE)
# Why a page has no screen, or one that is not made anew.
_WITHOUT = re.compile(r"^<!-- screen: (none|made once), (.+) -->$", re.MULTILINE)
_CONDITION = re.compile(r"^\*\*Reported when\*\* (.*)\.$", re.MULTILINE)


def path_of(finding):
    return os.path.join(FOLDER, finding + ".md")


def text_of(finding):
    with open(path_of(finding), encoding="utf-8") as file:
        return file.read()


def _help():
    return subprocess.run([GPUPROBE, "help", "findings"], check=True, capture_output=True, text=True).stdout.splitlines()


def conditions():
    """When each finding is reported, by its id, and what "holds up the others" means."""
    lines = _help()
    found = dict(re.fullmatch(r"  ([a-z-]+) +(.*)", line).groups() for line in lines if line.startswith("  "))
    return found, next(line for line in lines if line.startswith("A rank holds up the others"))


def index():
    """README.md with its lists as they should be: each topic's findings with the titles of their pages."""
    topics, rows = {}, []
    for line in _help()[1:]:
        if line.startswith("  "):
            finding = line.split()[0]
            rows.append(f"| [{finding}]({finding}.md) | {text_of(finding).partition(chr(10))[0][2:]} |\n")
        elif line.endswith(":"):
            rows = topics.setdefault(line[:-1], [])
    with open(INDEX, encoding="utf-8") as file:
        page = file.read()
    return _LIST.sub(lambda match: match[1] + "".join(topics.pop(match[2], [])), page) + "".join(f"\nmissing: {topic}" for topic in topics)


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


def keeps_screen(page):
    """Whether its screen is not made anew."""
    return _WITHOUT.search(page) is not None


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
    if screen_on(page)[0] and not keeps_screen(page):
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
    text = index()
    with open(INDEX, "w", encoding="utf-8") as file:
        file.write(text)
