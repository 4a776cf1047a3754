"""A job of 64, 256 and 1,024 ranks through a real collector: everything that is held of the scenario at eight ranks holds at these, and what the
collector needs for a rank does not grow with their number. CPU time is `scripts/bench.sh --scale`'s: a busy machine would decide about it here.
"""
import json
import os
import shutil
import subprocess

from harness import GPUPROBE, EndToEndTest, main
from test_scenarios import HELD, NEVER_WHEN_HEALTHY, Run

SCENARIO = "straggler-at-scale"
STEPS = 24
RANKS = (64, 256, 1024)
MOST_MIB = 1024  # of a collector of 1,024 ranks


class Scale(EndToEndTest):
    def test_the_straggler_among_1024_ranks_is_named_and_memory_grows_linearly(self):
        mib_a_rank = {}
        for ranks in RANKS:
            run = Run(self, SCENARIO, ("--ranks", str(ranks), "--steps", str(STEPS)))
            for check, scenarios in HELD.items():
                if SCENARIO in scenarios:
                    with self.subTest(f"{ranks} ranks: {check.__name__}"):
                        check(self, run)
            self.assertEqual([s["rank"] for s in run.report["stragglers"]], [run.truth["slow"]["rank"]], ranks)
            # The screen stays a screen: the first finding names the rank, and the table shows the rank that stands out.
            self.assertRegex(run.text, rf"(?m)^ 1  The other .* for rank {run.truth['slow']['rank']}\b")
            self.assertLess(run.text.count("\n"), 120)
            mib_a_rank[ranks] = run.used_mib / ranks
            self.assertLess(run.used_mib, MOST_MIB)
            shutil.rmtree(run.folder)
        # What does not depend on the number of ranks is paid once: more ranks are cheaper, each, and never dearer.
        self.assertLess(mib_a_rank[1024], 1.1 * mib_a_rank[256], mib_a_rank)
        self.assertLess(mib_a_rank[256], 1.1 * mib_a_rank[64], mib_a_rank)

    def test_a_report_of_1024_ranks_from_the_log_is_the_live_one(self):
        run = Run(self, SCENARIO, ("--ranks", "1024", "--steps", "12"))
        shown = subprocess.run([GPUPROBE, "report", os.path.join(run.folder, "run"), "--json", "--ranks"], check=True, capture_output=True, text=True, timeout=120)
        again = json.loads(shown.stdout)
        self.assertLess(os.path.getsize(os.path.join(run.folder, "run", "report.html")), 20e6)
        for part in ("steps", "ranks", "stragglers", "communication", "findings"):
            self.assertEqual(again[part], run.report[part], part)

    def test_a_healthy_job_of_1024_ranks_is_healthy(self):
        run = Run(self, "healthy", ("--ranks", "1024", "--steps", str(STEPS)))
        false = [i for i in run.finding_ids() if i.startswith(NEVER_WHEN_HEALTHY)]
        self.assertEqual(false, [], run.report["findings"])


if __name__ == "__main__":
    main()
