"""`gpuprobe hub`: one place where the hosts of all jobs report, on a machine that runs no rank."""
import glob
import json
import os
import re
import signal
import time
import unittest

import harness
import hub_job
from harness import GPUPROBE

HUB, RANKS = "n3", ("n1", "n2")  # n4 is somebody else's
TROUBLES = os.path.join(harness.BUILD, "tests", "e2e", "collective_troubles")
OVER = r"gpuprobe: over: 4 ranks on 2 hosts; gpuprobe report (\S+)\n"


class HubProgram(hub_job.HubJob):

    COUNT = 4

    def launched_on(self, name):
        return {**super().launched_on(name), "WORLD_SIZE": str(len(RANKS) * self.RANKS_PER_HOST), "GPUPROBE_HUB": HUB}

    def start_hub(self, *options, **env):
        hub = self.start_on(HUB, [GPUPROBE, "hub", "--out", self.path("jobs"), *options], env={"GPUPROBE_HUB_TOKEN": hub_job.TOKEN, "HOME": self.home(HUB), **env})
        harness.wait_until(lambda: b"GPUPROBE_HUB=n3:9461\n" in hub.so_far() or not hub.alive(), "hub")
        self.assertTrue(hub.alive(), hub.so_far().decode())
        return hub

    def start_ranks(self, **options):
        return {name: self.start_host(name, **options) for name in RANKS}

    def await_ranks(self, programs):
        said = {}
        for name, program in programs.items():
            finished = program.wait(harness.LIMIT_S)
            self.assertEqual(finished.returncode, 0, f"{name}: {finished}")
            said[name] = finished.stderr.decode()
        return said

    def await_over(self, hub, jobs=1):
        """The directories of the jobs that are over."""
        return harness.wait_until(lambda: (found := re.findall(OVER, hub.so_far().decode())) and len(found) == jobs and found, "the end of the jobs")

    def end_hub(self, hub):
        hub.signal(signal.SIGTERM)
        ended = hub.wait(harness.LIMIT_S)
        self.assertEqual(ended.returncode, 0, str(ended))
        return ended.stderr.decode()

    def logs_in(self, folder):
        return {os.path.basename(path): harness.read_file(path) for path in glob.glob(os.path.join(folder, "*.gpr"))}

    def assert_whole(self, run):
        """The hub has what each host recorded last, to the byte."""
        report = self.report(run)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        self.assert_no_loss(report)
        for name in RANKS:
            recorded = max(glob.glob(os.path.join(self.home(name), "gpuprobe-runs", "*")), key=os.path.getmtime)
            self.assertEqual(self.logs_in(os.path.join(run, name)), self.logs_in(recorded), name)
        return report

    def runs_at_hub(self):
        """Names in its directory, beside its own socket."""
        return [name for name in os.listdir(self.path("jobs")) if not name.startswith(".hub.sock")]

    def test_a_job_and_its_next_attempt(self):
        hub = self.start_hub()
        for attempt in (1, 2):
            said = self.await_ranks(self.start_ranks(GPUSIM_SLOW="rank=3,factor=4"))
            for name in RANKS:
                self.assertRegex(said[name], r"gpuprobe: recorded in gpuprobe-runs/\S+; n3 reports on all hosts\n$")
            runs = self.await_over(hub, attempt)
            report = self.assert_whole(runs[-1])
            with self.undisturbed(report):
                self.assertIn("rank 3", report["findings"][0]["statement"].lower())
        self.assertEqual(len(set(runs)), 2)
        said = self.end_hub(hub)
        for run in runs:
            for name in RANKS:
                self.assertIn(f"gpuprobe: {name} records into {run}\n", said)
        self.assertNotIn("not over", said)

    def test_jobs_at_a_time_and_a_rank_that_hangs(self):
        hub = self.start_hub("--hang-after", "3")
        stuck = self.start_ranks(arguments=("skip", "0"), program=TROUBLES, GPUSIM_LINK="alpha=10us,beta=100GB/s")
        other = self.start_ranks(MASTER_PORT="29501", DDP_ID_FILE=self.path("id-of-the-other"))
        self.await_ranks(other)
        run, = self.await_over(hub)
        self.assertEqual(self.report(run)["hangs"], [])
        said = harness.wait_until(lambda: (text := " ".join(hub.so_far().decode().split())) and "HANG" in text and text, "the hang")
        self.assertRegex(said, r"gpuprobe: in (\S+/jobs/\S+): HANG .*Rank 3 did not: its last call was AllReduce")
        for program in stuck.values():
            program.signal(signal.SIGTERM)
            program.wait(harness.LIMIT_S)
        self.await_over(hub, 2)
        self.end_hub(hub)

    def test_a_hub_that_ends_and_one_that_is_killed_lose_nothing(self):
        hub = self.start_hub()
        programs = self.start_ranks(arguments=("--steps", "2500"))
        harness.wait_until(lambda: glob.glob(self.path("jobs", "*", "n2", "*.gpr")), "records at the hub")
        harness.wait_until(lambda: self.ranks_in_top(glob.glob(self.path("jobs", "*"))[0]) == 4, "all ranks in top")
        self.assertIn("gpuprobe: 1 job is not over", self.end_hub(hub))
        hub = self.start_hub()
        self.assertIn("gpuprobe: goes on with ", hub.so_far().decode())
        size = os.path.getsize(glob.glob(self.path("jobs", "*", "n2", "rank-2.gpr"))[0])
        harness.wait_until(lambda: os.path.getsize(glob.glob(self.path("jobs", "*", "n2", "rank-2.gpr"))[0]) > size, "more records at the hub")
        hub.signal(signal.SIGKILL)
        hub.wait()
        hub = self.start_hub()
        self.await_ranks(programs)
        run, = self.await_over(hub)
        self.assert_whole(run)
        self.assertEqual(self.runs_at_hub(), [os.path.basename(run)])
        self.end_hub(hub)

    def test_jobs_on_one_host(self):
        """With `gpuprobe run`, and where the program loads the probe by itself; their reports are where they always are, too."""
        hub = self.start_hub()
        os.mkdir(self.path("runtime"), 0o700)
        env = {"GPUPROBE_HUB": HUB, "GPUPROBE_HUB_TOKEN": hub_job.TOKEN, "HOME": self.home("n1"), "XDG_RUNTIME_DIR": self.path("runtime"), **harness.PATIENT}
        alone = [hub_job.DDP_TRAIN, "--steps", "60"]
        ran = self.run_on("n1", [GPUPROBE, "run", "--", *alone], env=env, cwd=self.home("n1"))
        self.assertEqual(ran.returncode, 0, str(ran))
        self.assertRegex(ran.stderr.decode(), r"(?s)gpuprobe: 1 rank on 1 GPU of n1 .*\ngpuprobe: n3 reports on this job, too\n$")
        loaded = self.run_on("n1", alone, env={**env, "CUDA_INJECTION64_PATH": harness.LIBRARY, "GPUPROBE_SOCKET": None}, cwd=self.home("n1"))
        self.assertEqual(loaded.returncode, 0, str(loaded))
        runs = harness.wait_until(lambda: len(found := re.findall(r"over: 1 rank on 1 host; gpuprobe report (\S+)\n", hub.so_far().decode())) == 2 and found, "two jobs")
        recorded = sorted(glob.glob(os.path.join(self.home("n1"), "gpuprobe-runs", "*")))
        for run, original in zip(runs, recorded, strict=True):
            self.assertEqual(self.logs_in(os.path.join(run, "n1")), self.logs_in(original))
            self.assertIn("-n1_ddp_train_", run)
            self.assert_no_loss(self.report(run))
        self.end_hub(hub)

    def test_a_host_that_floods_harms_nobody_else(self):
        """The flooder knows the secret; the job's report is as without it, and the hub's memory, disk and jobs stay bounded."""
        hub = self.start_hub("--host-rate", "4MiB", "--host-total", "96MiB")
        hub_pid, = (pid for pid in harness.processes_of_session(hub.pid) if harness.read_proc(pid, "cmdline").split(b"\0")[1:2] == [b"hub"])
        flood = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "hub_flood.py")
        flooder = self.start_on("n4", ["/usr/bin/python3", flood, f"{HUB}:{hub_job.PORT}", hub_job.TOKEN, "20"])
        harness.wait_until(lambda: glob.glob(self.path("jobs", "*", "flooder*", "*.gpr")), "the flood")
        began = time.monotonic()
        said = self.await_ranks(self.start_ranks(GPUSIM_SLOW="rank=3,factor=4", arguments=("--steps", "1000")))
        print(f"the job took {time.monotonic() - began:.1f} s beside the flood")
        for name in RANKS:
            self.assertRegex(said[name], r"gpuprobe: recorded in gpuprobe-runs/\S+; n3 reports on all hosts\n$")
        self.assertTrue(flooder.alive(), "the flood was over too early")
        told = json.loads(flooder.wait(harness.LIMIT_S).stdout)
        peak_mib = int(re.search(rb"VmHWM:\s+(\d+) kB", harness.read_proc(hub_pid, "status"))[1]) / 1024
        stored_mib = sum(os.path.getsize(path) for path in glob.glob(self.path("jobs", "*", "flooder*", "*"))) / 2**20
        print(f"the flooder: {told}; {stored_mib:.0f} MiB of it stored; the hub's memory: {peak_mib:.0f} MiB at most")
        self.assertLess(peak_mib, 400)
        self.assertLessEqual(stored_mib, 97)
        self.assertGreater(told["statuses"].get("429", 0), 0)
        self.assertTrue(all(value == "None" or int(value) >= 1 for value in told["retry_after"]), told)
        self.assertRegex(told["refusals"]["429"], r"10\.77\.0\.4 (sends more than 4096 KiB a second \(--host-rate\)|has \d+ jobs)")
        run, = harness.wait_until(lambda: (found := re.findall(OVER, hub.so_far().decode())) and found, "the end of the job")
        report = self.assert_whole(run)
        alone = json.loads(self.run_well([GPUPROBE, "report", *(max(glob.glob(os.path.join(self.home(name), "gpuprobe-runs", "*"))) for name in RANKS), "--json"]).stdout)
        self.assertEqual(report["findings"], alone["findings"])
        with self.undisturbed(report):
            self.assertIn("rank 3", report["findings"][0]["statement"].lower())
        self.end_hub(hub)

    def test_a_host_that_begins_job_after_job(self):
        hub = self.start_hub("--host-jobs", "4")
        flood = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "hub_flood.py")
        told = json.loads(self.run_on("n4", ["/usr/bin/python3", flood, f"{HUB}:{hub_job.PORT}", hub_job.TOKEN, "4", "jobs"]).stdout)
        self.assertEqual(len(self.runs_at_hub()), 4)
        self.assertEqual(told["refusals"]["429"], "10.77.0.4 has 4 jobs at a time already (--host-jobs)")
        self.assertEqual(told["retry_after"], ["10"])
        self.await_ranks(self.start_ranks())
        self.await_over(hub)
        self.end_hub(hub)

    def test_a_full_disk_is_said_before_it_is_full(self):
        hub = self.start_hub("--least-free", "1024TiB")
        said = self.await_ranks(self.start_ranks(arguments=("--steps", "200")))
        for name in RANKS:
            self.assertIn("(the hub says: the disk of the hub has less than 1.00 PiB left (--least-free))", said[name])
        self.assertEqual(self.runs_at_hub(), [])
        self.end_hub(hub)

    def test_a_host_that_has_too_much_to_send_comes_again(self):
        """At 64 KiB a second, the records take longer than the burst, and arrive all the same."""
        hub = self.start_hub("--host-rate", "64KiB")
        said = self.await_ranks(self.start_ranks(arguments=("--steps", "3000")))
        for name in RANKS:
            self.assertRegex(said[name], r"n3 reports on all hosts\n$|sends more than 64 KiB a second \(--host-rate\)")
        self.end_hub(hub)

    def test_what_it_refuses(self):
        def refused(*options, out=self.path("jobs"), status=1, **env):
            finished = self.run_on(HUB, [GPUPROBE, "hub", "--out", out, *options], env={"GPUPROBE_HUB_TOKEN": hub_job.TOKEN, "HOME": self.home(HUB), **env})
            self.assertEqual(finished.returncode, status, str(finished))
            line, = finished.stderr.decode().splitlines()
            return line
        self.assertIn("GPUPROBE_HUB_TOKEN", refused(GPUPROBE_HUB_TOKEN="short"))
        self.assertIn("there is no home directory for a token file; set GPUPROBE_HUB_TOKEN", refused(GPUPROBE_HUB_TOKEN=None, HOME=None, XDG_CONFIG_HOME=None))
        self.assertIn("--listen", refused("--listen", "nowhere", status=2))
        self.assertIn("/proc/jobs cannot be created", refused(out="/proc/jobs"))
        hub = self.start_hub()
        self.assertIn("9461", refused())
        # Another user's hosts.
        programs = self.start_ranks(GPUPROBE_HUB_TOKEN="another-token-of-another-user", arguments=("--steps", "50"))
        said = self.await_ranks(programs)
        for name in RANKS:
            self.assertIn("n3:9461 has another token than this host", said[name])
        self.assertEqual(self.runs_at_hub(), [])
        self.end_hub(hub)


if __name__ == "__main__":
    unittest.main()
