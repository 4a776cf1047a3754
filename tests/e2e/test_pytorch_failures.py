"""PyTorch programs that go wrong: they fail as they would without the probe, and the report says why first."""
import os
import re
import signal

import harness
import hosts
from harness import GPUPROBE, LIBRARY, wait_until
from pytorch import SLOW_HOST, PyTorchTest, main

RANKS = 2


class Failures(PyTorchTest):

    def test_out_of_memory(self):
        report = self.record(self.sample("out_of_memory"), env={"GPUSIM_MEMORY_GIB": "1"}, status=1)
        for finished in (self.plain, self.probed):
            self.assertIn(b"torch.OutOfMemoryError: CUDA out of memory.", finished.stderr)
        self.assertEqual(self.finding_ids(report)[0], "out-of-memory")
        allocated, = re.findall(rb"([\d.]+) (?:MiB|GiB) is allocated by PyTorch", self.probed.stderr)
        memory, = report["ranks"][0]["memory"]["pytorch"]
        self.assertIn(allocated, (b"%.2f" % (memory["last_refused_allocated_bytes"] / unit) for unit in (1 << 20, 1 << 30)))
        self.assert_no_loss(report)
        self.assert_equals_truth()

    def test_an_evaluation_that_keeps_its_predictions(self):
        """The steps were not too large: what filled the GPU came after them."""
        program = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "torch", "predictions_kept.py")
        report = self.record([self.python, program], env={"GPUSIM_MEMORY_GIB": "1"}, status=1)
        finding = report["findings"][0]
        self.assertEqual(finding["id"], "out-of-memory")
        number, unit = re.search(r"No complete step before held more than ([\d.]+) (MiB): the rest came after the last one", finding["evidence"]).groups()
        self.assertAlmostEqual(float(number) * {"MiB": 1 << 20}[unit], int(self.probed.stdout), delta=(1 << 20) + 0.01 * int(self.probed.stdout))

    def restarted(self, *arguments):
        """The ranks of the first attempt and of the second."""
        checkpoint = self.path("checkpoint")
        command = self.sample("elastic", RANKS, [checkpoint, *arguments], ["--standalone", "--max-restarts", "1"])
        out = self.path("out")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--", *command], env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, devices=RANKS, limit=60)
        self.assert_nothing_runs()
        self.assertEqual(self.said(finished), [b"rank 0: 9 steps", b"rank 0: goes on from step 11", b"rank 1: 9 steps", b"rank 1: goes on from step 11"])
        report = self.report(out)
        died = [finding for finding in report["findings"] if finding["id"] == "rank-died"]
        self.assertEqual(report["findings"][0], died[0])
        self.assertRegex(died[0]["statement"], "^Rank 1 .* while 1 other rank was running.$")
        return died[0]

    def test_a_rank_that_raises_and_is_started_again(self):
        self.assertIn("exited with code 1", self.restarted()["statement"])

    def test_a_rank_that_is_killed_and_started_again(self):
        self.assertIn("SIGKILL", self.restarted("--kill")["statement"])

    def ranks_of(self, script):
        """The processes of ours that torchrun started, which are in sessions of their own."""
        ours = [pid for pid in harness.all_pids() if self.mark.encode() in harness.read_proc(pid, "environ")]
        return [pid for pid in ours if b"LOCAL_RANK=" in harness.read_proc(pid, "environ") and script.encode() in harness.read_proc(pid, "cmdline")]

    def test_a_rank_that_leaves_the_loop(self):
        out = self.path("out")
        command = [GPUPROBE, "run", "--out", out, "--hang-after", "3", "--", *self.sample("hang", RANKS)]
        program = self.start(command, devices=RANKS)
        wait_until(lambda: b"HANG" in program.so_far() or not program.alive(), "word of the hang")
        self.assertTrue(program.alive(), program.so_far().decode(errors="replace"))
        os.kill(self.ranks_of("hang.py")[-1], signal.SIGKILL)  # torchrun ends the other
        self.assertNotEqual(program.wait().returncode, 0)
        self.assert_nothing_runs()
        report = self.report(out)
        self.assertEqual([(hang["kind"], [rank["rank"] for rank in hang["ranks"]]) for hang in report["hangs"]], [("missing_rank", [RANKS - 1])])
        with open(os.path.join(harness.SOURCE, "samples", "torch", "hang.py"), encoding="utf-8") as file:
            line, = (number for number, text in enumerate(file, 1) if "time.sleep" in text)
        self.assertRegex(program.so_far().decode(), rf"in\s+Python\s+it\s+is\s+in\s+<module>\s+\(\S+/hang\.py:{line}\)")
        self.assertEqual(report["hangs"][0]["ranks"][0]["python"][0]["line"], line)

    def test_a_rank_with_more_to_compute(self):
        report = self.record(self.sample("slow_rank", RANKS), RANKS)
        self.assert_no_loss(report)
        with self.undisturbed(report):
            first = next(finding for finding in report["findings"] if finding["id"] not in SLOW_HOST)
            self.assertEqual(first["id"], "straggler-more-work")
        self.assertIn("The other rank waits for rank 1,", first["statement"])


class SeveralHosts(hosts.Hosts, PyTorchTest):
    """torchrun as people type it on each of two hosts that share nothing but a network and a token; where they meet, one report is on both."""

    def train(self, before=(), **env):
        programs = {}
        for name in self.holders:
            os.makedirs(self.path(name, "runtime"), 0o700)
            launcher = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "n1:29500", "--local-addr", name)
            programs[name] = self.start_on(name, [*before, *self.sample("slow_rank", RANKS, launcher=launcher)], devices=RANKS, cwd=self.path(name),
                                           env={"GPUPROBE_HUB_TOKEN": "a-token-that-both-hosts-have", "XDG_RUNTIME_DIR": self.path(name, "runtime"), **env})
        said = {}
        for name, program in programs.items():
            finished = program.wait()
            self.assertEqual(finished.returncode, 0, str(finished))
            said[name] = finished.stderr.decode()
        return said

    def assert_is_of_all_hosts(self, report):
        self.assertEqual([rank["rank"] for rank in report["ranks"]], [0, 1, 2, 3])
        self.assertEqual(len({rank["host"] for rank in report["ranks"][:2]}), 1)
        self.assertNotEqual(report["ranks"][0]["host"], report["ranks"][3]["host"])
        with self.undisturbed(report):
            self.assertEqual(report["findings"][0]["id"], "straggler-more-work", report["findings"])
            self.assertIn("rank 3", report["findings"][0]["statement"])

    def run_on_n1(self):
        return self.only_run_directory(os.path.join(self.path("n1"), "gpuprobe-runs"))

    def test_a_rank_with_more_to_compute_on_another_host(self):
        said = self.train([GPUPROBE, "run", "--"])
        self.assertRegex(said["n2"], r"gpuprobe: recorded in gpuprobe-runs/\S+; n1 reports on all hosts\n$")
        self.assertRegex(said["n1"], r"gpuprobe: 4 ranks on \d GPUs of 2 hosts in ")
        self.assert_is_of_all_hosts(self.report(self.run_on_n1()))

    def test_the_probe_alone(self):
        self.train(CUDA_INJECTION64_PATH=LIBRARY, GPUPROBE_SOCKET=None)
        wait_until(lambda: os.path.exists(os.path.join(self.run_on_n1(), "report.json")), "the report of all hosts")
        self.assert_is_of_all_hosts(self.report(self.run_on_n1()))


if __name__ == "__main__":
    main()
