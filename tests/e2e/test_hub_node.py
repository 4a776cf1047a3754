"""`gpuprobe collect --node --hub`: a collector on each host for all users, which sends each job to one hub."""
import glob
import os
import re
import signal
import unittest

import harness
import hub_job
from harness import GPUPROBE, LIBRARY

HUB, RANKS = "n3", ("n1", "n2")


@unittest.skipUnless(os.geteuid() == 0, "a collector for a node needs root")
class HubOfNodes(hub_job.HubJob):

    COUNT = 3

    def socket(self, name):
        return self.path(f"node-{name}", "collector.sock")

    def start_node(self, name, *options):
        os.makedirs(os.path.dirname(self.socket(name)), 0o755, exist_ok=True)
        node = self.start_on(name, [GPUPROBE, "collect", "--node", "--socket", self.socket(name), "--out", self.path(f"runs-{name}"), *options])
        harness.wait_until(lambda: b"collecting for all users" in node.so_far() or not node.alive(), "collector of a node")
        self.assertTrue(node.alive(), node.so_far().decode())
        return node

    def start_hub(self):
        hub = self.start_on(HUB, [GPUPROBE, "hub", "--out", self.path("jobs")], env={"GPUPROBE_HUB_TOKEN": hub_job.TOKEN, "HOME": self.home(HUB)})
        harness.wait_until(lambda: b"GPUPROBE_HUB=n3:9461\n" in hub.so_far() or not hub.alive(), "hub")
        return hub

    def env_of(self, name, **extra):
        """The ranks load the probe by themselves, and know of no hub."""
        return {**self.launched_on(name), "WORLD_SIZE": "4", "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_SOCKET": self.socket(name), "GPUPROBE_AUTOSTART": "0", **harness.PATIENT, **extra}

    def start_ranks(self, **extra):
        return {name: self.start_on(name, ["bash", "-c", self.script_of(name, hub_job.DDP_TRAIN, ("--steps", "400"))], env=self.env_of(name, **extra),
                                    devices=4, cwd=self.home(name)) for name in RANKS}

    def end_in_order(self, *programs):
        for program in programs:
            program.signal(signal.SIGTERM)
        return [program.wait(harness.LIMIT_S) for program in programs]

    def assert_job(self, run, names):
        """The hub has what each host recorded, to the byte."""
        report = self.report(run)
        self.assertEqual(sorted({rank["host"] for rank in report["ranks"]}), sorted(names))
        self.assert_no_loss(report)
        for name in names:
            recorded = max(glob.glob(self.path(f"runs-{name}", "*", "*")), key=os.path.getmtime)
            for path in glob.glob(os.path.join(recorded, "*.gpr")):
                self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(run, name, os.path.basename(path))), path)
        return report

    def test_a_job_of_two_hosts_and_one_of_one_host(self):
        hub = self.start_hub()
        nodes = {name: self.start_node(name, "--hub", f"https://{HUB}:9461") for name in RANKS}
        for name, program in self.start_ranks(GPUSIM_SLOW="rank=3,factor=4").items():
            self.assertEqual(program.wait(harness.LIMIT_S).returncode, 0, name)
        run, = harness.wait_until(lambda: re.findall(r"over: 4 ranks on 2 hosts; gpuprobe report (\S+)\n", hub.so_far().decode()), "the job at the hub")
        report = self.assert_job(run, RANKS)
        with self.undisturbed(report):
            self.assertIn("rank 3", report["findings"][0]["statement"].lower())
        alone = self.run_on("n1", [hub_job.DDP_TRAIN, "--steps", "100"], env={**self.env_of("n1"), **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))}, cwd=self.home("n1"))
        self.assertEqual(alone.returncode, 0, str(alone))
        run, = harness.wait_until(lambda: re.findall(r"over: 1 rank on 1 host; gpuprobe report (\S+)\n", hub.so_far().decode()), "the second job at the hub")
        self.assert_job(run, ["n1"])
        for ended in self.end_in_order(*nodes.values()):
            self.assertEqual(ended.returncode, 0, str(ended))
            self.assertIn(", and sending each job to n3:9461\n", ended.stderr.decode())
            self.assertRegex(ended.stderr.decode(), r"root: 2 ranks, \S+; n3 has it, too\n")
        self.end_in_order(hub)

    def test_off_is_off_and_a_hub_that_is_away_costs_nothing(self):
        node = self.start_node("n1", "--hub", HUB)
        one = {**dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))}
        for extra in ({"GPUPROBE_HUB": "off"}, {}):
            ran = self.run_on("n1", [hub_job.DDP_TRAIN, "--steps", "50"], env={**self.env_of("n1"), **one, **extra}, cwd=self.home("n1"))
            self.assertEqual(ran.returncode, 0, str(ran))
        said = harness.wait_until(lambda: (text := node.so_far().decode()) and text.count("1 rank, ") == 2 and text, "both runs")
        self.assertRegex(said, r"root: 1 rank, \S+\n")
        self.assertRegex(said, r"root: 1 rank, \S+; not all at n3:9461: n3:9461 does not answer\n")
        self.end_in_order(node)

    def test_what_it_refuses(self):
        for options, line in ((("--node", "--hub", "n3:no"), 'gpuprobe: collect: --hub must be HOST or HOST:PORT, got "n3:no"\n'),
                              (("--node", "--hub", "http://n3"), 'gpuprobe: collect: --hub must be HOST or HOST:PORT, got "http://n3"\n'),
                              (("--hub", "n3"), "gpuprobe: collect: --hub goes with --node; for jobs of your own, set GPUPROBE_HUB where they run\n")):
            refused = self.run_program([GPUPROBE, "collect", *options])
            self.assertEqual((refused.returncode, refused.stderr.decode()), (2, line))


if __name__ == "__main__":
    unittest.main()
