"""The figures of findings: each one, in every scenario of `gpuprobe simulate`, is found again in the run's own records.

finding_figures.py says what each finding says and what its figures follow from; recorded_run.py computes that. What the page draws beside a finding is held in
test_figure_pictures.py.
"""
import os
import re
import shutil
import subprocess

import finding_figures
import harness
import recorded_run
from harness import GPUPROBE

# Fewer ranks and steps than a scenario has, where it takes long to read.
SMALLER = {"launch-bound": ("--steps", "20"), "tiny-buckets": ("--steps", "20"), "straggler-at-scale": ("--ranks", "40", "--steps", "20")}
# Other windows, seeds and sizes of the same.
VARIANTS = (
    ("straggler-late", "--steps", "120", "--slow-from", "0.3", "--nvtx"),
    ("straggler-late", "--steps", "120", "--slow-factor", "1.12", "--noise", "4"),
    ("straggler-late", "--ranks", "2", "--steps", "60"),
    ("straggler-kernels", "--ranks", "4", "--slow-rank", "2", "--seed", "7", "--noise", "3"),
    ("straggler-intermittent", "--slow-every", "9", "--slow-for", "1"),
    ("straggler-launches", "--steps", "80", "--slow-from", "0.5"),
    ("straggler-input", "--ranks-per-host", "4"),
    ("checkpoint", "--ranks", "3", "--steps", "90"),
    ("communication-bound", "--bucket", "400"),
    ("memory-leak", "--leak", "16", "--steps", "80"),
    ("pipeline", "--microbatches", "4"),
    ("two-speeds", "--seed", "3", "--noise", "2"),
    ("two-speeds", "--slow-from", "0.6", "--slow-factor", "2", "--slow-every", "17", "--slow-for", "2"),
)
# A report on them needs these.
OPTIONS = {"low-mfu": ("--params", "550e6", "--tokens-per-step", "8192")}
CELL = 0.0006  # what packing may change


class Figures(harness.EndToEndTest):

    def record(self, scenario, *options):
        out = self.path(f"{scenario}-{len(os.listdir(self.path()))}")
        subprocess.run([GPUPROBE, "simulate", "--scenario", scenario, "--out", out, *options], check=True, capture_output=True, timeout=120)
        run = recorded_run.RecordedRun(out, report_options=OPTIONS.get(scenario, ()))
        self.addCleanup(run.close)
        return run

    def check(self, scenario, *options):
        with self.subTest(scenario=scenario, options=options):
            run = self.record(scenario, *options)
            for finding in run.report["findings"]:
                self.assertEqual(finding_figures.wrong(run, finding), [], finding)
            self.check_subjects(run)
            self.check_cells(run)
            run.close()
            shutil.rmtree(run.folder)

    def check_subjects(self, run):
        """Steps and ranks that a finding is about exist."""
        for finding in run.report["findings"]:
            about = finding["about"]
            self.assertLessEqual({*about["steps"], about["first_step"], about["last_step"]} - {None}, run.numbers, finding)
            self.assertLessEqual(set(about["ranks"]), {rank["rank"] for rank in run.report["ranks"]}, finding)

    def check_cells(self, run):
        """The heat map's cells, and the bars of the steps, are the steps' own."""
        grid = run.page["steps"]
        every = {(row["rank"], row["step"]): row for row in run.rows("SELECT * FROM step")}
        rank_of = [rank["rank"] for rank in run.report["ranks"]]
        self.assertEqual(grid["steps_per_column"], 1)
        for key in ("total_ns", "compute_ns", "exposed_comm_ns", "copy_ns"):
            cells = run.cells(key)
            self.assertEqual(len(cells), len(every))
            for (row, column), value in cells.items():
                true = every[rank_of[row], grid["first_step"] + column][key]
                self.assertAlmostEqual(value, true, delta=CELL * true + 1, msg=(key, row, column))
        if run.report["trust"]["lost"].get("buffer_pool_empty"):
            return  # what was lost is estimated there
        for (row, column), value in run.cells("caused_wait_ns").items():
            true = run.caused_waits.get((rank_of[row], grid["first_step"] + column), 0)
            self.assertAlmostEqual(value, true, delta=0.01 * true + 5_000, msg=("caused wait", row, column))

    def test_every_figure_follows_from_the_records(self):
        listed = subprocess.run([GPUPROBE, "simulate", "--list"], check=True, capture_output=True, text=True).stdout
        for scenario in (line.split()[0] for line in listed.splitlines()):
            self.check(scenario, *SMALLER.get(scenario, ()))

    def test_windows_and_sizes(self):
        for variant in VARIANTS:
            self.check(*variant)

    def test_a_wrong_figure_is_noticed(self):
        """Each number of a text, changed by a tenth, or a step that the run does not have."""
        for scenario in ("straggler-late", "checkpoint", "two-speeds", "slow-network", "pipeline", "memory-leak", "hang-missing-rank"):
            run = self.record(scenario)
            for finding in run.report["findings"]:
                for key in ("statement", "evidence"):
                    for match in re.finditer(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?= (?:ns|us|ms|s|%|MiB|GiB|GB/s)\b|x\b| of every| of \d+ steps)", finding[key]):
                        if "overlap efficiency" in finding[key][:match.start()][-40:] and match[0] == "100":
                            continue  # what "100 %" would mean
                        number = float(match[0].replace(",", ""))
                        digits = len(match[0].partition(".")[2])
                        false = finding[key][:match.start()] + f"{1.1 * number + 2 * 10 ** -digits:.{digits}f}" + finding[key][match.end():]
                        self.assertNotEqual(finding_figures.wrong(run, {**finding, key: false}), [], false)

    def test_what_is_not_declared_is_noticed(self):
        run = self.record("straggler-late")
        finding, = run.report["findings"]
        self.assertEqual(finding_figures.wrong(run, finding), [])
        self.assertEqual(len(finding_figures.wrong(run, {**finding, "id": "straggler-tired"})), 1)
        for false in ({"evidence": finding["evidence"] + " It weighs 3 kg."}, {"cost_ns_per_step": 1.1 * finding["cost_ns_per_step"]}):
            self.assertNotEqual(finding_figures.wrong(run, {**finding, **false}), [])


if __name__ == "__main__":
    harness.main()
