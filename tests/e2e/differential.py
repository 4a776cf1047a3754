"""Runs a command several times in the same folder, in different company, and compares all that others can see of it: output, status, files, processes."""
import hashlib
import os
import re
import shutil
import signal
import stat
import time

import harness
from harness import LIBRARY

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
MODULE = os.path.join(harness.BUILD, "tests", "e2e", "cuda_module.so")
CHILD_VIEW_FOLDER = os.path.join(harness.BUILD, "tests", "e2e")

# What a process knows of the library in its environment: with exactly this value, wherever a program prints it on a line of its own.
KNOWN_VARIABLES = ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")
KNOWN_LINE = re.compile(rf"^(?:{'|'.join(KNOWN_VARIABLES)})={re.escape(LIBRARY)}\n".encode(), re.MULTILINE)

PRELOAD = {"LD_PRELOAD": LIBRARY}
INJECTION = {"CUDA_INJECTION64_PATH": LIBRARY}


def installed(program):
    return shutil.which(program, path=PATH) is not None


class Place:
    """A folder in which one command runs again and again, from the same start; with a mark by which its processes are known."""

    def __init__(self, test, name, fill):
        self._test, self._fill = test, fill
        self.folder = test.path(name)
        self.mark = f"{test.mark}-{name}."  # none begins with another

    def run(self, shell, extra, patience_s=5):
        """(Finished, processes left behind, files left behind). A process that ends within `patience_s` is not left behind."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("cwd", "home", "tmp", "run"):
            os.makedirs(os.path.join(self.folder, name), 0o700)
        cwd = os.path.join(self.folder, "cwd")
        self._fill(cwd)
        env = {name: value for name, value in {
            "PATH": f"{CHILD_VIEW_FOLDER}:{PATH}", "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "1767225600", "HOME": os.path.join(self.folder, "home"),
            "TMPDIR": os.path.join(self.folder, "tmp"), "XDG_RUNTIME_DIR": os.path.join(self.folder, "run"), "E2E_MARK": self.mark, "MODULE": MODULE,
            "LD_LIBRARY_PATH": harness.SIM_LIB, "GPUSIM_DEVICES": "1", **extra}.items() if value is not None}
        program = harness.Running(["/bin/sh", "-c", shell], env, cwd, self._test.folder)
        try:
            finished = program.wait()
            return finished, self._left_behind(program.pid, patience_s), files_of(self.folder)
        finally:
            program.kill()
            program.close()

    def _left_behind(self, session, patience_s):
        """Names of processes that are still there then, which are ended here."""
        deadline = time.monotonic() + patience_s
        while True:
            pids = {pid for pid in harness.all_pids() if self.mark.encode() in harness.read_proc(pid, "environ")} | set(harness.processes_of_session(session))
            if not pids or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        names = sorted(harness.read_proc(pid, "comm").decode().strip() for pid in pids)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return names


def files_of(folder):
    """Each file that is there: its path, its kind and mode, and a sum of its content."""
    found = {}
    for path, folders, names in os.walk(folder):
        for name in (*folders, *names):
            place = os.path.join(path, name)
            status = os.lstat(place)
            content = ""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(place)
            elif stat.S_ISREG(status.st_mode):
                content = hashlib.sha1(KNOWN_LINE.sub(b"", harness.read_file(place))).hexdigest()
            found[os.path.relpath(place, folder)] = (oct(status.st_mode), content)
    return found


def seen(result, volatile="", content=True, without=None):
    """What is compared of a run: all but what `volatile` matches, and the lines and files that `without` matches."""
    finished, left, files = result
    pattern = re.compile(volatile.encode()) if volatile else None
    files = {name: facts for name, facts in files.items() if without is None or not re.match(without, name)}

    def lines(text):
        text = KNOWN_LINE.sub(b"", text)
        if without is not None:
            text = b"".join(line for line in text.splitlines(keepends=True) if not re.match(without.encode(), line))
        return (pattern.sub(b"~", text) if pattern else text).decode(errors="backslashreplace").splitlines()
    return {"status": [finished.returncode], "standard output": lines(finished.stdout), "standard error": lines(finished.stderr), "processes left behind": left,
            "files": sorted(f"{name} {' '.join(facts)}" for name, facts in files.items()) if content else sorted(files)}


def differences(plain, other):
    """Lines that say what differs."""
    found = []
    for what, before in plain.items():
        after = other[what]
        if before != after:
            gone, new = [line for line in before if line not in after], [line for line in after if line not in before]
            found += [f"{what}: - {line}" for line in gone[:8]] + [f"{what}: + {line}" for line in new[:8]] + ([] if gone or new else [f"{what}: in another order"])
    return found
