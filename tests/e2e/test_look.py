"""`gpuprobe look` explains a job from outside that nobody records: which rank is behind, in which line, who goes on, and what the GPUs do."""
import json
import os
import signal
import sys

import harness

PROGRAM = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "trains_in_python.py")
RANKS = 4
ODD = 2


class Look(harness.EndToEndTest):

    def start_job(self, launcher=None, **env):
        """Ranks of a job that nobody records, all beyond the start of CUDA: their process ids by rank."""
        script = f"for r in $(seq 0 {RANKS - 1}); do RANK=$r WORLD_SIZE={RANKS} LOCAL_RANK=$r {sys.executable} -B {PROGRAM} {self.path('.')} & done; wait"
        self.start(launcher or ["sh", "-c", script], env=env, devices=RANKS)
        pids = {}

        def all_there():
            for rank in range(RANKS):
                try:
                    with open(self.path(f"rank-{rank}"), encoding="utf-8") as file:
                        pids[rank] = int(file.read())
                except (OSError, ValueError):
                    return False
            return True

        harness.wait_until(all_there, "ranks that train")
        return pids

    def look(self, *arguments, env=None):
        return self.run_well([harness.GPUPROBE, "look", *map(str, arguments)], env=env, devices=RANKS)

    def job(self, *arguments, env=None):
        """What is printed as JSON of the job of this test: others may run on the machine."""
        jobs = [job for job in json.loads(self.look(*arguments, "--json", env=env).stdout) if f"{PROGRAM} {self.path('.')}" in job["processes"][0]["command"]]
        self.assertEqual(len(jobs), 1, jobs)
        return jobs[0]

    def test_the_rank_that_is_behind_is_named_with_its_line(self):
        os.mkfifo(self.path("pipe"))
        pids = self.start_job(STUCK=str(ODD))
        harness.wait_until(lambda: "has moved" in self.job("--for", "0.3")["verdict"] and "somewhere else" in self.job("--for", "0.3")["verdict"],
                           "a job that hangs")
        # Ranks that have to wait for a processor come to the collective later.
        harness.wait_until(lambda: not any(p["moved"] for p in self.job("--for", "1")["processes"]), "ranks that stand still")
        job = self.job()
        self.assertEqual([(p["rank"], p["pid"], p["moved"]) for p in job["processes"]], [(rank, pids[rank], False) for rank in range(RANKS)])
        self.assertRegex(job["verdict"], r"^Rank 2 is somewhere else than the 3 others, in open(at)?( \S+)?: next_batch \(.*trains_in_python\.py:\d+\)\. "
                                         r"None of them has moved for \d\.\d s\.$")
        text = self.look(pids[0]).stdout.decode()
        self.assertIn("next_batch", text)
        self.assertRegex(text, r"(?s)^4 ranks of .*trains_in_python\.py")

    def test_ranks_that_go_on_do_not_hang(self):
        self.start_job()
        harness.wait_until(lambda: "they do not hang" in self.job("--for", "0.5")["verdict"], "ranks that move")

    def test_a_stopped_rank_is_said_to_be(self):
        pids = self.start_job()
        os.kill(pids[ODD], signal.SIGSTOP)
        try:
            harness.wait_until(lambda: self.job("--for", "0.2")["verdict"].startswith("Rank 2 is stopped"), "verdict on a stopped rank")
        finally:
            os.kill(pids[ODD], signal.SIGCONT)

    def test_workers_of_a_rank_are_no_ranks(self):
        pids = self.start_job(WORKERS="2")
        self.assertEqual([p["pid"] for p in self.job("--for", "0.2")["processes"]], [pids[rank] for rank in range(RANKS)])

    def test_a_launcher_that_looked_for_gpus_is_no_job(self):
        launcher = f"""if True:
            import ctypes, os, subprocess, sys
            assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
            command = [sys.executable, "-B", {PROGRAM!r}, {self.path('.')!r}]
            ranks = [subprocess.Popen(command, env={{**os.environ, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "{RANKS}"}}) for r in range({RANKS})]
            for rank in ranks:
                rank.wait()"""
        pids = self.start_job([sys.executable, "-c", launcher])
        jobs = json.loads(self.look("--for", "0.2", "--json").stdout)
        own = [[p["pid"] for p in job["processes"]] for job in jobs if self.path(".") in job["processes"][0]["command"]]
        self.assertEqual(own, [[pids[rank] for rank in range(RANKS)]], jobs)

    def test_what_the_gpus_do(self):
        pids = self.start_job()
        with open(self.path("health"), "w", encoding="utf-8") as file:
            for rank, pid in pids.items():
                file.write(f"{rank} process {pid}\n{rank} utilisation {0 if rank == ODD else 100}\n")
        env = {"GPUSIM_HEALTH": self.path("health")}
        self.assertEqual([p["gpus"] for p in self.job("--for", "0.2", env=env)["processes"]],
                         [[{"index": rank, "utilisation": 0 if rank == ODD else 1, "clock_mhz": 1980, "power_w": 350}] for rank in range(RANKS)])
        self.assertIn("2: 0 % busy, 1,980 MHz, 350 W", self.look(pids[ODD], env=env).stdout.decode())

    def test_a_driver_that_no_longer_answers(self):
        self.start_job()
        os.mkfifo(self.path("health"))
        self.assertEqual([p["gpus"] for p in self.job("--for", "0.2", env={"GPUSIM_HEALTH": self.path("health")})["processes"]], [[]] * RANKS)

    def test_no_such_process(self):
        finished = self.run_program([harness.GPUPROBE, "look", "2147483646", "--for", "0.1"])
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(finished.stderr.decode(), "gpuprobe: look: there is no process 2147483646\n")


if __name__ == "__main__":
    harness.main()
