"""A rank that cannot go on is named, with what the kernel says of it: stopped, frozen, killed, throttled, blocked, or busy on the host."""
import contextlib
import json
import os
import re
import signal
import time
import unittest

import harness
from harness import BUILD, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, all_pids, read_proc, wait_until

TROUBLES = os.path.join(BUILD, "tests", "e2e", "collective_troubles")
RANKS = 3
ODD = RANKS - 1
AFTER_S = 2
ENDLESS = ["--steps", "1000000", "--layers", "4", "--width", "64", "--batch", "16", "--bucket-mib", "0.03", "--log-every", "1000000"]
KERNELS = {"GPUSIM_KERNELS": "LinearForward=300us;LinearBackwardInput=320us;LinearBackwardWeight=340us;AdamStep=40us;MseLoss=25us"}


def one_line(text):
    return " ".join(text.split())


class Group:
    """A control group of this test's own; only where the machine lets us make one."""

    def __init__(self, test, hierarchies, file):
        for folder in hierarchies:
            path = os.path.join(folder, f"gpuprobe-test-{test.mark}")
            with contextlib.suppress(OSError):
                os.mkdir(path)
            if os.path.exists(os.path.join(path, file)):
                self.path = path
                test.addCleanup(self._remove)
                return
            with contextlib.suppress(OSError):
                os.rmdir(path)
        raise unittest.SkipTest(f"no control group with {file} can be made in {', '.join(hierarchies)}")

    def write(self, file, text):
        with open(os.path.join(self.path, file), "w", encoding="utf-8") as out:
            out.write(text)

    def _remove(self):
        for pid in read_file_lines(os.path.join(self.path, "cgroup.procs")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not read_file_lines(os.path.join(self.path, "cgroup.procs")), "end of the group's processes", limit=30)
        os.rmdir(self.path)


def read_file_lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().split()
    except OSError:
        return []


class Frozen(harness.EndToEndTest):

    def begin(self, command, env=None):
        self.out = self.path("run-directory")
        return self.start([GPUPROBE, "run", "--out", self.out, "--hang-after", str(AFTER_S), "--", LAUNCH_RANKS, str(RANKS), *command],
                          env={"GPUSIM_LINK": "alpha=10us,beta=100GB/s", **KERNELS, **(env or {})}, devices=RANKS)

    def is_rank(self, pid, rank=None):
        variables = read_proc(pid, "environ").split(b"\0")
        program = os.path.basename(read_proc(pid, "cmdline").split(b"\0")[0])
        return program in (b"ddp_train", b"collective_troubles") and f"E2E_MARK={self.mark}".encode() in variables \
            and (rank is None or f"RANK={rank}".encode() in variables)

    def pid_of(self, rank):
        return wait_until(lambda: next((pid for pid in all_pids() if self.is_rank(pid, rank)), None), f"rank {rank}")

    def screen(self):
        return self.run_program([GPUPROBE, "top", "--once", self.out]).stdout.decode()

    def train(self):
        """Starts training that does not end, and returns it when steps are counted on every rank."""
        program = self.begin([DDP_TRAIN, *ENDLESS])
        wait_until(lambda: re.search(r"^step \d", self.screen(), re.MULTILINE) or not program.alive(), "first steps")
        self.assertTrue(program.alive(), str(program.finished()))
        return program

    def await_said(self, program, words, limit=harness.LIMIT_S):
        return one_line(wait_until(lambda: (words.encode() in program.so_far() or not program.alive()) and program.so_far().decode(), words, limit))

    def end(self, program, stuck=None):
        """Ends the program and returns the report, which must say the same live and from the log."""
        program.signal(signal.SIGTERM)
        if stuck is not None:  # SIGTERM does not reach it
            wait_until(lambda: len([pid for pid in all_pids() if self.is_rank(pid)]) <= 1, "end of the other ranks")
            with contextlib.suppress(ProcessLookupError):
                os.kill(stuck, signal.SIGKILL)
        program.wait()
        self.assert_nothing_runs()
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            live = json.load(file)
        replayed = json.loads(self.run_well([GPUPROBE, "report", self.out, "--json", "--hang-after", str(AFTER_S)]).stdout)
        self.assertEqual(live["hangs"], replayed["hangs"])
        verdicts = [[f for f in report["findings"] if f["id"].startswith("hang-") or f["id"] == "rank-died"] for report in (live, replayed)]
        self.assertEqual(*verdicts)
        self.assertEqual([(r["end"], r["host_load"]) for r in live["ranks"]], [(r["end"], r["host_load"]) for r in replayed["ranks"]])
        return live

    def check_halted(self, report, kind):
        first = report["findings"][0]
        self.assertEqual(first["id"], "hang-missing-rank", report["findings"])
        hang = next(h for h in report["hangs"] if any(r["state"] == "halted" for r in h["ranks"]))
        self.assertEqual([(r["rank"], r["state"], r["halt"]["kind"]) for r in hang["ranks"]], [(ODD, "halted", kind)])
        self.assertTrue(hang["culprit_known"])
        return first, hang["ranks"][0]["halt"]

    def test_a_rank_that_is_stopped_and_continued(self):
        program = self.train()
        pid = self.pid_of(ODD)
        os.kill(pid, signal.SIGSTOP)
        said = self.await_said(program, "HANG")
        waited = float(re.search(r"has been waiting for it for ([0-9.]+) s", said)[1])
        self.assertGreaterEqual(waited, AFTER_S)
        self.assertLess(waited, AFTER_S + 5)
        self.assertRegex(said, rf"HANG Rank {ODD} has been stopped \(SIGSTOP\) since \d\d:\d\d:\d\d UTC; \w+ seq \d+ on communicator")
        self.assertIn(f"kill -CONT {pid}", said)
        wait_until(lambda: "HANG" in self.screen(), "HANG on the screen")
        top = self.run_well([GPUPROBE, "top", "--once", self.out]).stdout.decode()
        self.assertRegex(top, rf"HANG +Rank {ODD} has been stopped")
        self.assertRegex(top, rf"/{ODD} .*has been stopped \(SIGSTOP\) since")
        os.kill(pid, signal.SIGCONT)
        self.await_said(program, "HANG over")
        wait_until(lambda: "stopped" not in self.screen(), "a screen without it")
        report = self.end(program)
        self.assertEqual(report["hangs"], [])
        stopped, = (f for f in report["findings"] if f["id"] == "rank-stopped")
        self.assertRegex(stopped["statement"], rf"^Rank {ODD} was stopped \(SIGSTOP\) for [\d.]+ s, from \d\d:\d\d:\d\d UTC to \d\d:\d\d:\d\d UTC\.$")

    def test_at_level_calls_a_rank_that_is_stopped_and_continued(self):
        program = self.begin([DDP_TRAIN, *ENDLESS], {"GPUPROBE_LEVEL": "calls"})
        wait_until(self.have_called, "calls of all ranks")
        pid = self.pid_of(ODD)
        os.kill(pid, signal.SIGSTOP)
        said = self.await_said(program, "HANG")
        self.assertRegex(said, rf"HANG Rank {ODD} has been stopped \(SIGSTOP\) since \d\d:\d\d:\d\d UTC; \w+ seq \d+ on communicator")
        os.kill(pid, signal.SIGCONT)
        self.await_said(program, "HANG over")
        report = self.end(program)
        self.assertEqual(report["hangs"], [])

    def have_called(self):
        """Whether it is known live of each rank that it has called a collective."""
        try:
            with open(os.path.join(self.out, "live.json"), encoding="utf-8") as file:
                ranks = json.load(file)["ranks"]
        except OSError:
            return False
        return len(ranks) == RANKS and all(rank["last_call"] for rank in ranks)

    def test_a_rank_that_is_stopped_to_the_end_is_the_first_finding(self):
        program = self.train()
        pid = self.pid_of(ODD)
        os.kill(pid, signal.SIGSTOP)
        self.await_said(program, "HANG")
        first, halt = self.check_halted(self.end(program, stuck=pid), "stopped")
        self.assertEqual(halt["signal"], "SIGSTOP")
        self.assertIn(f"Rank {ODD} has been stopped (SIGSTOP)", first["statement"])

    def test_a_rank_that_is_killed_is_the_first_finding(self):
        program = self.train()
        os.kill(self.pid_of(ODD), signal.SIGKILL)
        program.wait()
        self.assert_nothing_runs()
        report = self.report(self.out)
        first = report["findings"][0]
        self.assertEqual(first["id"], "rank-died", report["findings"])
        self.assertRegex(first["statement"], rf"^Rank {ODD} (was killed by SIGKILL|ended without notice) at ")
        with open(os.path.join(self.out, "report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["findings"][0], first)

    def test_a_rank_that_is_frozen_by_its_control_group(self):
        group = Group(self, ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"], "cgroup.freeze")
        program = self.train()
        pid = self.pid_of(ODD)
        group.write("cgroup.procs", str(pid))
        group.write("cgroup.freeze", "1")
        said = self.await_said(program, "HANG")
        self.assertIn(f"HANG Rank {ODD} has been frozen by its cgroup since", said)
        self.check_halted(self.end(program, stuck=pid), "frozen")

    def test_a_rank_with_too_small_a_cpu_quota_is_late_for_that_reason(self):
        quota = Group(self, ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"], "cpu.stat")
        if os.path.exists(os.path.join(quota.path, "cpu.max")):
            quota.write("cpu.max", "10000 100000")
        elif os.path.exists(os.path.join(quota.path, "cpu.cfs_quota_us")):
            quota.write("cpu.cfs_quota_us", "10000")
        else:
            self.skipTest("control groups without the cpu controller")
        program = self.train()
        quota.write("cgroup.procs", str(self.pid_of(ODD)))
        time.sleep(8)
        report = self.end(program)
        load = next(r["host_load"] for r in report["ranks"] if r["rank"] == ODD)
        self.assertGreater(load["throttled"], 0.3, load)
        self.assertEqual(load["quota_cpus"], 0.1)
        self.assertTrue(all(r["host_load"]["throttled"] == 0 for r in report["ranks"] if r["rank"] != ODD))
        self.assertTrue(any(f"for rank {ODD} " in f["statement"].replace(",", " ") and "its cgroup is throttled" in f["evidence"] for f in report["findings"]), report["findings"])

    def hang(self, what):
        program = self.begin([TROUBLES, what])
        said = self.await_said(program, "HANG")
        report = self.end(program)
        hang, = report["hangs"]
        rank, = hang["ranks"]
        self.assertEqual((hang["kind"], rank["rank"], rank["state"], rank["halt"]), ("missing_rank", ODD, "not_issued", None))
        self.assertEqual(report["findings"][0]["id"], "hang-missing-rank")
        return said, rank, report

    def test_a_rank_that_reads_a_pipe_to_which_nobody_writes(self):
        os.mkfifo(os.path.join(self.cwd, "pipe"))
        said, rank, _ = self.hang("pipe")
        if rank["host_load"]["waits_for"] is None:
            self.skipTest("this kernel does not show the system call that a process is in")
        self.assertEqual(rank["host_load"]["waits_for"], "read " + os.path.realpath(os.path.join(self.cwd, "pipe")))
        self.assertIn("its main thread is blocked in the system call read", said)

    def test_a_rank_that_computes_on_the_host(self):
        said, rank, report = self.hang("spin")
        with self.undisturbed(report):
            self.assertIn("it is busy on the host", said)
            self.assertGreater(rank["host_load"]["cpus"], 0.3)

    def test_a_rank_that_is_stopped_again_and_again_for_a_moment_is_no_hang(self):
        program = self.train()
        pid = self.pid_of(ODD)
        for _ in range(3):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(AFTER_S / 4)
            os.kill(pid, signal.SIGCONT)
            time.sleep(AFTER_S / 4)
        self.assertNotIn(b"HANG", program.so_far())
        self.assertEqual(self.end(program)["hangs"], [])


if __name__ == "__main__":
    harness.main()
