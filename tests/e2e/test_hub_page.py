"""The page of a hub, in Chromium: its jobs while they run and afterwards, each with its own page."""
import json
import os
import signal
import unittest

import browser
import harness
import local_hub
from harness import GPUPROBE
from local_hub import SECRET

TOKEN = "a-token-of-the-page-of-a-hub"
NAME = "<b>127.0.0.1:29500</b> & \"job\""


class HubPage(browser.WithChromium, local_hub.LocalHub):

    def start_job(self, *arguments, **env):
        """Its name is no HTML."""
        return super().start_job(NAME, *arguments, **env)

    def check(self, page, troubles):
        self.assertEqual(troubles, [])
        found = browser.Axe().run(page).response["violations"]
        self.assertEqual([(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in found], [])
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"), 0, "the page scrolls sideways")

    def cells(self, page):
        return [cell.inner_text() for cell in page.locator("tbody tr").first.locator("th, td").all()]

    def test_a_job_while_it_runs_and_when_it_is_over(self):
        hub = self.start_hub()
        page, troubles = self.chromium.page(self, self.url)
        page.goto(self.url)
        self.assertIn("No job yet.", page.locator("main").inner_text())
        self.check(page, troubles)
        job = self.start_job("--steps", "100000", GPUSIM_SLOW="rank=1,factor=4")
        row = harness.wait_until(lambda: (jobs := self.jobs()) and jobs[0]["step_ns"] and jobs[0]["ranks"] == 2 and jobs[0]["finding"] and jobs[0], "steps in the list")
        self.assertEqual((row["state"], row["page"], row["ended_ns"], len(row["hosts"])), ("running", None, None, 1))
        self.assertRegex(row["finding"], r"^rank 1 is late: the others wait [\d.]+ [mu]s per step for it$")
        self.assertIn(NAME, row["name"])
        # The list renews itself.
        page.locator("tbody tr").wait_for()
        harness.wait_until(lambda: self.cells(page)[2] == "running" and self.cells(page)[5] == "2", "the job on the page")
        self.assertIn(NAME, self.cells(page)[0])
        self.check(page, troubles)
        for pid in harness.processes_of_session(job.pid):
            if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train"):
                os.kill(pid, signal.SIGTERM)
        job.wait(harness.LIMIT_S)
        row = harness.wait_until(lambda: (jobs := self.jobs()) and jobs[0]["state"] == "over" and jobs[0], "the end of the job")
        report = json.loads(self.ask(row["page"] + "report.json")[1])
        self.assertEqual((row["finding"], row["step_ns"], row["ranks"]), (report["findings"][0]["statement"], report["steps"]["time_ns"]["mean"], 2))
        self.assertGreater(row["ended_ns"], row["begun_ns"])
        harness.wait_until(lambda: self.cells(page)[2] == "over", "the end on the page")
        self.assertEqual(self.cells(page)[6], browser.duration(row["step_ns"]))
        for width, scheme in ((1360, "light"), (1360, "dark"), (360, "light"), (360, "dark")):
            narrow, of_narrow = self.chromium.page(self, self.url, width=width, scheme=scheme)
            narrow.goto(self.url)
            self.check(narrow, of_narrow)
        page.locator("tbody th a").first.click()
        page.locator("#findings .finding").first.wait_for()
        self.assertEqual(page.locator(".finding .choose").first.inner_text(), row["finding"])
        self.assertEqual(troubles, [])
        # What only several jobs show.
        self.assertEqual((row["attempt"], [finding["id"] for finding in row["findings"]]), (1, [finding["id"] for finding in report["findings"] if finding["severity"] != "info"]))
        late = next(finding for finding in row["findings"] if finding["id"] == "straggler-slow-gpu")
        self.assertEqual(late["gpu_uuids"], [report["conditions"]["devices"][1]["uuid"]])
        told = next(finding for finding in report["findings"] if finding["id"] == "straggler-slow-gpu")
        steps = report["steps"]["count"] - (told["about"]["first_step"] or 0)
        self.assertAlmostEqual(late["lost_gpu_seconds"], told["cost_ns_per_step"] * 1e-9 * steps * 2, delta=1e-6)
        self.start_job("--steps", "200", GPUSIM_SLOW="rank=1,factor=4").wait(harness.LIMIT_S)
        harness.wait_until(lambda: [job["state"] for job in self.jobs()] == ["over", "over"], "the end of the second job")
        everything = json.loads(self.ask("/api/jobs")[1])
        self.assertEqual([job["attempt"] for job in everything["jobs"]], [2, 1])
        (offender,), lost = everything["repeat_offenders"], {cause["finding"]: cause for cause in everything["lost"]}
        self.assertEqual((offender["gpu_uuid"], offender["jobs"], offender["host"]), (late["gpu_uuids"][0], 2, row["hosts"][0]))
        self.assertAlmostEqual(lost["straggler-slow-gpu"]["lost_gpu_seconds"],
                               sum(finding["lost_gpu_seconds"] for job in everything["jobs"] for finding in job["findings"] if finding["id"] == "straggler-slow-gpu"), delta=1e-6)
        self.assertAlmostEqual(everything["gpu_seconds"], sum(job["gpu_seconds"] for job in everything["jobs"]), delta=1e-6)
        self.assertGreater(everything["jobs"][1]["gpu_seconds"], late["lost_gpu_seconds"])
        shown = self.run_program([GPUPROBE, "jobs", self.url]).stdout.decode()
        self.assertIn("GPUs at fault in several jobs", shown)
        self.assertIn(offender["gpu_uuid"], shown)
        self.assertIn("GPU time lost, by cause", shown)
        self.assertEqual(json.loads(self.run_program([GPUPROBE, "jobs", "--json", self.url]).stdout)["lost"], everything["lost"])
        for width, scheme in ((1360, "light"), (360, "dark")):
            both, of_both = self.chromium.page(self, self.url, width=width, scheme=scheme)
            both.goto(self.url)
            self.assertEqual([heading.inner_text() for heading in both.locator("h2").all()], ["Jobs", "GPUs at fault in several jobs", "GPU time lost, by cause"])
            self.check(both, of_both)
            # The record of each GPU and host.
            both.locator("nav a", has_text="Hosts and GPUs").click()
            both.wait_for_url(self.url + "/hosts")
            self.assertEqual([heading.inner_text() for heading in both.locator("h2").all()], ["GPUs", "Hosts"])
            self.assertEqual(self.cells(both)[:3], [offender["gpu_uuid"], row["hosts"][0], "2 of 2"])
            self.check(both, of_both)
            # Attempts side by side.
            both.goto(self.url)
            both.locator("tbody td a", has_text="2").first.click()
            both.locator("#attempt-2").wait_for()
            self.assertEqual([heading.inner_text() for heading in both.locator("h2").all()], ["Attempts", "Attempt 2 against 1"])
            self.assertIn(NAME, both.locator("#count").inner_text())
            self.assertRegex(both.locator("section p").nth(1).inner_text(), r"^A is attempt 1, B attempt 2\. ")
            self.check(both, of_both)
            # A kernel's name may be long, and has no spaces.
            both.evaluate("for (const e of document.querySelectorAll('#count, section p')) e.textContent += ' ' + 'kernel_'.repeat(40)")
            both.evaluate("document.querySelector('section').insertAdjacentHTML('beforeend', '<ul><li>' + 'kernel_'.repeat(40) + '</li></ul>')")
            self.check(both, of_both)
        # Sorted and searched.
        both.goto(self.url + "/?sort=lost")
        self.assertEqual(both.locator("th[aria-sort]").inner_text(), "lost \u2193")
        costs = [max(finding["lost_gpu_seconds"] for finding in job["findings"]) for job in everything["jobs"]]
        self.assertEqual([cell.inner_text().split()[0] for cell in both.locator("#jobs ~ .wide tbody td:first-of-type").all()], ["2", "1"] if costs[0] > costs[1] else ["1", "2"])
        both.locator("input[type=search]").fill("JOB nowhere")
        both.locator("form button").click()
        harness.wait_until(lambda: "No job has these words" in both.locator("main").inner_text(), f"an empty list at {both.url}: {of_both}")
        self.assertIn("words=JOB+nowhere", both.url)
        both.goto(self.url + "/?words=\"job\"+over&sort=step")
        self.assertEqual(both.locator("#jobs ~ .wide tbody tr").count(), 2)
        both.goto(self.url + "/?words=%3Cscript%3E&sort=%22%3E%3Cscript%3E")
        self.check(both, of_both)
        # Another hub knows what was reported before.
        before = self.jobs()
        hub.signal(signal.SIGTERM)
        hub.wait(harness.LIMIT_S)
        hub = self.start_hub()
        self.assertEqual(harness.wait_until(self.jobs, "the list of another hub"), before)

    def test_who_may_read(self):
        self.start_hub(GPUPROBE_HTTP_TOKEN=TOKEN)
        self.assertEqual([self.ask(path)[0] for path in ("/", "/api/jobs", "/jobs/x/", "/healthz")], [401, 401, 401, 200])
        self.assertEqual(self.ask("/api/jobs", Authorization=f"Bearer {TOKEN}")[0], 200)
        page, troubles = self.chromium.page(self, self.url)
        page.goto(f"{self.url}/?token={TOKEN}")
        self.assertIn("No job yet.", page.locator("main").inner_text())
        self.assertNotIn("token", page.url)
        self.assertEqual(troubles, [])

    def test_what_it_refuses(self):
        refused = self.run_program([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0", "--out", self.path("jobs")], env={"GPUPROBE_HUB_TOKEN": SECRET})
        self.assertEqual(refused.returncode, 1)
        self.assertIn("give a token (--http-token FILE or GPUPROBE_HTTP_TOKEN)", refused.stderr.decode())
        self.start_hub()
        for path, status in (("/jobs/../../etc/passwd", 404), ("/jobs/%2e%2e/x", 404), ("/nothing", 404)):
            self.assertEqual(self.ask(path)[0], status, path)
        self.assertEqual(self.ask("/", Host="evil.example")[0], 403)


if __name__ == "__main__":
    unittest.main()
