"""Launchers that start ranks on several hosts themselves: a report on all of them where they meet, without any option."""
import os
import shutil
import signal
import unittest

import harness
import hosts
from harness import DDP_TRAIN, GPUPROBE

TRAINING = [DDP_TRAIN, "--steps", "200"]
SLURM_CONF = """\
ClusterName=gpuprobe
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/linear
ReturnToService=2
KillWait=2
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
SlurmdUser=root
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
NodeName=n1,n2 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:64
"""


class HubOfLaunchers(hosts.Hosts, harness.EndToEndTest):

    def env(self, extra=None, devices=1, sim_lib=None):
        own = {"GPUPROBE_HUB_TOKEN": "a-token-that-both-hosts-have", "GPUSIM_SLOW": "rank=3,factor=4", "SLURM_CONF": self.path("slurm.conf")}
        return super().env({**own, **(extra or {})}, devices, sim_lib)

    def assert_recorded(self, finished):
        self.assertEqual(finished.returncode, 0, str(finished))
        said = finished.stderr.decode()
        self.assertIn("gpuprobe: 4 ranks on ", said)
        self.assertIn(" of 2 hosts in ", said)
        self.assertRegex(said, r"gpuprobe: recorded in gpuprobe-runs/\S+; n1 reports on all hosts\n")
        run, = (os.path.join(self.cwd, "gpuprobe-runs", name) for name in os.listdir(os.path.join(self.cwd, "gpuprobe-runs"))
                if os.path.isdir(os.path.join(self.cwd, "gpuprobe-runs", name, "n1")))
        report = self.report(run)
        self.assertEqual([(rank["rank"], rank["host"]) for rank in report["ranks"]], [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")])
        self.assert_no_loss(report)
        with self.undisturbed(report):
            self.assertTrue(report["findings"][0]["id"].startswith("straggler"), said)
            self.assertIn("rank 3", report["findings"][0]["statement"].lower())

    def test_mpirun(self):
        """What mpirun runs on another host, it runs with a program that we name: ssh in life."""
        agent = self.path("agent")
        with open(agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nhost=$1; shift\n" + "".join(f"[ $host = {name} ] && pid={holder.pid}\n" for name, holder in self.holders.items())
                       + 'exec nsenter --target=$pid --net --uts --mount --wd=. sh -c "$*"\n')
        os.chmod(agent, 0o755)
        command = ["mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", agent, "--mca", "oob_tcp_if_include", "eth0", "--host", "n1:2,n2:2"]
        self.assert_recorded(self.run_on("n1", [*command, GPUPROBE, "run", "--", *TRAINING], devices=4))

    @unittest.skipUnless(os.geteuid() == 0 and all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun")), "needs root and Slurm: install slurmctld, slurmd and slurm-client")
    def test_srun(self):
        with open(self.path("slurm.conf"), "w", encoding="utf-8") as file:
            file.write(SLURM_CONF.format(folder=self.folder))
        for name in ("state", "spool-n1", "spool-n2"):
            os.mkdir(self.path(name))
        daemons = [self.start_on("n1", ["slurmctld", "-D"])] + [self.start_on(name, ["slurmd", "-D", "-N", name]) for name in self.holders]
        harness.wait_until(lambda: self.run_on("n1", ["sinfo", "-h", "-o", "%t %D"]).stdout == b"idle 2\n", "nodes of Slurm")
        self.assert_recorded(self.run_on("n1", ["srun", "-N", "2", "-n", "4", GPUPROBE, "run", "--", *TRAINING], devices=4))
        for daemon in daemons:
            for pid in harness.processes_of_session(daemon.pid):
                os.kill(pid, signal.SIGTERM)
            daemon.wait()


if __name__ == "__main__":
    unittest.main()
