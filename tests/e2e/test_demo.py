"""scripts/demo.sh ends with a screen that answers the questions it is there for, and each of its figures is true."""
import json
import os
import re
import shutil

import demo_figures
import harness
from demo_figures import BYTES, nanoseconds, quantile, union
from harness import BUILD, SOURCE

TIME = r"([\d.,]+) (ns|us|ms|s)"
LAST_RANK = 3


class Demo(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        if os.path.realpath(BUILD) != os.path.realpath(os.path.join(SOURCE, "build", "release")):
            self.skipTest("the demo uses build/release, and this is another build")

    def test_screen(self):
        truth_folder = self.path("demo-truth")
        os.mkdir(truth_folder)
        finished = self.run_program([os.path.join(SOURCE, "scripts", "demo.sh"), "--sim"], limit=600,
                                    env={"LD_LIBRARY_PATH": None, "GPUSIM_DEVICES": None, "HOME": os.environ.get("HOME"), "GPUSIM_TRUTH": truth_folder})
        self.assertEqual(finished.returncode, 0, str(finished))
        screen = (finished.stdout + finished.stderr).decode()
        for wanted in ("NVIDIA L40S", "4 ranks", "AllReduce", "busbw", "GB/s", "forward", "backward", "optimizer", "MiB", "gpuprobe-runs/"):
            self.assertIn(wanted, screen)
        # The demo's last rank is 1.3 x as slow as the rest, and that is the first thing said.
        self.assertRegex(screen, r"\n 1  Rank 3 makes the other 3 wait: \d+\.\d+ ms a step each; the step is \d+\.\d+ ms longer for it, \d+\.\d %\.\n +Its kernels take 1\.30 x as long")
        self.assertRegex(screen, r"(?i)none lost|0 records lost")
        self.assertNotRegex(screen, r"\bnan\b|\binf\b|%[dsf]\b")
        out = os.path.join(SOURCE, re.search(r"gpuprobe-runs/[0-9TZ]+-demo", screen).group(0))
        self.addCleanup(shutil.rmtree, out)
        self.assertTrue(os.path.exists(os.path.join(out, "report.json")))
        records = []
        for name in os.listdir(truth_folder):
            with open(os.path.join(truth_folder, name), encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        self.figures = demo_figures.Truth(records)
        for check in (self.check_slow_rank, self.check_memory, self.check_kernels, self.check_classes, self.check_ranks, self.check_collectives, self.check_steps):
            with self.subTest(check.__name__):
                check(screen)

    def row(self, screen, pattern):
        found = re.search(rf"(?m)^ {pattern}", screen)
        self.assertIsNotNone(found, f"{pattern}\n{screen}")
        return found.groups()

    def near(self, shown, true, share=0.006, least=1):
        """A figure of three digits."""
        self.assertAlmostEqual(shown, true, delta=max(share * abs(true), least))

    def check_slow_rank(self, _):
        for kernel in ("LinearForward", "LinearBackwardWeight", "AdamStep"):
            self.near(self.figures.slowdown(LAST_RANK, kernel), 1.30, least=0.005)

    def check_memory(self, screen):
        told = re.search(r"holds ([\d.]+) MiB of weights, ([\d.]+) of gradients, ([\d.]+) of Adam's state, ([\d.]+) of other data", screen)
        self.assertIsNotNone(told, screen)
        for what, mib in zip(("weights", "gradients", "optimizer state (Adam)", "other, allocated before the first step"), told.groups()):
            shown, = self.row(screen, rf"{re.escape(what)} +([\d.]+) MiB")
            self.near(float(shown), float(mib), share=0.05, least=0.01)

    def check_times(self, screen, name, times, all_ns):
        calls, total, total_unit, share, mean, mean_unit = self.row(screen, rf"{re.escape(name)} +([\d,]+) +{TIME} +([\d.]+) % +{TIME}")
        self.assertEqual(int(calls.replace(",", "")), len(times), name)
        self.near(nanoseconds(total, total_unit), sum(times))
        self.near(float(share), 100 * sum(times) / all_ns, least=0.06)
        self.near(nanoseconds(mean, mean_unit), sum(times) / len(times))

    def check_kernels(self, screen):
        every = self.figures.by_kernel()
        all_ns = sum(sum(times) for times in every.values())
        table = screen[screen.index("\n kernel "):screen.index("\n class ")]
        for name, times in sorted(every.items(), key=lambda item: -sum(item[1]))[:10]:
            self.check_times(table, name, times, all_ns)
            quantiles = self.row(table, rf"{re.escape(name)} .*? % +{TIME} +{TIME} +{TIME} +{TIME}")[2:]
            for q, number, unit in zip((0.5, 0.95, 0.99), quantiles[::2], quantiles[1::2]):
                self.near(nanoseconds(number, unit), quantile(times, q), share=0.02)

    def check_classes(self, screen):
        every = self.figures.by_class()
        all_ns = sum(sum(times) for times in every.values())
        table = screen[screen.index("\n class "):]
        for name, times in every.items():
            self.check_times(table, name, times, all_ns)

    def check_ranks(self, screen):
        table = screen[screen.index("\n rank  kernels "):screen.index("\n memory at its peak")]
        for rank, records in self.figures.ranks.items():
            kernels, busy, unit, h2d, peak, peak_unit = self.row(table, rf"{rank} +([\d,]+) +{TIME} +[\d.]+ % +([\d.]+) GB/s .*?([\d.]+) (MiB|GiB) ")
            self.assertEqual(int(kernels.replace(",", "")), len(records["kernel"]))
            self.near(nanoseconds(busy, unit), union((k["start_ns"], k["end_ns"]) for k in records["kernel"]))
            self.near(float(h2d), self.figures.copy_rate(rank, "h2d"), least=0.1)
            self.near(float(peak) * BYTES[peak_unit], self.figures.memory_peak(rank))

    def check_collectives(self, screen):
        table = screen[screen.index("\n collective "):screen.index("\n kernel ")]
        for (op, size), (calls, times) in self.figures.plans().items():
            shown, number, unit, p50, p50_unit, p95, p95_unit = self.row(table, rf"{op}(?: x\d+ fused)? +[0-9a-f]{{8}} +4 +([\d,]+) +([\d.]+) (B|KiB|MiB) +{TIME} +{TIME}")
            self.assertEqual(int(shown.replace(",", "")), calls, op)
            self.near(float(number) * BYTES[unit], size)
            self.near(nanoseconds(p50, p50_unit), quantile(times, 0.5), share=0.02)
            self.near(nanoseconds(p95, p95_unit), quantile(times, 0.95), share=0.02)

    def check_steps(self, screen):
        """Where a step begins and ends is the analysis' to say: within 3 % of what lies between two optimizers."""
        table = screen[screen.index("\n step  "):]
        true = self.figures.steps()
        for name, key in (("total", "total"), ("  compute", "compute"), ("  exposed comm", "exposed")):
            mean, unit = self.row(table, rf"{name} +{TIME}")
            self.near(nanoseconds(mean, unit), true[key], share=0.03)


if __name__ == "__main__":
    harness.main()
