"""A job on several hosts that record into one directory. Each host is a UTS namespace with a name of its own."""
import glob
import json
import os
import shutil
import signal
import subprocess
import time
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

    def start_host(self, name, options=(), arguments=("--steps", "400"), **extra):
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
        said = finished["n1"].stderr.decode()
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said)
        self.assertIn(f"{self.out}/report.html", said)
        self.assertEqual(finished["n2"].stderr.decode(), f"gpuprobe: recorded in {self.out}/n2; n1, where rank 0 is, reports on all hosts\n")
        for name in HOSTS:
            self.assertEqual([rank["rank"] for rank in self.report(os.path.join(self.out, name))["ranks"]], list(HOSTS[name]))
        report = self.report(self.out)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        with self.undisturbed(report):
            first = report["findings"][0]
            self.assertTrue(first["id"].startswith("straggler"), said)
            self.assertIn("rank 3", first["statement"].lower())
        self.assertNotIn("ranks-missing", [finding["id"] for finding in report["findings"]])
        self.assert_no_loss(report)
        # What was read as it grew is what is read afterwards.
        again = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json"]).stdout)
        self.assertEqual(again["findings"], report["findings"])
        self.assertEqual(again["steps"], report["steps"])
        self.assertEqual([rank["kernels"] for rank in again["ranks"]], [rank["kernels"] for rank in report["ranks"]])
        # The same from directories that were copied together, or named one by one.
        apart = self.run_well([GPUPROBE, "report", *(os.path.join(self.out, name) for name in HOSTS), "--json"]).stdout
        self.assertEqual(json.loads(apart), again)
        # Everything that reads a run reads this one.
        self.assertEqual({record["rank"] for record in self.export(self.out)}, {0, 1, 2, 3})
        count = self.run_well([GPUPROBE, "query", self.out, "SELECT count(DISTINCT rank) AS ranks FROM kernel", "--format", "jsonl"]).stdout
        self.assertEqual(json.loads(count), {"ranks": 4})
        self.run_well([GPUPROBE, "trace", self.out, "--out", self.path("trace.json")])
        refused = self.run_program([GPUPROBE, "top", self.out])
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(f"{self.out} is not being recorded (any more); for its report: gpuprobe report {self.out}\n", refused.stderr.decode())

    def test_a_rank_of_another_host_is_named_where_rank_0_is(self):
        hosts = {name: self.start_host(name, options=("--hang-after", "3"), arguments=("--steps", "100000")) for name in HOSTS}
        top = [GPUPROBE, "top", self.out, "--once"]

        def ranks():
            seen = self.run_program([*top, "--json"])
            status = json.loads(seen.stdout) if seen.returncode == 0 else {"ranks": []}
            return status["ranks"] if len(status["ranks"]) == 4 and all(rank["steps"] > 0 for rank in status["ranks"]) else []

        seen = harness.wait_until(ranks, "all ranks in top")
        self.assertEqual([(rank["rank"], rank["host"]) for rank in seen], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        harness.wait_until(lambda: os.path.exists(os.path.join(self.out, "n2", "rank-3.gpr")), "rank 3's log")
        pid = next(rank["pid"] for rank in seen if rank["rank"] == 3)
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        harness.wait_until(lambda: "HANG  Rank 3 has been stopped" in hosts["n1"].so_far().decode(), "hang")
        print(f"named after {time.monotonic() - stopped:.1f} s, the limit is 3 s")
        self.assertIn("HANG  Rank 3 has been stopped", self.run_well(top).stdout.decode())
        os.kill(pid, signal.SIGKILL)
        harness.wait_until(lambda: "DEAD  Rank 3 was killed by SIGKILL" in hosts["n1"].so_far().decode(), "death")
        self.assertNotIn("HANG over", hosts["n1"].so_far().decode())
        for rank in seen[:3]:
            os.kill(rank["pid"], signal.SIGKILL)
        for program in hosts.values():
            program.wait(harness.LIMIT_S)
        self.assert_nothing_runs()
        # What n2 said of its own two ranks is not what the report on all four says.
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            at_the_end = json.load(file)
        for report in (at_the_end, self.report(self.out)):
            hang, = (finding for finding in report["findings"] if finding["id"].startswith("hang"))
            self.assertRegex(hang["statement"], "^Rank 3 (has been stopped|was killed)")
            self.assertIn("3 ranks issued it", hang["evidence"])
            self.assertNotIn("not recorded here", hang["evidence"])

    def test_a_host_that_falls_silent_is_named(self):
        hosts = {name: self.start_host(name, arguments=("--steps", "100000")) for name in HOSTS}
        live = {name: os.path.join(self.out, name, "live.json") for name in HOSTS}
        harness.wait_until(lambda: all(map(os.path.exists, live.values())) and self.run_program([GPUPROBE, "top", self.out, "--once"]).returncode == 0, "both hosts")
        folder = os.path.join(self.out, "n2")
        collector, = (pid for pid in harness.processes_of_session(hosts["n2"].pid) if folder in [os.readlink(fd) for fd in glob.glob(f"/proc/{pid}/fd/*") if os.path.islink(fd)])
        os.kill(collector, signal.SIGKILL)
        harness.wait_until(lambda: not harness.read_proc(collector, "cmdline"), "end of n2's collector")
        os.utime(live["n2"], (time.time() - 31, time.time() - 31))
        harness.wait_until(lambda: "SILENT  n2 has written nothing for half a minute" in hosts["n1"].so_far().decode(), "word of n2")
        ranks = [pid for program in hosts.values() for pid in harness.processes_of_session(program.pid)
                 if harness.read_proc(pid, "cmdline").split(b"\0")[0].endswith(b"ddp_train")]
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
        for program in hosts.values():
            program.wait(harness.LIMIT_S)
        self.assertEqual(hosts["n1"].so_far().decode().count("SILENT"), 1)
        self.assertIn("4 ranks on", hosts["n1"].so_far().decode())
        self.assert_nothing_runs()

    def test_json_stays_json(self):
        finished = self.record(options=("--json",))
        self.assertEqual([len(json.loads(finished[name].stderr)["ranks"]) for name in HOSTS], [4, 2])

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
