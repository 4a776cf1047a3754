"""The driver's slow functions are recorded from entry to exit, each call that is slow and no other, and the report says what they cost."""
import os
from collections import Counter

import harness
from harness import BUILD, GPUPROBE

DRIVER_FUNCTIONS = os.path.join(BUILD, "tests", "e2e", "driver_functions")
# Of those that may be slow, what the program calls and the simulated node has.
CALLED = {
    "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoad", "cuModuleGetFunction", "cuModuleUnload", "cuLibraryLoadData", "cuLibraryUnload",
    "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphExecUpdate_v2", "cuGraphUpload", "cuGraphExecDestroy",
    "cuCtxCreate_v4", "cuCtxDestroy_v2", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuStreamCreate", "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2", "cuEventCreate", "cuEventDestroy_v2",
    "cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemFree_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemPoolCreate", "cuMemPoolTrimTo", "cuMemPoolDestroy", "cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemFreeHost",
    "cuMemHostRegister_v2", "cuMemHostUnregister", "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease",
    "cuMemAddressFree", "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"}


class DriverCalls(harness.EndToEndTest):

    def record(self, command, **settings):
        out = self.path("run-directory")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=2, env=settings)
        return finished, out, [record for record in self.export(out) if record["kind"] == "driver_call"]

    def slow(self):
        return [record for record in self.truth() if record["kind"] == "driver_call"]

    def test_each_function_that_is_slow_is_recorded(self):
        _, out, captured = self.record([DRIVER_FUNCTIONS], GPUSIM_DRIVER_CALLS="Launch=0;.*=300us")
        self.assertEqual({call["function"] for call in captured}, CALLED)
        self.assertEqual(Counter(call["function"] for call in captured), Counter(call["function"] for call in self.slow()))
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.assertEqual({call["function"] for call in captured if call.get("result")}, {"cuModuleLoad"}, "there is no such file")
        functions = {entry["function"]: entry for entry in self.report(out)["driver_calls"]}
        self.assertEqual({name: (entry["calls"], entry["total_ns"], entry["failed"]) for name, entry in functions.items()},
                         {name: (len(calls), sum(call["end_ns"] - call["start_ns"] for call in calls), sum("result" in call for call in calls))
                          for name in CALLED if (calls := [call for call in captured if call["function"] == name])})

    def test_calls_that_return_at_once_leave_nothing(self):
        """Not one of the 40,000, unless the machine made it slow: then the node says so, too."""
        _, out, captured = self.record([DRIVER_FUNCTIONS, "20000"])
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.assertLessEqual(len(captured), len(self.slow()))

    def test_it_can_be_left_out_or_recorded_alone(self):
        for kinds, expected in (("kernels,memory", set()), ("driver", {"driver_call"})):
            with self.subTest(kinds=kinds):
                _, out, captured = self.record([DRIVER_FUNCTIONS], GPUSIM_DRIVER_CALLS="Launch=0;.*=100us", GPUPROBE_KINDS=kinds)
                self.assertEqual({record["kind"] for record in captured}, expected)
                harness.shutil.rmtree(out)

    def test_what_the_start_cost_is_said(self):
        """A context that takes long to create is mentioned below the steps; training itself makes no call that is slow enough."""
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", harness.LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", "20"],
                      devices=2, env={"GPUSIM_DRIVER_CALLS": "PrimaryCtxRetain=400ms"})
        text = " ".join(self.run_well([GPUPROBE, "report", out]).stdout.decode().split())
        self.assertRegex(text, r"Slow driver calls of a rank, on average: before the first step after the warm-up [\d.]+ m?s \(cuDevicePrimaryCtxRetain \d x ")
        entry = next(entry for entry in self.report(out)["driver_calls"] if entry["function"] == "cuDevicePrimaryCtxRetain")
        self.assertEqual(entry["startup"], {"calls": entry["calls"], "total_ns": entry["total_ns"]})
        self.assertGreaterEqual(entry["longest_ns"], 400_000_000)


if __name__ == "__main__":
    harness.main()
