"""A job on several hosts that record into one directory. Each host is a UTS namespace with a name of its own."""
import json
import os
import shutil
import subprocess
import unittest

import harness
from harness import BUILD, GPUPROBE

HOSTS = {"n1": (0, 1), "n2": (2, 3)}
DDP_TRAIN = os.path.join(BUILD, "samples", "ddp_train")


class SeveralHosts(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "--uts", "hostname", "n1"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("no namespace can be made here")
        self.out = self.path("shared")

    def start_host(self, name, options=(), arguments=("--steps", "40"), **extra):
        """`gpuprobe run` on that host, over a launcher that starts its ranks."""
        ranks = HOSTS[name]
        script = " ".join(f"RANK={rank} LOCAL_RANK={rank} {DDP_TRAIN} {' '.join(arguments)} & p{rank}=$!;" for rank in ranks) + " ".join(f"wait $p{rank} || exit;" for rank in ranks)
        env = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "DDP_ID_FILE": self.path("id"), **extra}
        inside = 'hostname "$1"; shift; exec "$@"'
        return self.start(["unshare", "--uts", "sh", "-c", inside, "sh", name, GPUPROBE, "run", "--out", self.out, *options, "--", "bash", "-c", script], env=env, devices=4)

    def record(self, **options):
        hosts = {name: self.start_host(name, **options) for name in HOSTS}
        finished = {name: program.wait(harness.LIMIT_S) for name, program in hosts.items()}
        for name, program in finished.items():
            self.assertEqual(program.returncode, 0, f"{name}: {program}")
        self.assert_nothing_runs()
        return finished

    def test_each_records_below_the_directory_and_all_are_one_run(self):
        finished = self.record(GPUSIM_SLOW="rank=3,factor=4")
        self.assertEqual(sorted(os.listdir(self.out)), ["n1", "n2"])
        for name, program in finished.items():
            self.assertIn(f"this host's part of the job; once all hosts are done: gpuprobe report {self.out}\n", program.stderr.decode())
            self.assertEqual([rank["rank"] for rank in self.report(os.path.join(self.out, name))["ranks"]], list(HOSTS[name]))
        said = self.run_well([GPUPROBE, "report", self.out]).stdout.decode()
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said)
        report = self.report(self.out)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        with self.undisturbed(report):
            first = report["findings"][0]
            self.assertTrue(first["id"].startswith("straggler"), said)
            self.assertIn("rank 3", first["statement"].lower())
        self.assertNotIn("ranks-missing", [finding["id"] for finding in report["findings"]])
        self.assert_no_loss(report)
        # Everything that reads a run reads this one.
        self.assertEqual({record["rank"] for record in self.export(self.out)}, {0, 1, 2, 3})
        count = self.run_well([GPUPROBE, "query", self.out, "SELECT count(DISTINCT rank) AS ranks FROM kernel", "--format", "jsonl"]).stdout
        self.assertEqual(json.loads(count), {"ranks": 4})
        self.run_well([GPUPROBE, "trace", self.out, "--out", self.path("trace.json")])
        refused = self.run_program([GPUPROBE, "top", self.out])
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"{self.out} has the runs of 2 hosts; name one, such as {self.out}/n1\n", refused.stderr.decode())

    def test_json_stays_json(self):
        for program in self.record(options=("--json",)).values():
            self.assertEqual(len(json.loads(program.stderr)["ranks"]), 2)

    def test_what_is_there_is_reported_while_a_host_is_missing(self):
        self.record()
        shutil.rmtree(os.path.join(self.out, "n2"))
        report = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json"]).stdout)
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1])
        missing, = (finding for finding in report["findings"] if finding["id"] == "ranks-missing")
        self.assertEqual((missing["statement"], missing["evidence"]), ("2 of 4 ranks reported; this report covers only those.", "Missing: ranks 2-3."))

    def test_a_host_that_dropped_records_is_named(self):
        self.record()
        for rank in HOSTS["n1"]:
            os.rename(os.path.join(self.out, "n1", f"rank-{rank}.gpr"), os.path.join(self.out, "n1", f"rank-{rank}.0003.gpr"))
        refused = self.run_program([GPUPROBE, "report", self.out])
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"{self.out}/n1 has dropped records to stay within --keep", refused.stderr.decode())
        self.run_well([GPUPROBE, "report", os.path.join(self.out, "n2")])

    def test_on_one_host_nothing_is_between(self):
        self.run_well([GPUPROBE, "run", "--out", self.out, "--", harness.LAUNCH_RANKS, "2", DDP_TRAIN, "--steps", "5"], devices=2)
        self.assertIn("rank-0.gpr", os.listdir(self.out))


if __name__ == "__main__":
    unittest.main()
