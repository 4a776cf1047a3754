"""Jobs of more than a thousand ranks, as a hub has them: rolled up by hosts of which all but one are alike."""
import glob
import json
import os
import re
import signal
import unittest
import urllib.request

import harness
from harness import BUILD, GPUPROBE

MANY_MIRRORS = os.path.join(BUILD, "tests/collector/gpuprobe_many_mirrors")
SECRET = "a-secret-of-hosts-and-their-hub"

HOSTS = 130
RANKS = 8 * HOSTS
STEPS = 12


class ManyRanks(harness.EndToEndTest):

    def slow(self, hosts):
        """The fourth rank of the job's second host, which stands in the middle of the others."""
        return 8 * (hosts // 2) + 3

    def simulate(self, hosts, out, scenario="straggler-kernels", *options):
        done = self.run_program([GPUPROBE, "simulate", "--scenario", scenario, "--ranks", "16", "--slow-rank", "11", "--steps", str(STEPS), *options, "--hosts", str(hosts), "--out", out], limit=240)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def check(self, report, hosts):
        self.assertEqual([rank["rank"] for rank in report["ranks"]], list(range(8 * hosts)))
        self.assertEqual({rank["steps"]["count"] for rank in report["ranks"]}, {STEPS})
        slow = self.slow(hosts)
        first = report["findings"][0]
        self.assertEqual((first["id"], first["about"]["ranks"]), ("straggler-slow-gpu", [slow]))
        self.assertRegex(first["evidence"], r"1\.3\dx slower than the same kernels on the other ranks", "its kernels are known")

    def report(self, *run):
        done = self.run_program([GPUPROBE, "report", "--json", *run], limit=240)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_detail_is_that_of_the_ranks_that_matter(self):
        run = self.path("jobs", "20261128T120000Z-many")
        self.simulate(HOSTS, run)
        report = self.report(run)
        self.check(report, HOSTS)
        without = report["trust"]["ranks_without_detail"]
        self.assertGreater(without, 0)
        self.assertGreaterEqual(RANKS - without, 512)
        part, = (finding for finding in report["findings"] if finding["id"] == "ranks-in-part")
        self.assertIn(f"{RANKS - without} of the 1,040 ranks", part["statement"])
        self.assertEqual(sum(rank["kernels"]["count"] > 0 and rank["kernels"]["busy_ns"] == 0 for rank in report["ranks"]), without)
        # People see no zero where nothing is known.
        text = self.run_program([GPUPROBE, "report", run], limit=240).stdout.decode()
        self.assertNotRegex(text, r"\b0 ns +0\.0 %")
        self.assertIn(f"/{self.slow(HOSTS)} ", text)
        self.over_http(run, report)
        self.watch_and_report(run, report)

    def watch_and_report(self, run, expected):
        """A hub that goes on with the job, and reports it as its hosts have ended."""
        with open(os.path.join(run, "job.txt"), "w", encoding="utf-8") as file:
            file.write("many\n1\n")
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--out", self.path("jobs")], env={"GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder})
        harness.wait_until(lambda: b"gpuprobe: over:" in hub.so_far(), "the report", limit=120)
        with open(os.path.join(run, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        self.check(report, HOSTS)
        self.assertEqual(report["trust"]["ranks_without_detail"], expected["trust"]["ranks_without_detail"])
        self.assertEqual(report["ranks"], expected["ranks"])

    def over_http(self, run, expected):
        """The same from all of its hosts at once, each of which posts what it has."""
        env = {"GPUPROBE_HUB_TOKEN": SECRET, "HOME": self.folder}
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", self.path("posted")], env=env)
        harness.wait_until(lambda: b"jobs: http://" in hub.so_far(), "the hub")
        said = hub.so_far().decode()
        hosts = self.start([MANY_MIRRORS, re.search(r"GPUPROBE_HUB=\S+:(\d+)", said)[1], "many", run, "10"], env=env)
        url = re.search(r"jobs: (http://\S+)", said)[1]

        def finding():
            with urllib.request.urlopen(url + "/api/jobs", timeout=20) as answer:
                jobs = json.load(answer)["jobs"]
            return jobs and jobs[0]["state"] == "running" and jobs[0]["ranks"] == RANKS and jobs[0]["finding"]
        named = harness.wait_until(finding, "a finding while the hosts post", limit=60)
        self.assertIn(f"rank {self.slow(HOSTS)}", named)
        sent = hosts.wait(120)
        self.assertEqual(sent.returncode, 0, sent.stderr.decode())
        self.assertIn(f"{HOSTS} hosts, 0 without everything sent", sent.stdout.decode())
        harness.wait_until(lambda: b"gpuprobe: over:" in hub.so_far(), "the report", limit=120)
        reported, = glob.glob(self.path("posted", "*", "report.json"))
        with open(reported, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(report["ranks"], expected["ranks"])
        hub.signal(signal.SIGTERM)
        hub.wait()

    def test_a_rank_that_all_others_wait_for_is_in_detail(self):
        """It hangs before anybody has waited for it, so that nothing else sets it apart."""
        run = self.path("hang")
        self.simulate(HOSTS, run, "hang-missing-rank", "--slow-from", "0")
        report = self.report(run)
        culprit = self.slow(HOSTS)
        first = report["findings"][0]
        self.assertEqual((first["id"], first["about"]["ranks"]), ("hang-missing-rank", [culprit]))
        known = [rank["kernels"]["busy_ns"] > 0 for rank in report["ranks"]]
        self.assertTrue(known[culprit])
        self.assertFalse(known[culprit - 2], "one like it")

    def test_up_to_a_thousand_all_ranks_have_it(self):
        run = self.path("some")
        self.simulate(20, run)
        report = self.report(run)
        self.check(report, 20)
        self.assertEqual(report["trust"]["ranks_without_detail"], 0)
        self.assertNotIn("ranks-in-part", [finding["id"] for finding in report["findings"]])

    def test_what_it_refuses(self):
        def refused(words, *arguments):
            done = self.run_program([GPUPROBE, "simulate", "--scenario", "straggler-kernels", *arguments])
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr.decode(), words)
        refused("--out", "--ranks", "16", "--hosts", "4")
        refused("--keep", "--ranks", "16", "--hosts", "4", "--keep", "64MiB", "--out", self.path("w"))
        refused("--hosts multiplies a job on two hosts: give it --ranks 16", "--hosts", "4", "--out", self.path("x"))
        refused("have all ranks, or ranks of one host", "--ranks", "16", "--tensor", "2", "--hosts", "4", "--out", self.path("y"))
        os.mkdir(self.path("z"))
        with open(self.path("z", "rank-0.gpr"), "wb"):
            pass
        refused("z.*already", "--ranks", "16", "--hosts", "4", "--out", self.path("z"))


if __name__ == "__main__":
    unittest.main()
