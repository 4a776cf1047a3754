"""Python's own tests of what a process does with the system pass as without the probe, in a Python that works on a GPU."""
import concurrent.futures
import json
import os
import subprocess
import unittest

import differential
import harness
from differential import INJECTION, PRELOAD
from hazards import hazard

PYTHON = "/usr/bin/python3"
WAYS = {"plain": {}, "injected": INJECTION, "preloaded": {**PRELOAD, **INJECTION}}
# Processes, signals, threads, descriptors, files, limits. PYTHON_SUITE=test_io,test_subprocess runs only those: Python has some four hundred.
MODULES = [name for name in os.environ.get("PYTHON_SUITE", "").split(",") if name] or [
    f"test_{name}" for name in """atexit ctypes epoll fcntl fork1 gc generators mmap os popen posix pty pwd queue resource select shutil socketserver sqlite3 sys tempfile
    thread threadsignals time wait3 wait4""".split()]
AT_ONCE = 4  # they mostly sleep
# Runs one module's tests in a process that has started CUDA, and says of each test what became of it.
RUNNER = """
import ctypes, json, os, sys, unittest
assert ctypes.CDLL(os.environ["MODULE"]).start_cuda() == 0
class Outcomes(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.of = {}
    def addSuccess(self, test):
        self.of[test.id()] = "passed"
    def addSkip(self, test, reason):
        self.of[test.id()] = f"skipped: {reason}"
    def addFailure(self, test, why):
        self.of[test.id()] = f"{why[0].__name__}: {why[1]}"
    addError = addFailure
outcomes = Outcomes()
unittest.defaultTestLoader.loadTestsFromName(f"test.{sys.argv[1]}").run(outcomes)
with open("outcomes", "w") as file:
    json.dump(outcomes.of, file)
"""


def has_tests():
    return differential.installed(PYTHON) and subprocess.run([PYTHON, "-c", "import test.test_os"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_tests(), "Python's own tests are not installed: libpython3-testsuite")
class PythonSuite(harness.EndToEndTest):

    def outcomes(self, module, way, attempt):
        """What became of each test; what the module left running is ended."""
        folder = self.path(f"{module}-{way}-{attempt}")
        os.makedirs(os.path.join(folder, "tmp"))
        env = {"PATH": differential.PATH, "LC_ALL": "C.UTF-8", "HOME": folder, "TMPDIR": os.path.join(folder, "tmp"), "E2E_MARK": self.mark,
               "MODULE": differential.MODULE, "LD_LIBRARY_PATH": harness.SIM_LIB, "GPUSIM_DEVICES": "1", "GPUPROBE_AUTOSTART": "0", **WAYS[way]}
        program = harness.Running([PYTHON, "-B", "-c", RUNNER, module], env, folder, self.folder)
        try:
            finished = program.wait()
        finally:
            program.kill()
            program.close()
        if finished.returncode != 0:
            return {module: f"ended with {finished.returncode}: {finished.stderr.decode(errors='replace')[-500:]}"}
        with open(os.path.join(folder, "outcomes"), encoding="utf-8") as file:
            return json.load(file)

    def differing(self, module, way, attempt):
        """Tests with another outcome than without the probe: what became of them with it."""
        plain, other = self.outcomes(module, "plain", f"{way}-{attempt}"), self.outcomes(module, way, attempt)
        return {test: other.get(test, "did not run") for test in {**plain, **other} if plain.get(test) != other.get(test)}

    def compare(self, module):
        """Lines about tests that differ in two attempts: some of Python's own depend on who else works on the machine."""
        found = []
        for way in ("injected", "preloaded"):
            first = self.differing(module, way, 0)
            second = self.differing(module, way, 1) if first else {}
            found += [f"{way}: {test}: {what}" for test, what in first.items() if test in second]
        return found

    @hazard("Python's own tests of processes, signals, threads, descriptors and limits run in a process that has started CUDA",
            sees="each test passes, fails or is skipped as without the probe", counted="nothing to report")
    def test_outcomes_are_the_same(self):
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            found = [line for lines in pool.map(self.compare, MODULES) for line in lines]
        self.assertEqual(found, [], "\n".join(found))

    def test_most_pass(self):
        """Tests that fail alike would compare as equal."""
        outcomes = self.outcomes("test_os", "preloaded", "alone")
        passed = sum(what == "passed" for what in outcomes.values())
        self.assertGreater(passed, 100)
        self.assertGreater(passed, 0.75 * len(outcomes))


if __name__ == "__main__":
    harness.main()
