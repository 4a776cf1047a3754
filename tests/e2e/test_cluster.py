"""A simulated day of a cluster in a real hub's hands: faults, false alarms, the repeat offender and slower attempts, against the truth.

With ClickHouse (scripts/clickhouse-env.sh), the documented questions are asked there, too.
"""
import glob
import json
import os
import re
import unittest
import urllib.request

import cluster_day
import clickhouse_server
import harness
from harness import GPUPROBE

SEED = 1
JOBS = 30


class Cluster(clickhouse_server.WithClickHouse):

    def run_hub(self, *options):
        hub = self.start([GPUPROBE, "hub", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--out", self.day, *options], env={"GPUPROBE_HUB_TOKEN": cluster_day.SECRET, "HOME": self.folder})
        harness.wait_until(lambda: hub.so_far().count(b"gpuprobe: over:") == len(self.truth["jobs"]) or not hub.alive(), "reports of all jobs")
        self.assertTrue(hub.alive(), hub.so_far().decode())
        self.hub = re.search(r"jobs: (http://\S+)", hub.so_far().decode())[1]

    def shown(self, *command):
        done = self.run_program([GPUPROBE, "jobs", *command, self.hub])
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stdout.decode()

    def test_a_day(self):
        self.day = self.path("day")
        self.truth = cluster_day.simulate(GPUPROBE, self.day, SEED, JOBS)
        options = []
        if clickhouse_server.is_there():
            self.start_server()
            options = ["--clickhouse", self.url, "--cluster", "simulated"]
        self.run_hub(*options)
        self.check_findings()
        self.check_offender()
        self.check_attempts()
        if options:
            self.check_questions()

    def check_findings(self):
        score = cluster_day.Score(self.truth, self.day)
        self.assertEqual(score.false, [], score.text())
        self.assertGreaterEqual(score.named, 0.9 * score.faulty, score.text())  # docs/cluster-day.md says which faults look alike
        faults = {row["fault"] for row in self.truth["jobs"]}
        self.assertGreater(len(faults), 8, "of all kinds")
        for fault, ratio in score.costs:
            self.assertTrue(1 / 2 < ratio < 2, f"the cost of {fault} is {ratio:.2f} times the true one")

    def offended(self):
        return [row for row in self.truth["jobs"] if "repeat_offender" in row]

    def check_offender(self):
        offender = self.truth["repeat_offender"]
        hosts = json.loads(self.shown("--hosts", "--json"))
        first = hosts["gpus"][0]
        self.assertEqual((first["gpu_uuid"], first["host"], first["jobs_against"]), (offender["gpu_uuid"], offender["host"], len(self.offended())))
        self.assertLess(hosts["gpus"][1]["jobs_against"], first["jobs_against"])
        self.assertEqual(hosts["hosts"][0]["host"], offender["host"])
        # What people read.
        with urllib.request.urlopen(self.hub + "/hosts", timeout=20) as page:
            self.assertEqual(re.search(r">(GPU-[-\w]+)<", page.read().decode())[1], offender["gpu_uuid"])
        self.assertIn(offender["gpu_uuid"], self.shown("--hosts").splitlines()[1])

    def check_attempts(self):
        """By how much an attempt is slower than the last, and in what: beyond chance only if it is."""
        compared = cluster_day.attempts(self.truth, self.day)
        self.assertGreaterEqual(len(compared), 2)
        slower = 0
        for row, said in compared:
            percent = row["percent_slower_than_last"]
            self.assertIsNotNone(said, row["directory"])
            total = next(part for part in said["parts"] if part["name"] == "total")
            told = 100 * (total["ns"] / total["before_ns"] - 1)
            self.assertAlmostEqual(told, percent, delta=0.3, msg=row["directory"])
            self.assertEqual(total["significant"], percent > 1, f"{row['directory']}: {percent:.2f} %")
            if percent > 1:
                slower += 1
                text = self.shown("--attempts", row["job"])
                self.assertRegex(text, rf"B is slower: step time .* \+{percent:.1f} %")
                self.assertIn("Compute time is", text)
        self.assertGreater(slower, 0)

    def check_questions(self):
        over = "SELECT count() FROM gpuprobe.jobs FINAL WHERE state = 'over'"
        harness.wait_until(lambda: self.ask(over) == [[len(self.truth["jobs"])]] and not glob.glob(os.path.join(self.day, "clickhouse-spool", "*.round")), "rows of all jobs")
        slower = max((row for row in self.truth["jobs"] if "percent_slower_than_last" in row), key=lambda row: row["percent_slower_than_last"])
        answers = self.questions(slower["job"], slower["attempt"])
        offender = self.truth["repeat_offender"]
        uuid, host, jobs, findings, _ = answers["GPUs were at"][0]
        self.assertEqual((uuid, host, jobs, findings), (offender["gpu_uuid"], offender["host"], len(self.offended()), ["straggler-slow-gpu"]))
        percent, = (row[3] for row in answers["how much a j"] if row[:2] == [slower["job"], slower["attempt"]])
        self.assertAlmostEqual(percent, slower["percent_slower_than_last"], delta=0.4)
        causes = {row[0] for row in answers["lost in a mo"]}
        self.assertIn("straggler-slow-gpu", causes)
        self.assertEqual(answers["was lost"], [])


if __name__ == "__main__":
    unittest.main()
