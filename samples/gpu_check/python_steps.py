"""The steps of gpu-check that run PyTorch, JAX and CuPy; each is skipped where its library is not usable."""
import importlib.util
import os
import re
import statistics
import sys

from checker import LOADINGS, Failed, Skipped, call_of, last_json
from cuda_steps import ladder, median_launch


def need_module(checker, module, usable):
    """Skips the step unless Python has the module and it sees a device."""
    conditions = checker.results["conditions"]
    if module in checker.unusable:
        raise Skipped(checker.unusable[module])
    if module in conditions:
        return
    if checker.simulated and not (checker.stand_in and module == "torch"):
        raise Skipped(f"{module} needs a real GPU")
    try:
        found = checker.call([sys.executable, "-c", f"import {module}; assert {usable}, 'no device'; print({module}.__version__)"])
    except Failed as error:
        checker.unusable[module] = f"{module} is not usable: {str(error).splitlines()[-1]}"
        raise Skipped(checker.unusable[module]) from None
    conditions[module] = found.strip()


def need_torch(checker):
    need_module(checker, "torch", usable="torch.cuda.is_available()")


def script(checker, name):
    return [sys.executable, checker.sample("gpu_check", name)]


class Torch:
    """The steps with PyTorch. profiled: by mode, what torch.profiler counted without the probe."""

    def __init__(self, checker, steps):
        self.checker, self.steps, self.profiled = checker, steps, {}

    def workload(self, mode, *more, steps=0):
        program = [self.checker.stand_in] if self.checker.stand_in else script(self.checker, "torch_workload.py")
        return [*program, "--mode", mode, "--steps", str(steps or self.steps), *more]

    def counted(self, mode):
        """What torch.profiler counts without the probe, in two sessions."""
        if mode not in self.profiled:
            self.profiled[mode] = last_json(self.checker.call(self.workload(mode, "--sessions", "2", "--profile")))
        return self.profiled[mode]

    def profiler_inside(self, mode):
        """torch.profiler in a probed run counts what it counts alone, and so does the probe."""
        need_torch(self.checker)
        alone = self.counted(mode)
        run = self.checker.record(self.workload(mode, "--sessions", "2", "--profile"))
        for what, count in self.kinds_of_work(mode):
            self.checker.expect(f"{what} that torch.profiler counted beside the probe", count(run.said), count(alone))
        self.compare(run, alone)

    def kinds_of_work(self, mode):
        """What can be compared. A graph's copy on the device is recorded as a kernel if copies were not recorded when the graph was made."""
        if mode == "graphs":
            return [("kernels and copies", lambda said: said["kernels"] + said["copies"])]
        return [(what, lambda said, what=what: said[what]) for what in ("kernels", "copies")]

    def measure(self, mode):
        """Bare and probed runs in turn, so that a drift of the machine hits both alike; every way of loading once."""
        need_torch(self.checker)
        times = {"bare": [], "probe": [], "profiler": []}
        for loading in LOADINGS:
            times["bare"].append(median_step(last_json(self.checker.call(self.workload(mode)))))
            run = self.checker.record(self.workload(mode), loading=loading)
            times["probe"].append(median_step(run.said))
            self.compare(run, self.counted(mode), f", {loading}")
        times["profiler"].append(median_step(self.counted(mode)))
        self.checker.cost(f"torch {mode} step", times)

    def compare(self, run, profiled, of=""):
        """The probe against what torch.profiler and PyTorch's allocator say. The probe sees set-up and warm-up too, so only what was launched
        within the last, measured steps is compared; they are found by their NVTX ranges."""
        checker, said = self.checker, run.said
        checker.expect_nothing_lost(run, of)
        checker.expect_launched(run, of)
        marks = sorted(r["start_ns"] for r in run.of_kind("range") if r["name"] == "step")[-said["steps"]:]
        checker.expect("NVTX ranges of the measured steps" + of, len(marks), said["steps"])
        if marks:
            measured = {call_of(r) for r in run.of_kind("launch") if r["time_ns"] >= marks[0]}
            found = {what: sum(call_of(r) in measured for r in run.of_kind(kind)) for what, kind in (("kernels", "kernel"), ("copies", "memcpy"))}
            for what, count in self.kinds_of_work(said["mode"]):
                checker.expect(f"{what} of the measured steps against torch.profiler's{of}", count(found), count(profiled))
        self.compare_memory(run, of)
        if said["mode"] == "graphs":
            checker.fact("kernels_of_graphs_have_node_ids", any(kernel["graph_node"] for kernel in run.of_kind("kernel")))

    def compare_memory(self, run, of):
        checker, said = self.checker, run.said
        allocator = [device for rank in run.report["ranks"] for device in rank["memory"].get("pytorch", [])]
        if not checker.stand_in:  # which has no caching allocator
            for key in ("peak_allocated_bytes", "peak_reserved_bytes"):
                checker.expect(key + of, [device[key] for device in allocator], [said[key]])
        high = sum(rank["memory"].get("device", {}).get("high_water_bytes", 0) for rank in run.report["ranks"])
        reserved = said["peak_reserved_bytes"]
        most = int(reserved * 1.25) + (96 << 20)  # cuBLAS's workspaces, modules
        checker.expect_that(reserved <= high <= most, "device memory high-water mark" + of, high, f"{reserved} (PyTorch's peak reserved) to {most}")

    def adds(self, launches, repetitions):
        """x.add_(1), over and over: what a launch costs where the host is the limit."""
        need_torch(self.checker)
        program = [self.checker.stand_in] if self.checker.stand_in else script(self.checker, "torch_adds.py")
        command = [*program, "--launches", str(launches), "--repetitions", str(repetitions)]
        ladder(self.checker, "torch x.add_(1)", command, median_launch, launches * repetitions)

    def step_cost(self, steps):
        """An eager training step, which launches all the time."""
        need_torch(self.checker)
        ladder(self.checker, "eager PyTorch step", self.workload("eager", steps=steps), median_step, steps)

    def c10_symbols(self):
        """Which of the mangled names of the allocator's reporting functions this PyTorch has."""
        need_torch(self.checker)
        package = importlib.util.find_spec("torch").submodule_search_locations[0]  # importing it takes seconds
        path = os.path.join(package, "lib", "libc10.so")
        with open(path, "rb") as file:
            found = sorted({name.decode() for name in re.findall(rb"_ZN3c10\d+report(?:MemoryUsage|OutOfMemory)ToProfiler\w+", file.read())})
        self.checker.fact("c10_reporting_symbols", found)
        self.checker.expect_that(bool(found), "reporting functions of the allocator", len(found), "some")


def median_step(said):
    return statistics.median(said["step_s"])


def cupy(checker):
    need_module(checker, "cupy", usable="cupy.cuda.runtime.getDeviceCount()")
    run = checker.record(script(checker, "cupy_workload.py"))
    expect_library(checker, run)


def jax(checker):
    """JAX under the probe, and its profiler alone and beside the probe."""
    need_module(checker, "jax", usable="any(d.platform == 'gpu' for d in jax.devices())")
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    expect_library(checker, checker.record(script(checker, "jax_workload.py"), env))
    alone = last_json(checker.call([*script(checker, "jax_workload.py"), "--profile", os.path.join(checker.scratch, "jax-alone")], env))
    run = checker.record([*script(checker, "jax_workload.py"), "--profile", os.path.join(checker.scratch, "jax-probed")], env)
    checker.expect("GPU events of JAX's profiler beside the probe", run.said["gpu_events"], alone["gpu_events"])
    expect_library(checker, run, ", its profiler inside")


def expect_library(checker, run, of=""):
    """At least the kernels that the program is sure of, with names and times."""
    kernels = run.of_kind("kernel")
    least = run.said["kernels_at_least"]
    checker.expect_that(len(kernels) >= least, "kernels" + of, len(kernels), f"at least {least}")
    checker.expect("kernels without a name" + of, sum(not kernel["name"] for kernel in kernels), 0)
    checker.expect("timing source" + of, run.report["trust"]["timing_source"], "cupti_activity")
    checker.expect_nothing_lost(run, of)
    checker.expect_launched(run, of)
