"""The figures of the pictures beside findings, as the page draws them, are those of the run's records and agree with the sentences beside them.

It needs Chromium and the environment of scripts/browser-env.sh, and is skipped without them.
"""
import os
import re
import subprocess

import browser
import harness
import recorded_run
from finding_formulas import value_of
from harness import GPUPROBE
from recorded_run import mean, median_of_others

STRAGGLERS = (("straggler-kernels",), ("straggler-late", "--steps", "80"), ("straggler-work",), ("straggler-copies",), ("straggler-intermittent",), ("checkpoint",),
              ("straggler-late", "--ranks", "16", "--steps", "60"))
PACKED = 0.00025  # what packing may change of a cell
BARS = r"(\d+) (-?[\d.]+ (?:ns|us|ms|s))"


class FigurePictures(browser.WithChromium, harness.EndToEndTest):

    def record(self, scenario, *options):
        out = self.path(f"{scenario}-{len(os.listdir(self.path()))}")
        subprocess.run([GPUPROBE, "simulate", "--scenario", scenario, "--out", out, *options], check=True, capture_output=True, timeout=120)
        run = recorded_run.RecordedRun(out)
        self.addCleanup(run.close)
        return run

    def open(self, run):
        page, troubles = self.chromium.page(self, "file:")
        page.goto("file://" + os.path.join(run.folder, "report.html"))
        page.wait_for_selector("html[data-ready=true]")
        self.assertEqual(troubles, [])
        return page

    def pictures(self, page):
        """Of each finding: what its picture says to those who cannot see it."""
        return [card.locator(".picture svg").get_attribute("aria-label") if card.locator(".picture svg").count() else "" for card in page.locator(".finding").all()]

    def bars(self, label):
        return {int(rank): value_of(words) for rank, words in re.findall(BARS, label.partition(": ")[2])}

    def assert_shows(self, shown, true, message, relative=0, cells_ns=0):
        value, half = shown
        self.assertAlmostEqual(value, true, delta=1.0001 * half + relative * abs(true) + PACKED * cells_ns + 1, msg=message)

    def test_a_straggler_costs_what_its_picture_shows(self):
        for scenario in STRAGGLERS:
            with self.subTest(scenario=scenario):
                run = self.record(*scenario)
                finding = run.report["findings"][0]
                rank, = finding["about"]["ranks"]
                since = finding["about"]["first_step"]
                label = self.pictures(self.open(run))[0]
                self.assertTrue(label.startswith("Exposed wait caused per step" + ("" if since is None else f" since step {since}") + ": "), label)
                for other, shown in self.bars(label).items():
                    late_by = run.late_by(other)
                    self.assert_shows(shown, mean(ns for step, ns in late_by.items() if step >= (since or 0)), label, relative=0.002,
                                      cells_ns=2 * run.mean("exposed_comm_ns", steps=[step for step in run.by_step if step >= (since or 0)]))
                # The same as the sentence says, but for what single steps are longer by chance.
                self.assert_shows(self.bars(label)[rank], finding["cost_ns_per_step"], (label, finding["statement"]), relative=0.05)

    def test_parts_of_the_step(self):
        for scenario in (("healthy",), ("communication-bound",), ("input-bound",), ("launch-bound", "--steps", "20"), ("host-pause",), ("pageable-copies",)):
            with self.subTest(scenario=scenario):
                run = self.record(*scenario)
                labels = [label for label in self.pictures(self.open(run)) if not label.startswith("Step time over the run")]
                self.assertNotEqual(labels, [])
                for label in labels:
                    words = re.fullmatch(r"A mean step of (.+): compute (.+), exposed communication (.+), copies (.+), idle (.+)", label)
                    for shown, part in zip(words.groups(), ("total_ns", "compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns"), strict=True):
                        self.assert_shows(value_of(shown), run.mean(part), (label, part))

    def test_stages_and_groups(self):
        for scenario in ("pipeline-slow-stage", "two-speeds"):
            with self.subTest(scenario):
                run = self.record(scenario)
                page = self.open(run)
                label = self.pictures(page)[0]
                self.assertTrue(label.startswith("Compute per step, by rank: "), label)
                for rank, shown in self.bars(label).items():
                    self.assert_shows(shown, run.mean("compute_ns", rank=rank), label)
                # A step in the list is as long as that of a rank, wherever the others begin theirs.
                for name in page.locator("#timeline select option").all_inner_texts():
                    step, length = re.fullmatch(r"step (\d+) .*, ([\d.]+ \w+)", name).groups()
                    self.assert_shows(value_of(length), max(row["total_ns"] for row in run.rows("SELECT total_ns FROM step WHERE step = ?", int(step))), name)
        run = self.record("pipeline-slow-stage")
        finding = run.report["findings"][0]
        rank, = finding["about"]["ranks"]
        bars = self.bars(self.pictures(self.open(run))[0])
        more, = re.findall(r"its stage takes ([\d.]+ ms) longer", finding["statement"])
        self.assert_shows(value_of(more), bars[rank][0] - median_of_others({other: value for other, (value, _) in bars.items()}, rank), finding, relative=0.01)


if __name__ == "__main__":
    harness.main()
