"""GPUPROBE_KINDS, GPUPROBE_RANKS, GPUPROBE_MIN_COPY_BYTES, GPUPROBE_START_AFTER_S and GPUPROBE_STOP_AFTER_S record what they say, and the report says what was left out."""
import os
import signal

import harness
import truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard


class Recording(harness.EndToEndTest):

    def record(self, command, env, devices=1):
        out = self.path("run-directory")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, **env})
        self.assert_nothing_runs()
        report = self.report(out)
        self.assert_no_loss(report)
        return self.export(out), report, finished

    def train(self, env, ranks=2):
        return self.record([LAUNCH_RANKS, str(ranks), DDP_TRAIN, *SMALL_TRAINING], env, devices=ranks)

    def test_only_some_kinds(self):
        """Those that were asked for are complete, and nothing else is there. NCCL's kernels name their collectives, with less detail."""
        for kinds, exported in (("kernels", {"kernel", "launch", "collective"}), ("copies,memory", {"memcpy", "alloc", "free", "launch"}),
                                ("syncs", {"sync"}), ("nccl,kernels", {"kernel", "launch", "collective", "communicator"}), ("nvtx", {"range"})):
            with self.subTest(kinds=kinds):
                self.forget_truth()
                self._remove("run-directory")
                captured, _, _ = self.train({"GPUPROBE_KINDS": kinds})
                if "kernel" in exported or "memcpy" in exported:
                    exported = exported | {"overhead"}  # comes with any of the device's work
                # Samples of the host are a setting of their own, and as many as gaps were long enough for.
                self.assertEqual({record["kind"] for record in captured} - {"host_sample"}, exported)
                if "nccl" not in kinds:
                    captured = [record for record in captured if record["kind"] != "collective"]
                    exported = exported - {"collective"}
                happened = [record for record in self.truth() if record["kind"] in exported]
                self.assertEqual(self.differences(happened, captured), [])

    def _remove(self, name):
        harness.shutil.rmtree(self.path(name), ignore_errors=True)

    def test_only_some_ranks(self):
        captured, report, _ = self.train({"GPUPROBE_RANKS": "1-5"})
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [1])
        self.assertEqual(self.differences([record for record in self.truth() if record["rank"] == 1], captured), [])
        self.assertEqual(report["conditions"]["ranks_expected"], 1)
        self.assertNotIn("ranks-missing", [finding["id"] for finding in report["findings"]])

    def test_small_copies_are_counted_only(self):
        smallest = 1024
        captured, report, _ = self.train({"GPUPROBE_MIN_COPY_BYTES": str(smallest)})
        copies = [record for record in self.truth() if record["kind"] == "memcpy"]
        large = [record for record in copies if record["bytes"] >= smallest]
        self.assertTrue(0 < len(large) < len(copies), "the program has both")
        self.assertEqual(truth.multiset_difference("memcpy", truth.COMPARED["memcpy"], large, [r for r in captured if r["kind"] == "memcpy"]), [])
        for rank in report["ranks"]:
            for direction, entry in rank["copies"].items():
                own = [record for record in copies if record["rank"] == rank["rank"] and record["direction"] == direction]
                self.assertEqual((entry["count"], entry["bytes"], entry["small"]),
                                 (len(own), sum(r["bytes"] for r in own), sum(r["bytes"] < smallest for r in own)), direction)

    def test_a_window_that_never_begins(self):
        """Nothing but allocations; the rest is counted."""
        captured, report, _ = self.record([VECTOR_ADD], {"GPUPROBE_START_AFTER_S": "3600"})
        self.assertEqual({record["kind"] for record in captured}, {"alloc", "free"})
        happened = self.truth()
        self.assertEqual(truth.allocation_differences([r for r in happened if r["kind"] in ("alloc", "free")], captured), [])
        work = sum(record["kind"] in ("kernel", "memcpy", "memset", "sync") for record in happened)
        self.assertGreaterEqual(report["trust"]["outside_window"], work)
        self.assertLess(report["trust"]["coverage"], 1)

    def test_a_window_in_the_middle(self):
        """Of work that goes on for seconds, what began inside the window is there, and nothing else."""
        command = [LAUNCH_RANKS, "1", DDP_TRAIN, *SMALL_TRAINING, "--steps", "240"]
        captured, report, _ = self.record(command, {"GPUPROBE_START_AFTER_S": "1", "GPUPROBE_STOP_AFTER_S": "2",
                                                    "GPUSIM_KERNELS": "Adam=5ms;.*=200us"})
        happened = [record for record in self.truth() if record["kind"] == "kernel"]
        starts = [record["start_ns"] for record in captured if record["kind"] == "kernel"]
        self.assertGreater(max(r["start_ns"] for r in happened) - min(r["start_ns"] for r in happened), 2_000_000_000, "the program was too short")
        self.assertTrue(starts)
        self.assertLess(max(starts) - min(starts), 1_000_000_000)
        inside = [record for record in happened if min(starts) <= record["start_ns"] <= max(starts)]
        self.assertEqual(len(inside), len(starts))
        self.assertEqual(report["trust"]["device_records_unattributed"], 0)
        self.assertGreaterEqual(report["trust"]["outside_window"], len(happened) - len(starts))

    def kernels_lost(self, report):
        """Kernels of the one process that are neither captured nor counted as lost; negative: counted twice."""
        happened = sum(record["kind"] == "kernel" for record in self.truth())
        return happened, happened - report["ranks"][0]["kernels"]["count"]

    def truth_lines(self):
        count = 0
        for file in os.scandir(self.path("truth")) if os.path.isdir(self.path("truth")) else ():
            with open(file, "rb") as lines:
                count += lines.read().count(b"\n")
        return count

    @hazard("the device is far behind, and there are only a few activity buffers", sees="never waits",
            counted="records without room are counted as lost")
    def test_few_small_buffers_are_what_is_used(self):
        """A device that is far behind needs more than two buffers of 300 records; what found no place is counted, to half a record a buffer."""
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", VECTOR_ADD, "--rounds=2000"],
                      env={**PATIENT, "GPUSIM_KERNELS": ".*=500us", "GPUPROBE_BUFFERS": "2", "GPUPROBE_BUFFER_KIB": "64"})
        report = self.report(out)
        happened, lost = self.kernels_lost(report)
        self.assertGreater(lost, happened // 10)
        self.assertEqual(list(report["trust"]["lost"]), ["buffer_pool_empty"])
        self.assertAlmostEqual(report["trust"]["lost"]["buffer_pool_empty"], lost, delta=lost // 100 + 2)

    @hazard("the collector is stopped while the program goes on", sees="never waits; the probe's memory stays below GPUPROBE_QUEUE_MIB",
            counted="what does not fit is dropped and counted")
    def test_the_queue_is_as_long_as_it_was_set(self):
        """While the collector stands still, what is more than a mebibyte is dropped and counted. More kernels than activity buffers hold: these alone would wait."""
        rounds = 400_000
        collector = harness.Collector(self)
        os.kill(collector.program.pid, signal.SIGSTOP)
        program = self.start([VECTOR_ADD, f"--rounds={rounds}"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_QUEUE_MIB": "1",
                                                                  "GPUSIM_KERNELS": ".*=1us"})
        harness.wait_until(lambda: self.truth_lines() >= rounds, "all kernels")
        os.kill(collector.program.pid, signal.SIGCONT)
        self.assertEqual(program.wait().returncode, 0)
        self.assertEqual(collector.stop().returncode, 0)
        report = self.report(collector.out)
        happened, lost = self.kernels_lost(report)
        self.assertGreater(lost, happened // 10)
        # On a busy machine the probe's thread may fall behind before the queue is full, too.
        self.assertGreater(report["trust"]["lost"].pop("send_queue_full"), 0)
        self.assertLessEqual(set(report["trust"]["lost"]), {"event_ring_full", "buffer_pool_empty"})

    def test_a_bad_value_is_said_once_and_everything_recorded(self):
        captured, _, finished = self.train({"GPUPROBE_KINDS": "kernels;nccl"})
        self.assertEqual(finished.stderr.count(b"is ignored: must be a list of kernels, copies, memsets, syncs, memory, nccl, nvtx, driver, graphs"), 1)
        self.assertEqual(self.differences(self.truth(), captured), [])


if __name__ == "__main__":
    harness.main()
