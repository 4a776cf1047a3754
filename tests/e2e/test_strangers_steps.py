"""What hosts do between their launches, as public bug reports tell it: the first finding is the cause, and its competitors are not named.

The program says nothing of itself (programs/strangers/steps.cu). What each situation is, it says there; the right answer follows from that, not from a report.
"""
import os
import re

import figures
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS

PROGRAM = os.path.join(BUILD, "tests", "e2e", "strangers_steps")
NODE = {"GPUSIM_KERNELS": "Forward=700us;Backward=1400us;Adam=500us;Tiny=3us;Evaluate=1ms", "GPUSIM_LINK": "alpha=20us,beta=100GB/s", "GPUSIM_TRUTH": None}
# Each is about what a host does with the time of a step.
OF_THE_HOST = {"input-bound", "launch-bound", "sync-in-loop", "memory-calls", "host-pause", "cpu-starved"}


class StrangersSteps(harness.EndToEndTest):

    def record(self, situation, ranks=2, steps=60, prefix=()):
        out = self.path(f"{situation}-{ranks}")
        command = [PROGRAM, situation, str(steps)]
        if ranks > 1:
            command = [LAUNCH_RANKS, str(ranks), *command]
        finished = self.run_program([GPUPROBE, "run", "--out", out, "--", *prefix, *command], devices=ranks, env=NODE)
        self.assertEqual(finished.returncode, 0, str(finished))
        report = harness.read_report(out)
        self.assertEqual(figures.impossible(report), [])
        told = "\n".join([situation, *(f"{f['id']}: {f['statement']} {f['evidence']}" for f in report["findings"]), str(report["steps"]["idle"])])
        return report, told

    def of_the_host(self, report):
        """A machine whose processors are all taken makes every host wait, and that is then said, rightly."""
        return [f["id"] for f in report["findings"] if f["id"] in OF_THE_HOST - {"cpu-starved"}]

    def only(self, situation, finding, *words, **options):
        report, told = self.record(situation, **options)
        with self.undisturbed(report):
            self.assertEqual(self.of_the_host(report), [finding] if finding else [], told)
            self.assertNotIn("growing-steps", [f["id"] for f in report["findings"]], told)
            if finding:
                self.assertEqual(next(f["id"] for f in report["findings"] if f["severity"] != "info"), finding, told)
        if finding:
            text = next(f"{f['statement']} {f['evidence']} {f['advice']}" for f in report["findings"] if f["id"] == finding)
            for word in words:
                self.assertIn(word, text, told)
        return report

    def test_a_copy_that_blocks_is_a_synchronisation(self):
        for ranks in (1, 2):
            self.only("read_value", "sync-in-loop", "1.0 synchronising calls and copies", ranks=ranks)

    def test_a_value_that_is_read_between_steps_costs_nothing(self):
        self.only("read_at_end", None)

    def test_a_late_batch_is_input_by_its_copy_or_its_range(self):
        self.only("late_batch", "input-bound", "a copy to the GPU")
        self.only("late_range", "input-bound", "named after loading")
        self.only("few_allocations", "input-bound")

    def test_a_silent_host_is_not_said_to_wait_for_input(self):
        self.only("silent", "host-pause", "cause is unknown", "gpuprobe stacks")

    def test_copies_to_the_host_before_a_pause_are_its_cause(self):
        self.only("write_out", "host-pause", "follow copies to the host", "checkpoints")

    def test_memory_calls_are_named_with_their_number(self):
        # 600 between two steps, and none after the last of 60.
        self.only("empty_cache", "memory-calls", "590.0 calls per step", "empty_cache()")

    def test_many_short_kernels_are_launch_bound(self):
        # A host that spins to be slow loses its processor now and then: that is a pause, rightly.
        report, told = self.record("launches", ranks=1)
        with self.undisturbed(report):
            self.assertEqual(report["findings"][0]["id"], "launch-bound", told)
        self.assertIn("CUDA graphs", report["findings"][0]["advice"], told)

    def test_hosts_that_share_a_processor_wait_for_it(self):
        processor = str(min(os.sched_getaffinity(0)))
        report, told = self.record("busy_cores", prefix=["taskset", "-c", processor], steps=100)
        self.assertEqual(report["findings"][0]["id"], "cpu-starved", told)
        self.assertEqual(self.of_the_host(report), [], told)

    def test_a_few_long_steps_are_told_with_their_distance_and_content(self):
        for ranks in (1, 2):
            report, told = self.record("epochs", ranks=ranks, steps=100)
            with self.undisturbed(report):
                first = report["findings"][0]
                self.assertEqual(first["id"], "long-steps", told)
                self.assertRegex(first["statement"], "^([45] of [0-9]+ steps,|[56] of [0-9]+ steps, [45] of them) every 20 steps,", told)
                self.assertIn("longer for input", first["evidence"], told)
                self.assertEqual(self.of_the_host(report), [], told)

    def test_checkpoints_of_one_rank_are_its_few_long_steps(self):
        report, told = self.record("checkpoints", ranks=3, steps=100)
        with self.undisturbed(report):
            first = report["findings"][0]
            self.assertIn(first["id"], ("long-steps", "straggler-intermittent"), told)
            self.assertIn("copies data back", first["evidence"], told)
            self.assertIn("rank 0", first["statement"] + first["evidence"], told)
            self.assertIn("every 20 steps", first["statement"], told)
            self.assertEqual(self.of_the_host(report), [], told)
            self.assertNotIn("imbalance", [f["id"] for f in report["findings"]], told)

    def test_steps_that_grow_are_told_with_what_grows(self):
        for situation, words in (("more_each_step", "What grows: pauses of the host"), ("longer", r"What grows: compute .*Backward\(float\*\) takes .* in 100 sizes: the work grows"),
                                 ("hotter", r"What grows: compute .*Backward\(float\*\) takes .*, and its launches do not change in size")):
            with self.subTest(situation):
                report, told = self.record(situation, ranks=1, steps=100)
                growing = [f for f in report["findings"] if f["id"] == "growing-steps"]
                with self.undisturbed(report):
                    self.assertEqual(len(growing), 1, told)
                    self.assertRegex(growing[0]["evidence"], words, told)
                first, last = (float(ms) for ms in re.search(r"longer: ([\d.]+) ms at the beginning, ([\d.]+) ms at the end", growing[0]["statement"]).groups())
                # By 10 ms of sleep, or to three times the work.
                self.assertGreater(last, 1.4 * first, told)
                self.assertLess(growing[0]["cost_ns_per_step"], 0.6e6 * (last - first), told)

    def test_an_evaluation_between_steps_is_nothing_of_the_hosts(self):
        self.only("evaluation", None, steps=100)

    def test_a_steady_job_is_none_of_this(self):
        for ranks in (1, 3):
            self.only("steady", None, ranks=ranks)


if __name__ == "__main__":
    harness.main()
