"""One process that drives several GPUs: its steps are counted once, each GPU has a row, and the first finding is the cause."""
import os
import re

import figures
import harness
from harness import BUILD, GPUPROBE

PROGRAM = os.path.join(BUILD, "tests", "e2e", "strangers_devices")
GPUS = 4
STEPS = 60
# A step of 13.2 ms on each GPU; on the one that gathers, 29.2 ms.
ENV = {"GPUSIM_KERNELS": "GemmForward=800us;GemmBackward=1500us;GatherLoss=4ms;FusedAdam=4ms", "GPUSIM_LINK": "alpha=10us,beta=100GB/s", "GPUSIM_TRUTH": None}
COMPUTE_MS = 13.2
GATHERING_MS = 29.2
SHARED_MS = 9.2


def words(finding):
    return f"{finding['id']}: {finding['statement']} {finding['evidence']} > {finding['advice']}"


class StrangersDevices(harness.EndToEndTest):

    def run_devices(self, *arguments):
        self.out = self.path("-".join(map(str, arguments)))
        finished = self.run_program([GPUPROBE, "run", "--out", self.out, "--", PROGRAM, *map(str, arguments)], devices=GPUS, env=ENV)
        self.assertEqual(finished.returncode, 0, str(finished))
        report = harness.read_report(self.out)
        self.assertEqual(figures.impossible(report), [])
        self.told = "\n".join(map(words, report["findings"]))
        return report

    def problems(self, report):
        return [f for f in report["findings"] if f["severity"] != "info"]

    def first(self, report, finding, pattern):
        """The worst problem, which says this."""
        with self.undisturbed(report):
            problems = self.problems(report)
            self.assertTrue(problems, "no finding")
            self.assertEqual(problems[0]["id"], finding, self.told)
            self.assertRegex(words(problems[0]), pattern)
        return problems[0]

    def rows(self, report):
        """The GPUs' rows, by ordinal. Each has the steps of the process."""
        rows = {r["gpu"]: r for r in report["ranks"]}
        self.assertEqual(sorted(rows), list(range(GPUS)))
        self.assertEqual(len(report["ranks"]), GPUS)
        for row in rows.values():
            self.assertEqual(row["steps"]["count"], STEPS)
        self.assertEqual(report["steps"]["count"], STEPS)
        return [rows[gpu] for gpu in range(GPUS)]

    def compute_ms(self, rows):
        return [row["steps"]["compute_ns"]["mean"] / 1e6 for row in rows]

    def assert_within(self, values, expected, share=0.02):
        for value, wanted in zip(values, expected):
            self.assertAlmostEqual(value, wanted, delta=wanted * share, msg=f"{values} {expected}")

    def text(self):
        finished = self.run_well([GPUPROBE, "report", self.out])
        return finished.stdout.decode()

    def test_even_gpus_have_steps_and_rows_and_no_finding(self):
        for situation in ("one-thread", "threads"):
            with self.subTest(situation):
                report = self.run_devices(situation)
                rows = self.rows(report)
                self.assert_within(self.compute_ms(rows), [COMPUTE_MS] * GPUS)
                with self.undisturbed(report):
                    self.assertFalse([f for f in self.problems(report) if f["id"].startswith(("straggler", "gpu-"))], self.told)
                for row in rows:
                    # Four AllReduces, four forward and four backward kernels, an optimizer's.
                    self.assertEqual(row["kernels"]["count"], STEPS * 13)
                    self.assertEqual(row["copies"]["h2d"]["count"], STEPS)
                    self.assertEqual([c["calls"] for c in row["collectives"]], [STEPS * 4])
                    self.assertAlmostEqual(row["collectives"][0]["steady"]["plans_per_step"], 4, delta=0.01)
                calls = {k["name"]: k["steady"]["calls_per_step"] for k in report["top_kernels"] if k["steady"]}
                self.assertEqual([calls[name] for name in sorted(calls) if "Gemm" in name], [4, 4])
                self.assertRegex(self.text(), r"\Agpuprobe: 1 process driving 4 GPUs on ")

    def test_a_slow_gpu_among_them(self):
        report = self.run_devices("slow", 1.5)
        rows = self.rows(report)
        self.assert_within(self.compute_ms(rows), [COMPUTE_MS, COMPUTE_MS, 1.5 * COMPUTE_MS, COMPUTE_MS])
        self.first(report, "straggler-slow-gpu", r"other 3 GPUs wait for GPU 2, .* run 1\.50x slower than the same kernels on the other GPUs .*Check GPU 2 on ")
        # They wait for what it computes longer before the last AllReduce: all but the optimizer.
        caused_ms = rows[2]["wait"]["caused_per_step_ns"] / 1e6
        with self.undisturbed(report):
            self.assertAlmostEqual(caused_ms, 0.5 * COMPUTE_MS, delta=0.1 * COMPUTE_MS)
            for gpu in (0, 1, 3):
                self.assertGreater(rows[gpu]["wait"]["waited_ns"] / STEPS / 1e6, 0.8 * caused_ms)
        self.assertRegex(self.text(), r"\n GPU 0 .*\n GPU 1 .*\n GPU 2 .*\n GPU 3 ")

    def test_late_input_of_one_of_them(self):
        report = self.run_devices("input", 8)
        self.rows(report)
        self.first(report, "straggler-late-input", r"other 3 GPUs wait for GPU 1, ")

    def test_the_gpu_that_gathers_does_most_of_the_work(self):
        report = self.run_devices("gather")
        rows = self.rows(report)
        self.assert_within(self.compute_ms(rows), [GATHERING_MS] + [SHARED_MS] * 3)
        said = r"GPU 0 does most .* computes for ([\d.]+) % of the step, GPUs 1-3 for ([\d.]+) %"
        first = self.first(report, "gpu-imbalance", said)
        shares = re.search(said, first["statement"])
        self.assertAlmostEqual(float(shares[1]) / float(shares[2]), GATHERING_MS / SHARED_MS, delta=0.1)
        self.assertRegex(first["evidence"], r"FusedAdam\S* \(16\.\d ms per step\) and .*GatherLoss\S* \(4\.\d+ ms\) run there alone")
        self.assertIn("DistributedDataParallel", first["advice"])

    def test_gpus_that_are_opened_and_not_used(self):
        report = self.run_devices("one-used", 512)
        self.assertEqual(len(report["ranks"]), 1)
        self.assertIsNone(report["ranks"][0]["gpu"])
        self.assertEqual(report["steps"]["count"], STEPS)
        first = self.problems(report)[0]
        self.assertEqual(first["id"], "gpu-idle", self.told)
        self.assertRegex(words(first), r"GPUs 1-3 of \S+ are idle, .*GPU 1: 516 MiB, GPU 2: 516 MiB, GPU 3: 516 MiB")
        self.assertRegex(self.text(), r"\Agpuprobe: 1 rank on 1 GPU of ")
        # Less than a buffer's worth is no sign that they were meant to be used.
        report = self.run_devices("one-used", 16)
        self.assertFalse(self.problems(report), self.told)
        self.assertIn("sees 4 GPUs and does not use GPUs 1-3", self.told)

    def test_tables_have_a_row_for_each_gpu(self):
        self.run_devices("slow", 1.5)
        for question in ("SELECT gpu, count(*) FROM step GROUP BY gpu ORDER BY gpu", "SELECT gpu, steps_count FROM report_ranks ORDER BY gpu"):
            finished = self.run_well([GPUPROBE, "query", self.out, question, "--format", "csv"])
            self.assertEqual(finished.stdout.decode().split()[1:], [f"{gpu},{STEPS}" for gpu in range(GPUS)], question)


if __name__ == "__main__":
    harness.main()
