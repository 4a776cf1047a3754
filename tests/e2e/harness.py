"""What every end-to-end test stands on: a workspace of its own, programs on the simulated GPU node, and collectors.

A workspace is a temporary folder that serves as home, runtime and temporary folder of everything a test starts. Whatever a test starts carries
the workspace's mark in its environment, so that what is left behind can be found (and is a failure) even if it made a session of its own.
Tests wait for conditions, never for time: LIMIT_S is what a broken program costs, not what a slow machine may take.
What holds only while the programs get processors (how long something took, that nothing was lost) is checked in `undisturbed(report)`: if it fails and the report itself,
or the kernel, says that the machine took the processors away, the test runs again, a few times, and says why.
"""
import contextlib
import ctypes
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

import truth

LIMIT_S = 120

BUILD = os.environ.get("GPUPROBE_BUILD_DIR") or sys.exit("GPUPROBE_BUILD_DIR is not set: run this through ctest")
SOURCE = os.environ.get("GPUPROBE_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

GPUPROBE = os.path.join(BUILD, "collector", "gpuprobe")
LIBRARY = os.path.join(BUILD, "injector", "libgpuprobe.so")
SIM_LIB = os.path.join(BUILD, "tests", "sim", "lib")
# The library and the programs are built with a sanitizer.
SANITIZED = bool(os.environ.get("GPUPROBE_TEST_SANITIZED"))
# A folder with a real libnccl.so.2, built against the shared CUDA runtime; tests that want one skip without it.
REAL_NCCL = os.environ.get("GPUPROBE_TEST_NCCL")
WITNESS = os.path.join(BUILD, "tests", "sim", "lib_nccl_witness", "libgpusim_nccl_witness.so")
VECTOR_ADD = os.path.join(BUILD, "samples", "vector_add")
DDP_TRAIN = os.path.join(BUILD, "samples", "ddp_train")
NCCL_CALLS = os.path.join(BUILD, "samples", "nccl_calls")
CAPTURED_COLLECTIVES = os.path.join(BUILD, "tests", "e2e", "captured_collectives")
STATIC_COLLECTIVES = os.path.join(BUILD, "tests", "e2e", "static_collectives")
LATE_COLLECTIVES = os.path.join(BUILD, "tests", "e2e", "liblate_collectives.so")
OPENS_MODULE = os.path.join(BUILD, "tests", "e2e", "opens_module")
CUDA_SCRIPT = os.path.join(BUILD, "tests", "e2e", "cuda_script")
LONG_JOB = os.path.join(BUILD, "tests", "e2e", "long_job")
PLAIN_PROGRAM = os.path.join(BUILD, "tests", "e2e", "plain_program")
# A program that prints the signals it gets, until one comes with the value LAST_SIGNAL (queue_signal).
SIGNAL_REPORTER = os.path.join(SOURCE, "tests", "e2e", "programs", "signal_reporter.py")
LAST_SIGNAL = 99
LAUNCH_RANKS = os.path.join(SOURCE, "samples", "launch_ranks.sh")

# For programs whose records must all arrive however slow the machine is: the longest wait at exit that the probe accepts.
PATIENT = {"GPUPROBE_EXIT_WAIT_MS": "60000"}

# A training job that is over in a second or two, with several buckets, an evaluation in the middle and one at the end.
SMALL_TRAINING = ["--steps", "6", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03", "--epoch", "4", "--log-every", "2"]


# Of the time in which programs are ready to run and get no CPU: kBusyMachineShare in collector/analysis/hangs/process_state.h.
BUSY_SHARE = 0.05
# With this much of it in each try, a machine has several times the work that it can do.
OVERLOADED_SHARE = 0.5
TRIES_ON_A_BUSY_MACHINE = 6
# A processor that does not come for longer than a ring of events lasts costs events; each is counted.
LOST_FOR_WANT_OF_A_CPU = {"event_ring_full"}


class MachineTook(AssertionError):
    """Something did not hold while the machine took the programs' processors away; `is_told`: by a finding (cpu-starved), or by half of the time."""

    def __init__(self, reason, is_told=False):
        super().__init__(reason)
        self.is_told = is_told


class ProcessorTime:
    """Of all processors since the machine started, in ticks."""

    def __init__(self):
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(ticks) for ticks in file.readline().split()[1:9]]
        self.all, self.idle, self.stolen = sum(times), times[3] + times[4], times[7]

    def share_since(self, before, what):
        return (getattr(self, what) - getattr(before, what)) / max(self.all - before.all, 1)


def await_idle_processors(limit_s=10):
    """For a moment in which a quarter of the processors' time is free; no longer than that."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        before = ProcessorTime()
        time.sleep(0.5)
        if ProcessorTime().share_since(before, "idle") > 0.25:
            return


def again_if_the_machine_took(test):
    """The test, which is run again in a new workspace while it raises MachineTook. What fails each time fails, and is skipped if the last report says why."""
    @functools.wraps(test)
    def run(self):
        for left in reversed(range(TRIES_ON_A_BUSY_MACHINE)):
            self.processor_time = ProcessorTime()
            try:
                return test(self)
            except MachineTook as took:
                if left == 0 and took.is_told:
                    raise unittest.SkipTest(f"no processor for this: {str(took)[:400]}") from took
                if left == 0:
                    raise
                print(f"once more: {str(took)[:400]}", file=sys.stderr)
            if left:
                self.tearDown()
                self.doCleanups()
                await_idle_processors()
                self.setUp()
    return run


def read_report(run_directory):
    """report.json as a collector left it, with everything about every rank where that is in a second file."""
    with open(os.path.join(run_directory, "report.json"), encoding="utf-8") as file:
        report = json.load(file)
    if report["ranks_in"]:
        with open(os.path.join(run_directory, report["ranks_in"]), encoding="utf-8") as file:
            report["ranks"] = json.load(file)["ranks"]
    return report


class Finished:
    """How a program ended: returncode as in subprocess (negative: a signal), stdout and stderr as bytes."""

    def __init__(self, command, returncode, stdout, stderr):
        self.command, self.returncode, self.stdout, self.stderr = command, returncode, stdout, stderr

    @property
    def outcome(self):
        return (self.returncode, self.stdout, self.stderr)

    def __str__(self):
        shown = " ".join(self.command)
        return f"{shown}\nreturned {self.returncode}\n-- stdout\n{self.stdout.decode(errors='replace')}\n-- stderr\n{self.stderr.decode(errors='replace')}"


class Running:
    """A program in a session of its own, with its output in files, so that nobody has to read while it runs."""

    def __init__(self, command, env, cwd, folder, stdin=None, **credentials):
        self.command = command
        self._out = tempfile.TemporaryFile(dir=folder)
        self._err = tempfile.TemporaryFile(dir=folder)
        self._process = subprocess.Popen(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=self._out, stderr=self._err, start_new_session=True,
            **({"extra_groups": [], **credentials} if credentials else {}))

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def signal(self, number):
        if self.alive():
            self._process.send_signal(number)

    def so_far(self):
        """Standard error until now."""
        return os.pread(self._err.fileno(), 1 << 20, 0)

    def wait(self, limit=LIMIT_S):
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            stacks = describe_processes(processes_of_session(self.pid))
            self.kill()
            raise AssertionError(f"still running after {limit} s: {self.finished()}\n{stacks}") from None
        return self.finished()

    def finished(self):
        out, err = (os.pread(file.fileno(), 1 << 28, 0) for file in (self._out, self._err))
        return Finished(self.command, self._process.returncode, out, err)

    def kill(self):
        """Whole session, and waits for its end: a killed process is there until it has let go of its memory."""
        def ended():
            living = [pid for pid in processes_of_session(self.pid) if not is_dead(pid)]
            for pid in living:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            return not living
        with contextlib.suppress(AssertionError):
            wait_until(ended, "processes that were killed", limit=10)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)

    def close(self):
        self._out.close()
        self._err.close()


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_proc(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def queue_signal(pid, number, value):
    """sigqueue, which Python lacks."""
    ctypes.CDLL(None).sigqueue(pid, number, ctypes.c_void_p(value))


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def processes_of_session(session):
    found = []
    for pid in all_pids():
        fields = read_proc(pid, "stat").rpartition(b")")[2].split()
        if len(fields) > 3 and int(fields[3]) == session:
            found.append(pid)
    return found


def is_dead(pid):
    return read_proc(pid, "stat").rpartition(b")")[2].split()[:1] in ([], [b"Z"], [b"X"])


def describe_processes(pids):
    lines = []
    for pid in pids:
        command = read_proc(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace")
        threads = [f"{read_proc(pid, f'task/{tid}/comm').decode().strip()}:{read_proc(pid, f'task/{tid}/wchan').decode()}"
                   for tid in (os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else [])]
        lines.append(f"  {pid} {command} [{', '.join(threads)}]")
    return "\n".join(lines)


def wait_until(condition, what, limit=LIMIT_S):
    """Polls until `condition()` is true and returns its value."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"after {limit} s there is still no {what}")
        time.sleep(0.01)


def answers(path):
    """True when somebody accepts connections on the Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        try:
            client.connect(path)
            return True
        except OSError:
            return False


def remove_rings(folder):
    """Flight recorders in /dev/shm that a run below the folder names: they outlive killed collectors."""
    for path, _, names in os.walk(folder):
        for name in names:
            ring = os.path.join(path, name)
            if name.endswith(".ring") and os.path.islink(ring):
                with contextlib.suppress(OSError):
                    os.unlink(os.readlink(ring))


class Collector:
    """`gpuprobe collect` on a socket of its own."""

    def __init__(self, test, out=None, arguments=(), socket=None, env=None):
        self.out = out or os.path.join(test.folder, f"collected-{uuid.uuid4().hex[:8]}")
        self.socket = socket or os.path.join(test.folder, f"{uuid.uuid4().hex[:8]}.sock")
        self._test = test
        self.program = test.start([GPUPROBE, "collect", "--socket", self.socket, "--out", self.out, *arguments], env=env)
        wait_until(lambda: answers(self.socket) or not self.program.alive(), "collector on " + self.socket)
        if not self.program.alive():
            raise AssertionError(f"the collector ended: {self.program.wait()}")

    def env(self):
        return {"GPUPROBE_SOCKET": self.socket, "GPUPROBE_AUTOSTART": "0", **PATIENT}

    def stop(self, number=signal.SIGTERM):
        self.program.signal(number)
        return self.program.wait()


class EndToEndTest(unittest.TestCase):
    """A test with a workspace, that fails if something outlives it."""

    maxDiff = 4000
    on_real_nccl = False

    def __init_subclass__(cls, **arguments):
        super().__init_subclass__(**arguments)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and callable(test):
                setattr(cls, name, again_if_the_machine_took(test))

    def setUp(self):
        self.mark = uuid.uuid4().hex
        # Short: the path of a Unix socket holds 107 characters.
        self.folder = tempfile.mkdtemp(prefix="gpe2e-", dir="/tmp")
        self.cwd = self.path("cwd")
        for name in ("cwd", "run", "tmp", "home"):
            os.mkdir(self.path(name), 0o700)
        self._programs = []
        self.addCleanup(self._clean_up)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def _clean_up(self):
        for program in self._programs:
            program.kill()
            program.close()
        survivors = [pid for pid in all_pids() if self.mark.encode() in read_proc(pid, "environ")]
        shown = describe_processes(survivors)
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        failed = any(error for _, error in getattr(self._outcome, "errors", [])) or not getattr(self._outcome, "success", True)
        if failed and os.environ.get("GPUPROBE_E2E_KEEP"):
            print(f"kept: {self.folder}", file=sys.stderr)
        else:
            remove_rings(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
        if survivors and not failed:
            self.fail(f"processes were left behind:\n{shown}")

    def assert_nothing_runs(self, but=()):
        """Waits until every process of this test has ended, except those named."""
        keep = {program.pid for program in but}
        # A process that has just been killed keeps its environment for a moment.
        wait_until(lambda: not [pid for pid in all_pids() if pid not in keep and self.mark.encode() in read_proc(pid, "environ")],
                   "end of all processes", limit=60)
        # The node's NCCL names its shared memory after the process that made it.
        pids = {name.partition(".")[0] for name in os.listdir(self.path("truth"))} if os.path.isdir(self.path("truth")) else set()
        left = [name for name in os.listdir("/dev/shm") if name.startswith("gpusim-nccl-") and name.split("-")[2] in pids]
        self.assertEqual(left, [], "left in /dev/shm")

    def env(self, extra=None, devices=1, sim_lib=None):
        """The environment of a user on the simulated node. Nothing of the caller's gets through but PATH and the language."""
        env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": self.path("home"), "TMPDIR": self.path("tmp"),
               "XDG_RUNTIME_DIR": self.path("run"), "E2E_MARK": self.mark, "LD_LIBRARY_PATH": sim_lib or SIM_LIB,
               # glibc guards the list of loaded objects with a lock that ThreadSanitizer does not see, so a name in it is no race.
               "TSAN_OPTIONS": "suppressions=" + os.path.join(SOURCE, "tests", "e2e", "tsan.supp") if SANITIZED else None,
               "GPUSIM_DEVICES": str(devices), "GPUSIM_TRUTH": self.path("truth"), "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        env.update(extra or {})
        if self.on_real_nccl:
            # The node watches the calls, so that the kernels of different ranks meet and the truth knows what they carry.
            env["LD_LIBRARY_PATH"] = ":".join([REAL_NCCL, env["LD_LIBRARY_PATH"]])
            env["LD_PRELOAD"] = ":".join(filter(None, [env.get("LD_PRELOAD"), WITNESS]))
        return {name: value for name, value in env.items() if value is not None}

    def start(self, command, env=None, devices=1, sim_lib=None, stdin=None, cwd=None):
        program = Running(command, self.env(env, devices, sim_lib), cwd or self.cwd, self.folder, stdin)
        self._programs.append(program)
        return program

    def run_program(self, command, env=None, devices=1, sim_lib=None, stdin=None, cwd=None, limit=LIMIT_S):
        return self.start(command, env, devices, sim_lib, stdin, cwd).wait(limit)

    def run_well(self, command, **options):
        """As run_program, and fails unless it returns 0."""
        finished = self.run_program(command, **options)
        self.assertEqual(finished.returncode, 0, str(finished))
        return finished

    def truth(self):
        """The truth log of all processes, in the order in which each wrote it."""
        folder = self.path("truth")
        records = []
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        return records

    def differences(self, happened, captured, untold_names=False):
        """Lines that say how what was captured differs from what happened."""
        return truth.differences(happened, captured, real_nccl=self.on_real_nccl, untold_names=untold_names)

    def forget_truth(self):
        shutil.rmtree(self.path("truth"), ignore_errors=True)

    def export(self, run_directory):
        finished = self.run_well([GPUPROBE, "export", run_directory, "--format", "jsonl"])
        return [json.loads(line) for line in finished.stdout.splitlines()]

    def report(self, run_directory):
        """The report as `gpuprobe report --json` makes it from the log; must equal the report.json that the live collector left."""
        finished = self.run_well([GPUPROBE, "report", run_directory, "--json", "--ranks"])
        return json.loads(finished.stdout)

    def only_run_directory(self, parent=None):
        parent = parent or os.path.join(self.cwd, "gpuprobe-runs")
        self.assertTrue(os.path.isdir(parent), f"no {parent}")
        entries = os.listdir(parent)
        self.assertEqual(len(entries), 1, f"run directories: {entries}")
        return os.path.join(parent, entries[0])

    def assert_complete(self, report):
        """Nothing is missing; that records came late to a collector without a processor is the machine's doing, and said in so many words."""
        for finding in report["findings"]:
            if finding["id"] == "capture-incomplete":
                self.assertRegex(finding["evidence"], r"^\d+ GPU records arrived too late to be placed in steps[^;]*$")

    def assert_no_loss(self, report):
        lost = {reason: count for reason, count in report["trust"]["lost"].items() if count}
        with self.undisturbed(report) if set(lost) <= LOST_FOR_WANT_OF_A_CPU else contextlib.nullcontext():
            self.assertEqual(lost, {}, "records were lost")

    def longest_wait(self, reports):
        return max((rank["host_load"]["waits_for_cpu"] for report in reports for rank in report["ranks"] if rank["host_load"]), default=0)

    def longest_wait_in_steps(self, reports):
        """The most that it can have been of a rank's steps: the kernel's count is of the whole run, of which steps may be a small part."""
        longest = 0
        for report in filter(lambda report: report.get("steps"), reports):
            steps_s = report["steps"]["time_ns"]["total"] / 1e9 / len(report["ranks"])
            for load in filter(None, (rank["host_load"] for rank in report["ranks"])):
                longest = max(longest, min(load["waits_for_cpu"] * load["observed_s"] / max(steps_s, 0.1), 1))
        return longest

    def taken_away(self, reports):
        """In words: that the machine took processors away while the programs of the reports ran. Empty: it did not."""
        waits = max(self.longest_wait(reports), self.longest_wait_in_steps(reports))
        if waits >= BUSY_SHARE:
            return f"a rank was ready to run and had no CPU for up to {waits:.0%} of the time"
        stolen = ProcessorTime().share_since(self.processor_time, "stolen")
        return f"the host of this machine took {stolen:.0%} of its processors' time" if stolen >= BUSY_SHARE else ""

    @contextlib.contextmanager
    def undisturbed(self, *reports):
        """Around what holds only while the programs of the reports get processors; not around what is true of them on any machine."""
        try:
            yield
        except (AssertionError, LookupError, StopIteration) as error:  # what is not as it should be, or not there at all
            taken = self.taken_away(reports)
            if not taken:
                raise
            is_told = any(finding["id"] == "cpu-starved" for report in reports for finding in report["findings"])
            raise MachineTook(f"{taken}: {error}", is_told or self.longest_wait(reports) >= OVERLOADED_SHARE) from error

    @contextlib.contextmanager
    def subTest(self, *arguments, **parameters):
        took = None
        with super().subTest(*arguments, **parameters):
            try:
                yield
            except MachineTook as error:
                took = error
        if took is not None:
            raise took


def main():
    unittest.main(verbosity=2)
