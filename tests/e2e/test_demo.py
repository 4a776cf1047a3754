"""scripts/demo.sh ends with a screen that answers the questions it is there for."""
import os
import re
import shutil

import harness
from harness import BUILD, SOURCE


class Demo(harness.EndToEndTest):

    def test_screen(self):
        if os.path.realpath(BUILD) != os.path.realpath(os.path.join(SOURCE, "build", "release")):
            self.skipTest("the demo uses build/release, and this is another build")
        finished = self.run_program([os.path.join(SOURCE, "scripts", "demo.sh"), "--sim"], limit=600,
                                    env={"LD_LIBRARY_PATH": None, "GPUSIM_DEVICES": None, "HOME": os.environ.get("HOME")})
        self.assertEqual(finished.returncode, 0, str(finished))
        screen = (finished.stdout + finished.stderr).decode()
        for wanted in ("NVIDIA L40S", "4 ranks", "AllReduce", "busbw", "GB/s", "forward", "backward", "optimizer", "MiB", "gpuprobe-runs/"):
            self.assertIn(wanted, screen)
        # The demo's last rank is 1.3 x as slow as the rest, and that is the first thing said.
        self.assertRegex(screen, r"\n 1  Rank 3 makes the other 3 wait: \d+\.\d+ ms a step each; the step is \d+\.\d+ ms longer for it, \d+\.\d %\.\n +Its kernels take 1\.30 x as long")
        # Memory is made of what the job says it holds.
        told = re.search(r"holds ([\d.]+) MiB of weights, ([\d.]+) of gradients, ([\d.]+) of Adam's state, ([\d.]+) of other data", screen)
        self.assertIsNotNone(told, screen)
        for what, mib in zip(("weights", "gradients", "optimizer state (Adam)", "other, allocated before the first step"), told.groups()):
            shown = re.search(rf"(?m)^ {re.escape(what)} +([\d.]+) MiB", screen)
            self.assertIsNotNone(shown, f"{what}\n{screen}")
            self.assertAlmostEqual(float(shown.group(1)), float(mib), delta=0.05 * float(mib), msg=what)
        self.assertRegex(screen, r"(?i)none lost|0 records lost")
        self.assertNotRegex(screen, r"\bnan\b|\binf\b|%[dsf]\b")
        out = os.path.join(SOURCE, re.search(r"gpuprobe-runs/[0-9TZ]+-demo", screen).group(0))
        self.assertTrue(os.path.exists(os.path.join(out, "report.json")))
        shutil.rmtree(out)


if __name__ == "__main__":
    harness.main()
