"""How the simulated CUPTI behaves, and how that is known, from the comments where it is done.

    // [documented] WHERE: what it does.
    // [observed] ON WHAT MACHINE, WITH WHAT CUPTI: what it does.
    // [assumed] What it does. Probe: what in the probe depends on it. Fallback: what if it is otherwise.
    // Settled by: the step of gpu-check that shows it.

An empty comment line ends a tag. "Settled by" is there only where such a step exists. `python3 tests/sim/cupti/behaviours.py` prints how many there are of each; with --write it
renews docs/internals/simulated-cupti.md and samples/gpu_check/assumptions.json.
"""
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
DOCUMENT = os.path.join(SOURCE, "docs", "internals", "simulated-cupti.md")
ASSUMPTIONS = os.path.join(SOURCE, "samples", "gpu_check", "assumptions.json")
WAYS = ("documented", "observed", "assumed")
# What a source must name: a header, release or guide that can be looked up; a machine or library, with its CUPTI.
SOURCES = {"documented": r"cupti_\w+\.h|CUPTI \d+\.\d+|CUPTI's guide", "observed": r"CUPTI \d+\.\d+\.\d+"}


class Malformed(Exception):
    """A tag that nobody could look up."""


class Behaviour:
    """A tagged comment. `source`: of what is documented or observed. `probe`, `fallback`, `settled_by`: of what is assumed."""

    def __init__(self, file, way, text):
        self.file, self.way, self.source, self.probe, self.fallback, self.settled_by = file, way, "", "", "", ""
        if way == "assumed":
            parts = re.fullmatch(r"(.+?) Probe: (.+?) Fallback: (.+?)(?: Settled by: (.+))?", text)
            if parts is None:
                raise Malformed(f"{file}: [assumed] needs \"Probe: ...\" and \"Fallback: ...\": {text}")
            self.text, self.probe, self.fallback = parts.group(1, 2, 3)
            self.settled_by = (parts.group(4) or "").rstrip(".")
            return
        self.source, colon, self.text = text.partition(": ")
        if not colon or not re.search(SOURCES[way], self.source):
            raise Malformed(f"{file}: [{way}] needs its source before a colon, such as \"{'cupti_activity.h' if way == 'documented' else 'H100, CUPTI 13.0.1'}\": {text}")


def comments(lines):
    """Blocks of whole-line // comments, each as a list of its lines."""
    block = []
    for line in lines:
        comment = re.fullmatch(r"\s*// ?(.*?)\s*", line.rstrip("\n"))
        if comment:
            block.append(comment.group(1))
        elif block:
            yield block
            block = []
    if block:
        yield block


def of_file(name, lines):
    found = []
    for block in comments(lines):
        for paragraph in "\n".join(block).split("\n\n"):
            _, *tags = re.split(r"(?:^|\s)\[(\w+)\] ", paragraph)
            for way, text in zip(tags[::2], tags[1::2]):
                if way not in WAYS:
                    raise Malformed(f"{name}: [{way}] is none of {', '.join(WAYS)}")
                found.append(Behaviour(name, way, " ".join(text.split())))
    return found


def behaviours(folder=HERE):
    found = []
    for name in sorted(os.listdir(folder)):
        if name.endswith((".cc", ".h")) and not name.endswith("_test.cc"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found += of_file(name, file)
    return found


def cell(text):
    return text.replace("|", "\\|")


def markdown(found):
    count = {way: sum(behaviour.way == way for behaviour in found) for way in WAYS}
    lines = [
        "# How the simulated CUPTI behaves, and how that is known", "",
        f"{len(found)} behaviours: {count['documented']} documented by NVIDIA, {count['observed']} observed on real software, {count['assumed']} assumed.", "",
        "This file is generated from the comments in `tests/sim/cupti/`; `python3 tests/sim/cupti/behaviours.py --write` renews it, and",
        "`tests/e2e/test_documentation.py` fails when it is out of date. `gpu-check` prints the assumed ones beside what it found.", "",
        "## Assumed", "", "| behaviour | what in the probe depends on it | if it is otherwise | settled by | where |", "|---|---|---|---|---|"]
    lines += [f"| {cell(b.text)} | {cell(b.probe)} | {cell(b.fallback)} | {cell(b.settled_by) or '-'} | `{b.file}` |" for b in found if b.way == "assumed"]
    for way, source in (("observed", "on what"), ("documented", "by what")):
        lines += ["", f"## {way.capitalize()}", "", f"| behaviour | {source} | where |", "|---|---|---|"]
        lines += [f"| {cell(b.text)} | {cell(b.source)} | `{b.file}` |" for b in found if b.way == way]
    return "\n".join(lines) + "\n"


def assumptions(found):
    return json.dumps([{"behaviour": b.text, "probe": b.probe, "fallback": b.fallback, "settled_by": b.settled_by or None} for b in found if b.way == "assumed"],
                      indent=1) + "\n"


def main():
    found = behaviours()
    if sys.argv[1:] == ["--write"]:
        for path, text in ((DOCUMENT, markdown(found)), (ASSUMPTIONS, assumptions(found))):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
    print(", ".join(f"{sum(b.way == way for b in found)} {way}" for way in WAYS))


if __name__ == "__main__":
    main()
