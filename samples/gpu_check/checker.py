"""Runs programs with and without the probe, and collects what was found.

A check is one thing found against what was expected: ok, differs, failed (the step broke off) or skipped. A fact is an answer nobody knew
beforehand. A cost is the time of one unit of work in several variants. All of it is in results.json, which is written again after every step.
"""
import glob
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEEP_BYTES = 400 << 10
LOADINGS = {"injected": "CUDA_INJECTION64_PATH", "preloaded": "LD_PRELOAD"}


class Failed(Exception):
    """The step could not be done."""


class Skipped(Exception):
    """The step needs something that this machine lacks."""


class Run:
    """A program's run under the probe. records is empty where it was not asked for."""

    def __init__(self, printed, report, records, begin_ns, end_ns):
        self.printed, self.report, self.records, self.begin_ns, self.end_ns = printed, report, records, begin_ns, end_ns

    @property
    def said(self):
        return last_json(self.printed)

    @property
    def lost(self):
        return sum(self.report["trust"]["lost"].values())

    @property
    def kernels(self):
        return sum(rank["kernels"]["count"] for rank in self.report["ranks"])

    def of_kind(self, kind):
        return [record for record in self.records if record["kind"] == kind]


class Checker:
    def __init__(self, tree, out, limit_s, stand_in="", only=()):
        self.tree, self.out, self.stand_in, self.only = tree, out, stand_in, only
        self.deadline = self.step_deadline = time.monotonic() + limit_s
        self.gpuprobe = os.path.join(tree, "bin", "gpuprobe")
        self.library = os.path.join(tree, "lib", "libgpuprobe.so")
        self.scratch = tempfile.mkdtemp(prefix="gpu-check-")
        self.results = {"schema_version": 2, "conditions": {}, "checks": [], "cost": {}, "facts": {}, "step_seconds": {}}
        self.unusable = {}  # Python modules, and why
        self.number = 0  # of the probed run
        self.name = ""  # of the step

    # -- steps

    def step(self, name, limit_s, function, *arguments):
        """Runs one step; whatever goes wrong in it is a result, and the next step is tried."""
        if self.only and not name.startswith(tuple(self.only)):
            return
        self.name = name
        begin = time.monotonic()
        self.step_deadline = min(self.deadline, begin + limit_s)
        outcome = ""
        try:
            function(*arguments)
        except Skipped as reason:
            outcome = f", SKIPPED: {reason}"
            self._add("step", str(reason), None, "skipped")
        except Exception as error:  # noqa: BLE001
            outcome = ", FAILED"
            self._add("step", f"{type(error).__name__}: {error}", None, "failed")
        seconds = time.monotonic() - begin
        self.results["step_seconds"][name] = round(seconds, 1)
        self.save()
        print(f"  {name}: {seconds:.1f} s{outcome}", file=sys.stderr, flush=True)

    def save(self):
        path = os.path.join(self.out, "results.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.results, file, indent=1)
        os.replace(path + ".new", path)

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    # -- what was found

    def expect(self, what, found, expected):
        self._add(what, found, expected, "ok" if found == expected else "differs")

    def expect_that(self, good, what, found, expected):
        """As expect, where more than one value is good; `expected` says which."""
        self._add(what, found, expected, "ok" if good else "differs")

    def _add(self, what, found, expected, status):
        self.results["checks"].append({"step": self.name, "what": what, "found": found, "expected": expected, "status": status})

    def fact(self, name, answer):
        self.results["facts"][name] = answer

    def cost(self, of, seconds):
        """seconds: the times of each variant by its name, among them "bare"."""
        bare = statistics.median(seconds["bare"])
        self.results["cost"][of] = {
            name: {"median_s": statistics.median(runs), "spread_s": max(runs) - min(runs), "runs_s": runs,
                   **({} if name == "bare" else {"over_bare": statistics.median(runs) / bare - 1})} for name, runs in seconds.items()}

    # -- programs

    def sample(self, *parts):
        path = os.path.join(self.tree, "samples", *parts)
        if not os.path.exists(path):
            raise Failed(f"no {path}")
        return path

    def need(self, *parts, without):
        """As sample; skips the step where the tree was built without the program."""
        path = os.path.join(self.tree, "samples", *parts)
        if not os.path.exists(path):
            raise Skipped(f"this tree was built without {without}")
        return path

    @property
    def simulated(self):
        return self.results["conditions"].get("simulated", False)

    def call(self, command, env=None):
        """Runs a command in a group of its own for as long as the step has time; returns its standard output."""
        limit_s = self.step_deadline - time.monotonic()
        if limit_s <= 0:
            raise Failed("the time is used up")
        libraries = {} if command[0] == sys.executable else {"LD_LIBRARY_PATH": library_path()}  # Python's modules bring their own
        process = subprocess.Popen(command, env={**os.environ, **libraries, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True, cwd=self.scratch)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"not done after {limit_s:.0f} s: {' '.join(command)}") from None
        if process.returncode != 0:
            raise Failed(f"{' '.join(command)} ended with {process.returncode}: {err.strip()[-600:]}")
        return out

    def record(self, command, env=None, loading="injected", records=True):
        """The command under the probe. records=False: only its report is read, for runs of millions of records."""
        self.number += 1
        out = os.path.join(self.scratch, f"{self.number}")
        path = os.path.join(self.scratch, f"{self.number}.sock")
        begin_ns = time.time_ns()
        collector = subprocess.Popen([self.gpuprobe, "collect", "--socket", path, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_socket(path, collector)
            printed = self.call(command, {"GPUPROBE_SOCKET": path, "GPUPROBE_AUTOSTART": "0", "GPUPROBE_EXIT_WAIT_MS": "20000",
                                          LOADINGS[loading]: self.library, **(env or {})})
        finally:
            end(collector)
        end_ns = time.time_ns()
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        lines = self.call([self.gpuprobe, "export", out, "--format", "jsonl"]).splitlines() if records else []
        self._keep(out)
        return Run(printed, report, [json.loads(line) for line in lines], begin_ns, end_ns)

    def _keep(self, run_directory):
        """Small run directories stay beside the results; large ones go at once."""
        size = sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(run_directory) for file in files)
        if size <= KEEP_BYTES:
            kept = f"{self.number:02}-{re.sub('[^A-Za-z0-9_]+', '-', self.name)}"
            shutil.copytree(run_directory, os.path.join(self.out, "runs", kept), dirs_exist_ok=True)
        shutil.rmtree(run_directory)

    # -- what several steps expect

    def expect_nothing_lost(self, run, of=""):
        self.expect("lost records" + of, run.lost, 0)

    def expect_launched(self, run, of=""):
        """Every kernel has a launch, and launch <= start <= end. Times lie within the run."""
        launched_ns = {call_of(record): record["time_ns"] for record in run.of_kind("launch")}
        kernels = run.of_kind("kernel")
        known = [kernel for kernel in kernels if call_of(kernel) in launched_ns]
        self.expect("kernels without a launch" + of, len(kernels) - len(known), 0)
        self.expect("kernels that start before their launch" + of, sum(k["start_ns"] < launched_ns[call_of(k)] for k in known), 0)
        self.expect("kernels that end before they start" + of, sum(k["end_ns"] < k["start_ns"] for k in kernels), 0)
        self.expect("kernels outside the run" + of, sum(k["start_ns"] < run.begin_ns or k["end_ns"] > run.end_ns for k in kernels), 0)


def library_path():
    """Where the samples find the CUDA runtime, CUPTI and NCCL when the loader does not know: after what is set, the toolkit's folders and those of
    pip's wheels."""
    folders = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    for place in sys.path:
        folders += sorted(glob.glob(os.path.join(place or ".", "nvidia", "*", "lib")))
    return ":".join(folders)


def wait_for_socket(path, collector):
    for _ in range(1000):
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(path)
                return
            except OSError:
                pass
        if collector.poll() is not None:
            break
        time.sleep(0.01)
    raise Failed("the collector did not start")


def end(collector):
    collector.send_signal(signal.SIGTERM)
    try:
        collector.wait(60)
    except subprocess.TimeoutExpired:
        collector.kill()
        collector.wait()


def call_of(record):
    """What the records of a call and of the work that it launched have in common."""
    return record["pid"], record["correlation"]


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])
