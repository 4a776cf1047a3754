"""Hosts of a job that prove by munge who they are: a real munged on each, with the site's key, and no other secret."""
import glob
import os
import re
import shutil
import unittest

import harness
import hub_job

KEY = b"the key of a site, which munged wants to have at least 32 bytes"
VARIABLE = "GPUPROBE_HUB_TOKEN"
SHIFTED_CLOCK = os.path.join(harness.BUILD, "tests", "e2e", "libshifted_clock.so")


@unittest.skipUnless(shutil.which("munged", path="/usr/sbin:/usr/bin"), "munge is not installed: apt-get install munge")
class HubMunge(hub_job.HubJob):

    def launched_on(self, name):
        return {**super().launched_on(name), VARIABLE: None}

    def start_munged(self, name, key=KEY, shift_s=0):
        """Where libmunge looks for it: each host has a /run of its own."""
        path = self.path(f"munge-key-{name}")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(key)
        prepare = "mount -t tmpfs none /run && mkdir -m 755 /run/munge"
        daemon = f"exec /usr/sbin/munged --foreground --key-file={path} --pid-file=/run/munge/pid --seed-file=/run/munge/seed"
        munged = self.start_on(name, ["sh", "-c", f"{prepare} && {f'export LD_PRELOAD={SHIFTED_CLOCK} SHIFTED_CLOCK_S={shift_s} && ' if shift_s else ''}{daemon}"])
        harness.wait_until(lambda: b"Created socket" in munged.so_far() or not munged.alive(), "munged")
        self.assertTrue(munged.alive(), munged.so_far().decode())
        return munged

    def hosts_that_differ(self, **token_of):
        """What the hub and the other host say, as one line each."""
        programs = {name: self.start_host(name, **({VARIABLE: token_of[name]} if name in token_of else {})) for name in self.holders}
        finished = {name: program.wait(harness.LIMIT_S) for name, program in programs.items()}
        self.assertEqual([each.returncode for each in finished.values()], [0, 0], finished)
        said = finished["n2"].stderr.decode()
        return re.search(r"this host's part of the job, which is not all at n1:9461 \((.*?)\); ", said)[1]

    def test_one_report_without_any_secret_of_ours(self):
        for name in self.holders:
            self.start_munged(name)
        said = self.record(GPUSIM_SLOW="rank=3,factor=4")
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said["n1"])
        self.assertRegex(said["n2"], r"gpuprobe: recorded in gpuprobe-runs/\S+; n1 reports on all hosts\n$")
        report = self.report(self.run_of("n1"))
        self.assert_no_loss(report)
        for path in glob.glob(os.path.join(self.run_of("n2"), "*.gpr")):
            self.assertEqual(harness.read_file(path), harness.read_file(os.path.join(self.run_of("n1"), "n2", os.path.basename(path))))
        for name in self.holders:
            self.assertFalse(os.path.exists(os.path.join(self.home(name), ".config")), "a token file was made, or looked for")

    def test_another_key(self):
        self.start_munged("n1")
        self.start_munged("n2", key=KEY + b" of another site")
        self.assertEqual(self.hosts_that_differ(), "munge at n1:9461 has another key than this host's: both need the same /etc/munge/munge.key, or set GPUPROBE_HUB_TOKEN to the same secret on both")

    def test_a_clock_that_is_an_hour_fast(self):
        self.start_munged("n1")
        self.start_munged("n2", shift_s=3600)
        self.assertEqual(self.hosts_that_differ(), "munge's credential is from the future at n1:9461: the clocks of the two hosts are minutes apart; set them (NTP)")

    def test_a_clock_that_is_an_hour_slow(self):
        self.start_munged("n1")
        self.start_munged("n2", shift_s=-3600)
        self.assertEqual(self.hosts_that_differ(), "munge's credential had expired at n1:9461: the clocks of the two hosts are minutes apart; set them (NTP)")

    def test_munge_here_and_a_token_there(self):
        for name in self.holders:
            self.start_munged(name)
        self.assertEqual(self.hosts_that_differ(n1=hub_job.TOKEN), "n1:9461 knows its hosts by a token, this host by munge: set GPUPROBE_HUB_TOKEN to the same secret on both, or run munge there, too")

    def test_a_token_here_and_munge_there(self):
        self.start_munged("n1")
        token = os.path.join(self.home("n2"), ".config", "gpuprobe", "hub-token")
        self.assertEqual(self.hosts_that_differ(), f"n1:9461 knows its hosts by munge, this host by the token in {token}: run munge here, too, or set GPUPROBE_HUB_TOKEN to the same secret on both")

    def test_a_token_that_somebody_set_comes_first(self):
        self.start_munged("n2")
        said = self.record(GPUPROBE_HUB_TOKEN=hub_job.TOKEN)
        self.assertIn("gpuprobe: 4 ranks on 4 GPUs of 2 hosts in ", said["n1"])

    def test_a_munged_that_ends_while_the_job_runs(self):
        """What is agreed on stays; a hub that begins again asks munge again."""
        daemons = [self.start_munged(name) for name in self.holders]
        programs = {name: self.start_host(name, arguments=("--steps", "100000")) for name in self.holders}
        harness.wait_until(lambda: self.mirrored()[0] > 0, "n2's records on n1")
        for daemon in daemons:
            daemon.kill()
        before = self.mirrored()[0]
        harness.wait_until(lambda: self.mirrored()[0] > before, "more records of n2")
        self.end(programs)
        self.assertIn(b"4 ranks on ", programs["n1"].so_far())


if __name__ == "__main__":
    unittest.main()
