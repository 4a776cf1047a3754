#!/usr/bin/env python3
"""What scripts/gpu-check.sh runs: the probe against programs on this machine's GPU, its counts against what is known from elsewhere.

Standard library only. Every step has a time limit, and one that fails does not stop the others. Writes results.json, a table on stdout, and small run
directories under runs/.
"""
import argparse
import ctypes
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
from collections import Counter

WHOLE_LIMIT_S = 480
KEEP_BYTES = 400 << 10
VECTOR_ADD_KERNELS = 10
LOADINGS = {"injected": "CUDA_INJECTION64_PATH", "preloaded": "LD_PRELOAD"}
TORCH_MODES = ("eager", "compiled", "graphs")
ROUNDS = 3


def library_path():
    """Where the samples find the CUDA runtime, CUPTI and NCCL when the loader does not know: after what is set, the toolkit's folders and those of pip's wheels."""
    folders = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
    folders += ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"]
    for place in sys.path:
        folders += sorted(glob.glob(os.path.join(place or ".", "nvidia", "*", "lib")))
    return ":".join(folders)


class Failed(Exception):
    """What a step says when it could not be done."""


class Checker:
    def __init__(self, tree, out, limit_s, stand_in):
        self.tree, self.out, self.stand_in = tree, out, stand_in
        self.deadline = time.monotonic() + limit_s
        self.gpuprobe = os.path.join(tree, "bin", "gpuprobe")
        self.library = os.path.join(tree, "lib", "libgpuprobe.so")
        self.samples = os.path.join(tree, "samples")
        self.scratch = tempfile.mkdtemp(prefix="gpu-check-")
        self.results = {"schema_version": 1, "conditions": {}, "checks": [], "cost": {}, "facts": {}}
        self.number = 0

    def call(self, command, limit_s, env=None):
        """Runs a command in a group of its own; returns its standard output."""
        limit_s = min(limit_s, self.deadline - time.monotonic())
        if limit_s <= 0:
            raise Failed("the time for all steps is used up")
        process = subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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

    def record(self, name, loading, command, limit_s, env=None):
        """The command under the probe, loaded in one way; returns its output, the report and the exported records."""
        self.number += 1
        out = os.path.join(self.scratch, f"{self.number}-{name}-{loading}")
        path = os.path.join(self.scratch, f"{self.number}.sock")
        collector = subprocess.Popen([self.gpuprobe, "collect", "--socket", path, "--out", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for_socket(path, collector)
            printed = self.call(command, limit_s, {**(env or {}), "GPUPROBE_SOCKET": path, "GPUPROBE_AUTOSTART": "0", "GPUPROBE_EXIT_WAIT_MS": "20000",
                                                   LOADINGS[loading]: self.library})
        finally:
            collector.send_signal(signal.SIGTERM)
            try:
                collector.wait(30)
            except subprocess.TimeoutExpired:
                collector.kill()
                collector.wait()
        report = json.loads(self.call([self.gpuprobe, "report", out, "--json"], 60))
        records = [json.loads(line) for line in self.call([self.gpuprobe, "export", out, "--format", "jsonl"], 60).splitlines()]
        size = sum(os.path.getsize(os.path.join(folder, file)) for folder, _, files in os.walk(out) for file in files)
        if size <= KEEP_BYTES:
            shutil.copytree(out, os.path.join(self.out, "runs", f"{name}-{loading}"), dirs_exist_ok=True)
        return printed, report, records

    def note(self, step, what, found, expected=None, good=None):
        if good is None:
            good = found == expected
        self.results["checks"].append({"step": step, "what": what, "found": found, "expected": expected, "status": "ok" if good else "differs"})

    def step(self, name, function, *arguments):
        begin = time.monotonic()
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001: whatever went wrong is a result, and the next step is tried
            self.results["checks"].append({"step": name, "what": "step", "found": f"{type(error).__name__}: {error}", "expected": None, "status": "failed"})
        print(f"  {name}: {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)

    def skip(self, name, reason):
        self.results["checks"].append({"step": name, "what": "step", "found": reason, "expected": None, "status": "skipped"})
        print(f"  {name}: SKIPPED, {reason}", file=sys.stderr, flush=True)

    # -- the steps

    def conditions(self):
        conditions = self.results["conditions"]
        driver = ctypes.CDLL("libcuda.so.1")
        version, count = ctypes.c_int(0), ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            raise Failed("no usable driver or device")
        driver.cuDriverGetVersion(ctypes.byref(version))
        name = ctypes.create_string_buffer(128)
        driver.cuDeviceGetName(name, 128, 0)
        conditions.update(driver_version=version.value, devices=count.value, device=name.value.decode(), simulated=hasattr(driver, "gpusim_version"),
                          probe=self.call([self.gpuprobe, "--help"], 20).splitlines()[0])

    def vector_add(self, loading):
        _, report, records = self.record("vector_add", loading, [os.path.join(self.samples, "vector_add")], 60,
                                         {"LD_LIBRARY_PATH": library_path()})
        step = f"vector_add {loading}"
        kinds = Counter(record["kind"] for record in records)
        self.note(step, "kernels", kinds["kernel"], VECTOR_ADD_KERNELS)
        self.note(step, "lost records", lost(report), 0)
        copies = Counter(record["direction"] for record in records if record["kind"] == "memcpy")
        self.note(step, "copies in both directions", dict(copies), good=copies["h2d"] > 0 and copies["d2h"] > 0)
        self.note(step, "allocations", kinds["alloc"], good=kinds["alloc"] > 0)
        launches = [record["correlation"] for record in records if record["kind"] == "kernel"]
        self.results["facts"].update({
            "kernels_have_correlation_ids_with_callbacks_only": bool(launches) and all(launches) and len(set(launches)) == len(launches),
            "runtime_allocations_fire_driver_callbacks": kinds["alloc"] > 0,
            "nothing_is_missing_after_exit": kinds["kernel"] == VECTOR_ADD_KERNELS})

    def two_ranks(self, name, arguments, loading):
        command = [os.path.join(self.samples, "launch_ranks.sh"), "2", os.path.join(self.samples, name), *arguments]
        _, report, records = self.record(name, loading, command, 90, {"DDP_SHARE_DEVICE": "1", "LD_LIBRARY_PATH": library_path()})
        step = f"{name} {loading}"
        self.note(step, "ranks", len(report["ranks"]), 2)
        self.note(step, "lost records", lost(report), 0)
        calls = [record for record in records if record["kind"] == "collective"]
        self.note(step, "collectives", len(calls), good=bool(calls))
        # A communicator of one rank launches nothing.
        timed = [call for call in calls if call["comm_ranks"] > 1]
        self.note(step, "collectives without GPU time", sum(call.get("end_ns", 0) <= call.get("start_ns", 0) for call in timed), 0)
        by_rank = {rank: Counter((c["op"], c["comm"], c["seq"]) for c in timed if c["rank"] == rank and c["op"] not in ("Send", "Recv")) for rank in (0, 1)}
        self.note(step, "collectives that the ranks do not number alike", sum(((by_rank[0] - by_rank[1]) + (by_rank[1] - by_rank[0])).values()), 0)

    def child_graphs(self):
        """A captured AllReduce that a graph holds twice: whether CUPTI tells which nodes of the executable graph were made of it."""
        rounds = 3
        command = [os.path.join(self.samples, "launch_ranks.sh"), "2", os.path.join(self.samples, "nccl_calls"), "--child-graphs", f"--rounds={rounds}", "--count=4096"]
        _, report, records = self.record("child_graphs", "injected", command, 90, {"DDP_SHARE_DEVICE": "1", "LD_LIBRARY_PATH": library_path()})
        calls = [record for record in records if record["kind"] == "collective" and not record.get("captured")]
        replays = [call for call in calls if call.get("replay")]
        self.note("child graphs", "calls in replays", len(replays), 2 * 2 * rounds)
        self.note("child graphs", "calls that are known by their kernel only", sum(call["source"] == "kernel_name" for call in calls), 0)
        self.note("child graphs", "lost records", lost(report), 0)
        self.results["facts"]["nodes_of_child_graphs_are_told_as_clones"] = len(replays) == 2 * 2 * rounds

    def workload(self, mode, steps, *more):
        if self.stand_in:
            return [self.stand_in, "--mode", mode, "--steps", str(steps), *more]
        return [sys.executable, os.path.join(self.samples, "gpu_check", "torch_workload.py"), "--mode", mode, "--steps", str(steps), *more]

    def torch(self, mode):
        """A without the probe, B with it (ways of loading in turn), C with torch.profiler: A B C A B C A B C, so that a drift of the machine hits all alike."""
        times = {"bare": [], "probe": [], "profiler": []}
        for number in range(ROUNDS):
            loading = list(LOADINGS)[number % len(LOADINGS)]
            bare = last_json(self.call(self.workload(mode, 50), 60))
            printed, report, records = self.record(f"torch-{mode}-{number}", loading, self.workload(mode, 50), 60)
            probed = last_json(printed)
            profiled = last_json(self.call(self.workload(mode, 50, "--profile"), 60))
            for name, run in (("bare", bare), ("probe", probed), ("profiler", profiled)):
                times[name].append(statistics.median(run["step_s"]))
            if number < len(LOADINGS):
                self.compare(f"torch {mode} {loading}", mode, report, records, probed, profiled)
        cost = {name: {"median_s": statistics.median(values), "spread_s": max(values) - min(values), "runs_s": values} for name, values in times.items()}
        for name in ("probe", "profiler"):
            cost[name]["over_bare"] = cost[name]["median_s"] / cost["bare"]["median_s"] - 1
        self.results["cost"][mode] = cost

    def compare(self, step, mode, report, records, probed, profiled):
        self.note(step, "lost records", lost(report), 0)
        # The probe sees set-up and warm-up too: only what a step launches can be compared, so the last steps are.
        marks = sorted((r["start_ns"], r["end_ns"]) for r in records if r["kind"] == "memcpy" and r["direction"] == "h2d")[-probed["steps"]:]
        if marks:
            kernels = sum(r["kind"] == "kernel" and r["start_ns"] >= marks[0][0] for r in records)
            copies = sum(r["kind"] == "memcpy" and r["start_ns"] >= marks[0][0] for r in records)
            self.note(step, "kernels of the measured steps against torch.profiler's", kernels, profiled["kernels"])
            self.note(step, "copies of the measured steps against torch.profiler's", copies, profiled["copies"])
        self.results["facts"]["injection_works_in_python"] = any(record["kind"] == "kernel" for record in records)
        high = sum(rank["memory"].get("device", {}).get("high_water_bytes", 0) for rank in report["ranks"])
        reserved = probed["peak_reserved_bytes"]
        self.note(step, "device memory high-water mark against PyTorch's peak reserved", high, reserved, good=reserved <= high <= reserved * 1.25 + (64 << 20))
        if mode == "graphs":
            nodes = {record["graph_node"] for record in records if record["kind"] == "kernel"} - {0, None}
            self.results["facts"]["kernels_of_graphs_have_node_ids"] = bool(nodes)

    def c10_symbols(self):
        """Which of the mangled names of the allocator's reporting functions this PyTorch has."""
        path = self.call([sys.executable, "-c", "import torch, os; print(os.path.join(os.path.dirname(torch.__file__), 'lib', 'libc10.so'))"], 60).strip()
        with open(path, "rb") as file:
            found = re.findall(rb"_ZN3c10\d+report(?:MemoryUsage|OutOfMemory)ToProfiler\w+", file.read())
        self.results["facts"]["c10_reporting_symbols"] = sorted({name.decode() for name in found})
        self.note("c10 symbols", "reporting functions of the allocator", len(set(found)), good=bool(found))

    # -- all together

    def run(self):
        self.step("conditions", self.conditions)
        for loading in LOADINGS:
            self.step(f"vector_add {loading}", self.vector_add, loading)
        small = ["--steps", "6", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03"]
        for name, arguments in (("ddp_train", small), ("nccl_calls", ["--rounds=2", "--count=4096"])):
            for loading in LOADINGS:
                if os.path.exists(os.path.join(self.samples, name)):
                    self.step(f"{name} {loading}", self.two_ranks, name, arguments, loading)
                else:
                    self.skip(f"{name} {loading}", "this tree was built without NCCL")
        if os.path.exists(os.path.join(self.samples, "nccl_calls")):
            self.step("child graphs", self.child_graphs)
        else:
            self.skip("child graphs", "this tree was built without NCCL")
        reason = self.why_no_torch()
        for mode in TORCH_MODES:
            if reason:
                self.skip(f"torch {mode}", reason)
            else:
                self.step(f"torch {mode}", self.torch, mode)
        if reason:
            self.skip("c10 symbols", reason)
        else:
            self.step("c10 symbols", self.c10_symbols)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def why_no_torch(self):
        if self.results["conditions"].get("simulated") and not self.stand_in:
            return "PyTorch needs a real GPU"
        try:
            version = self.call([sys.executable, "-c", "import torch; assert torch.cuda.is_available(), 'no device'; print(torch.__version__)"], 60)
        except Failed as error:
            return f"PyTorch with CUDA is not usable: {str(error).splitlines()[-1]}"
        self.results["conditions"]["torch"] = version.strip()
        return None


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


def lost(report):
    return sum(report["trust"]["lost"].values())


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def print_table(results):
    conditions = results["conditions"]
    print(f"{conditions.get('device', 'no device')}, driver {conditions.get('driver_version', '-')}, torch {conditions.get('torch', '-')}"
          + (" (simulated)" if conditions.get("simulated") else ""))
    for check in results["checks"]:
        expected = "" if check["expected"] is None else f" (expected {check['expected']})"
        print(f"{check['status']:8} {check['step']:26} {check['what']}: {check['found']}{expected}")
    for mode, cost in results["cost"].items():
        print(f"cost     {mode:26} " + ", ".join(f"{name} {c['median_s'] * 1e3:.3f} ms a step" + (f" ({c['over_bare']:+.1%})" if "over_bare" in c else "")
                                                 for name, c in cost.items()))
    for name, answer in results["facts"].items():
        print(f"fact     {name}: {answer}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", required=True, help="the installed tree")
    parser.add_argument("--out", required=True, help="where results.json and runs/ go")
    parser.add_argument("--limit", type=int, default=WHOLE_LIMIT_S, help="seconds for all steps together")
    parser.add_argument("--stand-in", default="", help="a program to measure in PyTorch's place, with the options and the last line of torch_workload.py")
    options = parser.parse_args()
    out = os.path.abspath(options.out)
    os.makedirs(out, exist_ok=True)
    checker = Checker(os.path.abspath(options.tree), out, options.limit, options.stand_in)
    checker.run()
    with open(os.path.join(out, "results.json"), "w", encoding="utf-8") as file:
        json.dump(checker.results, file, indent=1)
    print_table(checker.results)
    return 1 if any(check["status"] in ("failed", "differs") for check in checker.results["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
