"""The situations that docs/host-safety.md lists, described where they are tested.

    @hazard("standard error is a full pipe", sees="nothing: no wait, no output", counted="our line is not written")
    def test_full_pipe(self): ...

`rows()` collects the descriptions of all test files without running or importing them. `python3 tests/e2e/hazards.py` prints the document;
with --write it replaces docs/host-safety.md.
"""
import ast
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def hazard(situation, *, sees, counted):
    """Describes a test that shows what happens to the host program or to the collector in a bad situation, one short clause each."""
    def describe(function):
        function.hazard = (situation, sees, counted)
        return function
    return describe


class Row:
    """A described test: where it stands and what its decorator says."""

    def __init__(self, file, group, test, situation, sees, counted):
        self.file, self.group, self.test = file, group, test
        self.situation, self.sees, self.counted = situation, sees, counted


def rows(folder=HERE):
    """All described tests, by file name and then in the order in which they stand there."""
    found = []
    for name in sorted(os.listdir(folder)):
        if not (name.startswith("test_") and name.endswith(".py")):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            tree = ast.parse(file.read(), name)
        for group in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            for test in (node for node in group.body if isinstance(node, ast.FunctionDef)):
                found += [Row(name, group.name, test.name, *_texts(name, mark)) for mark in test.decorator_list if _is_hazard(mark)]
    return found


def _is_hazard(node):
    return isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == "hazard"


def _texts(name, call):
    """The three clauses. They must be literals, so that the document can be made without a build."""
    clauses = {argument.arg: ast.literal_eval(argument.value) for argument in call.keywords}
    if len(call.args) != 1 or sorted(clauses) != ["counted", "sees"]:
        raise SyntaxError(f"{name}:{call.lineno}: hazard(situation, sees=..., counted=...)")
    return ast.literal_eval(call.args[0]), clauses["sees"], clauses["counted"]


DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "docs", "host-safety.md")

INTRODUCTION = """# Host safety

Whatever goes wrong with the probe must not affect the program. Each row is a situation that a test provokes for real. The test compares the program's output, exit status and what it leaves behind
with a run without the probe, and checks what the report or the screen says. "No difference" means that the program runs as it would without the probe. {count} situations.

This file is generated from the tests. `python3 tests/e2e/hazards.py --write` renews it, and `tests/e2e/test_documentation.py` fails if it is out of date.

## In short
| question | answer |
|---|---|
| What runs in my program? | One thread of ours, which sends and samples, and a few instructions in each CUDA, NCCL and NVTX call: they write to a ring of the calling thread, and neither allocate nor lock nor wait. A program that never starts CUDA gets none of this. |
| What is left alone? | The environment once `main` runs, arguments, descriptors below 512, signal handlers and masks, children, working directory, limits, locale, priorities, standard error (one line at most, from our thread), the network. [CONTRIBUTING](../CONTRIBUTING.md#rules-in-the-host) has the rules, and `host_rules` fails if one is broken. |
| What if the collector dies, hangs, or the disk is full? | The program goes on. What cannot be delivered is counted, and the report says so. |
| What can it cost? | Time in each call ([performance.md](performance.md), and every report states it), and at exit at most `GPUPROBE_EXIT_WAIT_MS` for the last records. Memory: at most `GPUPROBE_MEMORY_MIB` (64), with eight descriptors and two threads. |
| Where does it stay out? | Where it cannot be safe: static programs, a preload into musl or AddressSanitizer, a system-call filter that might kill us, a memory limit that leaves too little, a second profiler that needs CUPTI. It says so in one line, and the program runs unrecorded. |
| How do I switch it off? | `GPUPROBE_DISABLE=1` in the environment of the program: the library does nothing at all. |
| How is that known? | From the rows below, each of which is a test. Real GPUs: [real-hardware.md](real-hardware.md). |
"""

# Where a row stands: its group by the test's file, or by file and class; in this order. Other tests come last, under the name of their class.
SUBJECTS = {
    "How a program ends": ["ways_to_end", "bad_situations.Ending"],
    "Processes and children": ["bad_situations.Processes", "plain_programs", "ordinary_programs", "interpreters"],
    "Signals and process state": ["bad_situations.Signals"],
    "Scale": ["bad_situations.Size", "threads"],
    "Limits and sandboxes": ["bad_situations.Limits"],
    "Environment, directories and users": ["bad_situations.Surroundings"],
    "The edges of the process": ["host_edges"],
    "Other tools in the same process": ["bad_situations.OtherTools", "foreign_plugin", "cupti_tools"],
    "Programs built in special ways": ["built_otherwise"],
    "`gpuprobe run` and the terminal": ["run", "run_signals", "run_ranks", "terminal"],
    "`gpuprobe attach`": ["attach"],
    "`gpuprobe capture`": ["capture"],
    "Wrong or missing settings, sockets and libraries": ["host_is_sacred", "versions"],
    "Identities and clocks": ["odd_identities"],
    "Running out of memory and queues": ["memory", "recording"],
}


def _subject(row):
    name = row.file[len("test_"):-len(".py")]
    for subject, members in SUBJECTS.items():
        if name in members or f"{name}.{row.group}" in members:
            return subject
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", row.group).capitalize()


def markdown():
    found = rows()
    groups = {subject: [] for subject in SUBJECTS}
    for row in found:
        groups.setdefault(_subject(row), []).append(row)
    lines = [INTRODUCTION.format(count=len(found))]
    for subject, members in groups.items():
        if not members:
            continue
        lines += [f"## {subject}", "| what goes wrong | what the program sees | what is recorded and reported | test |", "|---|---|---|---|"]
        for row in members:
            cells = [text.replace("|", "\\|") for text in (row.situation, row.sees, row.counted)]
            lines.append(f"| {' | '.join(cells)} | `{row.file[len('test_'):-len('.py')]}`: `{row.test[len('test_'):]}` |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        os.makedirs(os.path.dirname(DOCUMENT), exist_ok=True)
        with open(DOCUMENT, "w", encoding="utf-8") as file:
            file.write(markdown())
    else:
        sys.stdout.write(markdown())
