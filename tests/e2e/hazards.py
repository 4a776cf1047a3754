"""The situations that docs/host-safety.md lists, described where they are tested.

    @hazard("standard error is a full pipe", sees="nothing: no wait, no output", counted="our line is not written")
    def test_full_pipe(self): ...

`rows()` collects the descriptions of all test files without running or importing them.
"""
import ast
import os

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
