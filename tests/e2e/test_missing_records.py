"""Launches whose records never come are counted, and nothing else is: where a launch rightly has no record, nothing was lost."""
import os
from collections import Counter

import harness
from harness import BUILD, CUDA_SCRIPT, DDP_TRAIN, LAUNCH_RANKS, LIBRARY, SMALL_TRAINING
from hazards import hazard

GRAPH_REPLAYS = os.path.join(BUILD, "samples", "graph_replays")


class MissingRecords(harness.EndToEndTest):

    def recorded(self, command, devices=1, **env):
        collector = harness.Collector(self)
        finished = self.run_program(command, devices=devices, env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, **env})
        self.assertEqual(collector.stop().returncode, 0)
        return finished, self.report(collector.out)

    def lost(self, report):
        return {reason: count for reason, count in report["trust"]["lost"].items() if count}

    @hazard("CUPTI delivers no kernel records at all", sees="no difference", counted="every launch is counted as lost (no_device_record), coverage falls, and a finding says so")
    def test_no_kernel_records_at_all(self):
        _, report = self.recorded([CUDA_SCRIPT, "kernels:40", "copies:5", "return:0"], GPUSIM_FAULT="no_kernel_records")
        self.assertEqual(self.lost(report), {"no_device_record": 40})
        self.assertLess(report["trust"]["coverage"], 0.8)
        self.assertIn("records-lost", [finding["id"] for finding in report["findings"]])

    @hazard("CUPTI silently withholds some records", sees="no difference", counted="exactly the launches without a record are counted as lost")
    def test_some_records_are_withheld(self):
        _, report = self.recorded([CUDA_SCRIPT, "kernels:70", "copies:14", "return:0"], GPUSIM_FAULT="withheld_records=7")
        self.assertEqual(self.lost(report), {"no_device_record": 12})

    def test_records_that_are_counted_as_lost_are_not_counted_twice(self):
        _, report = self.recorded([CUDA_SCRIPT, "kernels:70", "copies:14", "return:0"], GPUSIM_FAULT="drops=7")
        self.assertEqual(self.lost(report), {"cupti_dropped": 12})

    @hazard("CUPTI returns buffers that contain a record which it cannot read itself", sees="no difference",
            counted="that record and each one behind it in the buffer are counted as lost (unknown_record)")
    def test_damaged_buffers(self):
        for version in ("12.6", "13.0"):
            with self.subTest(version=version):
                collector = harness.Collector(self)
                self.run_well([CUDA_SCRIPT, "kernels:1000", "kernels:1000", "kernels:1000", "return:0"], env={
                    **collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_KINDS": "kernels", "GPUSIM_CUPTI_VERSION": version,
                    "GPUSIM_FAULT": "damaged_buffer=2"})
                self.assertEqual(collector.stop().returncode, 0)
                happened = Counter(record["kind"] for record in self.truth())
                missing = happened - Counter(record["kind"] for record in self.export(collector.out))
                lost = self.lost(self.report(collector.out))
                self.forget_truth()
                self.assertEqual(set(lost), {"unknown_record"})
                self.assertGreater(missing["kernel"], 100)
                # What cannot be read is counted in kernels. An overhead is smaller, and makes the estimate one too many, if there is one in what is left; the truth
                # may lack the last one, which the node writes down after the buffer.
                self.assertGreaterEqual(lost["unknown_record"], missing["kernel"])
                self.assertLessEqual(lost["unknown_record"], missing["kernel"] + happened["overhead"])

    @hazard("CUPTI runs out of device buffers for the nodes of CUDA graphs and delivers wrong times", sees="no difference",
            counted="each of those records is counted as lost (invalid_timestamp)")
    def test_device_buffers_of_graphs_are_used_up(self):
        _, report = self.recorded([GRAPH_REPLAYS, "20", "70"], GPUSIM_FAULT="graph_buffers=500")
        replayed = Counter(record["graph_node"] for record in self.truth() if record["kind"] == "kernel" and record["graph_node"])
        self.assertEqual(len(replayed), 20, "one executable graph")
        self.assertGreater(replayed.total(), 1000)
        self.assertEqual(self.lost(report), {"invalid_timestamp": replayed.total() - 500})

    def test_refused_launches_have_no_record(self):
        finished, report = self.recorded([CUDA_SCRIPT, "kernels:10", "return:0"], GPUSIM_FAULT="launch_fails=4")
        self.assertNotEqual(finished.returncode, 0)
        self.assertEqual(self.lost(report), {})

    def test_kinds_that_are_not_recorded_are_not_missed(self):
        for kinds in ("copies", "kernels", "nccl,copies", "nccl,kernels", "kernels,nccl,nvtx,graphs"):
            with self.subTest(kinds=kinds):
                _, report = self.recorded([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, GPUPROBE_KINDS=kinds)
                self.assertEqual(self.lost(report), {})

    def test_small_copies_and_recorded_windows_are_not_missed(self):
        for setting, value in (("GPUPROBE_MIN_COPY_BYTES", "1048576"), ("GPUPROBE_STOP_AFTER_S", "0.05"), ("GPUPROBE_START_AFTER_S", "0.05")):
            with self.subTest(setting=setting):
                _, report = self.recorded([LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, **{setting: value})
                self.assertEqual(self.lost(report), {})


if __name__ == "__main__":
    harness.main()
