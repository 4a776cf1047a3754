"""The pictures beside findings that only real programs have: drawn from the run's own figures, in the distribution's Chromium.

It needs Chromium and the environment of scripts/browser-env.sh, and is skipped without them.
"""
import os
import signal

import browser
import harness
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, read_report, wait_until

STANDSTILLS = os.path.join(BUILD, "tests", "e2e", "standstills")
HANG_CAUSES = os.path.join(BUILD, "tests", "e2e", "hang_causes")
DEVICES = os.path.join(BUILD, "tests", "e2e", "strangers_devices")
NODE = {"GPUSIM_KERNELS": "MatmulForward=200us;MatmulBackward=400us;AdamUpdate=200us;GemmForward=800us;GemmBackward=1500us;GatherLoss=4ms;FusedAdam=4ms",
        "GPUSIM_LINK": "alpha=10us,beta=100GB/s"}

class PagePictures(browser.WithChromium, harness.EndToEndTest):

    def record(self, *command, ranks=1, until=None):
        """The report of a program, which is ended once `until` is said."""
        out = self.path(f"run-{len(self._programs)}")
        launch = [LAUNCH_RANKS, str(ranks)] if ranks > 1 else []
        program = self.start([GPUPROBE, "run", "--out", out, "--hang-after", "2", "--", *launch, *command], env=NODE, devices=4)
        if until:
            wait_until(lambda: until in program.so_far() or not program.alive(), until)
            program.signal(signal.SIGTERM)
        program.wait()
        return out, read_report(out)

    def picture(self, out, report, finding):
        index = [f["id"] for f in report["findings"]].index(finding)
        page, troubles = self.chromium.page(self, "file:")
        page.goto("file://" + os.path.join(out, "report.html"))
        page.wait_for_selector("html[data-ready=true]")
        self.assertEqual(troubles, [])
        picture = page.locator(".finding").nth(index).locator(".picture svg")
        self.assertEqual(picture.count(), 1, f"{finding} has no picture")
        self.assertEqual(picture.evaluate("e => [...e.querySelectorAll('text')].filter(t => t.getBoundingClientRect().right > e.getBoundingClientRect().right + 1).length"), 0)
        return picture.get_attribute("aria-label"), picture.locator("rect.late").count()

    def test_who_did_not_create_the_communicator(self):
        out, report = self.record(HANG_CAUSES, "no-split", ranks=4, until=b"HANG")
        self.assertEqual(self.picture(out, report, "hang-creation"), ("Ranks at fault: 3, of 4", 1))

    def test_since_when_a_job_does_nothing(self):
        for what, finding in (("lock", "hang-no-work"), ("setup", "job-idle")):
            with self.subTest(finding):
                out, report = self.record(STANDSTILLS, what, ranks=2, until=b"HANG" if what == "lock" else b"IDLE")
                still = report["hangs"][0]["waiting_ns"]
                worked = report["conditions"]["duration_ns"] - still
                label, late = self.picture(out, report, finding)
                self.assertEqual((label, late), (f"{browser.duration(worked)} with GPU work, then none for {browser.duration(still)}", 1))

    def test_gpus_of_one_process(self):
        out, report = self.record(DEVICES, "gather")
        label, late = self.picture(out, report, "gpu-imbalance")
        self.assertTrue(label.startswith("Compute per step, by GPU: "), label)
        self.assertEqual((label.count("ms"), late), (4, 1))
        out, report = self.record(DEVICES, "one-used", "512")
        label, late = self.picture(out, report, "gpu-idle")
        self.assertEqual((label, late), ("Memory on GPUs where nothing computes: GPU 1 516 MiB, GPU 2 516 MiB, GPU 3 516 MiB", 3))
        out, report = self.record(DEVICES, "one-used", "16")
        self.assertEqual(self.picture(out, report, "gpu-unused"), ("Unused of 4 GPUs: 1, 2, 3", 3))


if __name__ == "__main__":
    harness.main()
