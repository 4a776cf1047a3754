"""`gpuprobe run` behind a launcher, which starts it once for each rank: one run for the ranks of a host, and the launcher sees each command's own end."""
import collections
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import harness
from harness import CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, SMALL_TRAINING
from hazards import hazard

TRAINING = [DDP_TRAIN, *SMALL_TRAINING]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4"]


class RanksOfOneHost(harness.EndToEndTest):

    def run_of(self, *command, out="out", options=()):
        return [GPUPROBE, "run", "--out", self.path(out), *options, "--", *command]

    def start_rank(self, rank, *operations, ranks=2, out="out", env=None, options=()):
        """One rank, whose launcher is this test."""
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "GPUPROBE_FLUSH_MS": 20, "CUDA_VISIBLE_DEVICES": rank}
        return self.start(self.run_of(CUDA_SCRIPT, *operations, out=out, options=options), devices=ranks,
                          env={**PATIENT, **{name: str(value) for name, value in variables.items()}, **(env or {})})

    def start_first(self, *operations, **options):
        """Rank 0, which the others join."""
        program = self.start_rank(0, *operations, **options)
        harness.wait_until(lambda: glob.glob(self.path("run", "gpuprobe", "job-*", "ranks.sock")), "place to join")
        return program

    def start_waiting_rank(self, rank, *end, **options):
        """A rank that has recorded something and waits for go()."""
        ready = self.path(f"ready-{rank}-{options.get('out', 'out')}")
        program = self.start_rank(rank, "kernels:50", f"touch:{ready}", f"await:{self.path('go')}", "kernels:30", *end, **options)
        harness.wait_until(lambda: os.path.exists(ready), f"rank {rank}")
        return program

    def go(self):
        with open(self.path("go"), "w", encoding="utf-8"):
            pass

    def kernels(self, out="out"):
        return {rank["rank"]: rank["kernels"]["count"] for rank in harness.read_report(self.path(out))["ranks"]}

    def await_recorded(self, kernels):
        """Until the logs have these numbers of kernels, by rank; the ranks may then be killed."""
        def recorded():
            finished = self.run_program([GPUPROBE, "export", self.path("out"), "--format", "jsonl"])
            return collections.Counter(record["rank"] for record in map(json.loads, finished.stdout.splitlines()) if record["kind"] == "kernel")
        harness.wait_until(lambda: os.path.isdir(self.path("out")) and recorded() == kernels, f"{kernels} in the logs")

    def assert_one_report(self, text, ranks):
        self.assertEqual(re.findall(r"^gpuprobe: (\d+(?: of \d+)?) ranks? on ", text, re.MULTILINE), [str(ranks)], text)

    def assert_nothing_left(self):
        self.assert_nothing_runs()
        self.assertEqual(glob.glob(self.path("run", "**"), recursive=True), [self.path("run", ""), self.path("run", "gpuprobe")])

    def assert_recorded(self, finished, ranks=4, out="out"):
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_one_report(finished.stderr.decode(), ranks)
        self.assert_nothing_left()
        report = self.report(self.path(out))
        self.assertEqual([rank["rank"] for rank in report["ranks"]], list(range(ranks)))
        self.assert_no_loss(report)
        self.assertEqual(self.differences(self.truth(), self.export(self.path(out))), [])

    def job_folder(self):
        folder, = glob.glob(self.path("run", "gpuprobe", "job-*"))
        return folder

    def children_of(self, program):
        return [int(pid) for pid in harness.read_proc(program.pid, f"task/{program.pid}/children").split()]

    def collectors_of(self, program):
        """Without the witness, which stays in its group."""
        return [pid for pid in self.children_of(program) if os.path.samefile(f"/proc/{pid}/exe", GPUPROBE) and os.getpgid(pid) == pid]


class Launchers(RanksOfOneHost):

    def with_and_without(self, launcher, prefix=()):
        plain = self.run_well([*launcher, *TRAINING], devices=4)
        self.forget_truth()
        finished = self.run_program([*launcher, *prefix, *self.run_of(*TRAINING)], devices=4, env=PATIENT)
        self.assert_recorded(finished)
        self.assertEqual(finished.stdout, plain.stdout)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: install openmpi-bin")
    def test_mpirun(self):
        self.with_and_without(MPIRUN)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: install openmpi-bin")
    def test_mpirun_and_a_script_around_each_rank(self):
        """The ranks are not mpirun's own children, and have a rank by another name."""
        self.with_and_without(MPIRUN, ["/bin/sh", "-c", 'export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=4 LOCAL_RANK=$RANK; "$@"; exit $?', "wrapper"])

    def test_a_script_that_starts_the_ranks(self):
        self.with_and_without([LAUNCH_RANKS, "4"])

    def test_without_a_directory(self):
        self.run_well([LAUNCH_RANKS, "4", GPUPROBE, "run", "--quiet", "--", *TRAINING], devices=4, env=PATIENT)
        self.assertEqual(len(self.report(self.only_run_directory())["ranks"]), 4)
        self.assert_nothing_runs()

    def test_a_program_that_cannot_be_preloaded_is_named_once(self):
        text = self.path("text")
        with open(text, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(text, 0o755)
        finished = self.run_program([LAUNCH_RANKS, "4", *self.run_of(text)])
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assertEqual(finished.stderr.count(b"gpuprobe: "), 1, f"that nothing was recorded, once: {finished}")
        self.assert_nothing_left()

    @hazard("mpirun starts `gpuprobe run` for each rank, and one rank fails", sees="mpirun ends the others and returns that rank's status, as without the probe",
            counted="one report has all ranks up to then")
    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: install openmpi-bin")
    def test_mpirun_when_a_rank_fails(self):
        go = self.path("go")
        script = f'if [ $OMPI_COMM_WORLD_RANK = 2 ]; then exec {CUDA_SCRIPT} kernels:20 await:{go} return:9; fi; exec {CUDA_SCRIPT} kernels:20 sleep'
        program = self.start([*MPIRUN, *self.run_of("/bin/sh", "-c", script)], devices=1, env={"GPUPROBE_FLUSH_MS": "20"})
        self.await_recorded({rank: 20 for rank in range(4)})
        self.go()
        finished = program.wait()
        self.assertEqual(finished.returncode, 9, str(finished))
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {rank: 20 for rank in range(4)})

    @hazard("Ctrl-C ends mpirun, which started `gpuprobe run` for each rank", sees="mpirun ends the ranks, as without the probe", counted="one report has all ranks up to then")
    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun: install openmpi-bin")
    def test_mpirun_is_interrupted(self):
        def interrupted(*prefix):
            for path in glob.glob(self.path("ready-*")):
                os.remove(path)
            program = self.start([*MPIRUN, *prefix, "/bin/sh", "-c", f'exec {CUDA_SCRIPT} kernels:20 touch:{self.path("ready-")}$OMPI_COMM_WORLD_RANK sleep'],
                                 env={"GPUPROBE_FLUSH_MS": "20"})
            harness.wait_until(lambda: len(glob.glob(self.path("ready-*"))) == 4, "four ranks")
            if prefix:
                self.await_recorded({rank: 20 for rank in range(4)})
            program.signal(signal.SIGINT)
            return program.wait().returncode
        self.assertEqual(interrupted(*self.run_of()), interrupted())
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {rank: 20 for rank in range(4)})


class EndsOfRanks(RanksOfOneHost):

    @hazard("a launcher starts `gpuprobe run` for each rank, and the ranks end one after the other", sees="each rank's own status, when its command ends, that of the one "
            "that records for all, too; the last one waits for the report", counted="one report has everything of all ranks")
    def test_each_has_its_own_end(self):
        first = self.start_first("kernels:5", "return:3", ranks=3)
        second = self.start_waiting_rank(1, "return:4", ranks=3)
        third = self.start_rank(2, "kernels:7", "return:0", ranks=3)
        self.assertEqual([first.wait().returncode, third.wait().returncode], [3, 0])
        self.assertTrue(second.alive())
        self.assertFalse(os.path.exists(self.path("out", "report.json")))
        self.go()
        self.assertEqual(second.wait().returncode, 4)
        self.assertTrue(os.path.exists(self.path("out", "report.json")), "the last one waits for it")
        self.assert_nothing_left()
        self.assert_one_report(first.so_far().decode(), 3)
        for other in (second, third):
            self.assertEqual(other.so_far(), b"")
        self.assertEqual(self.kernels(), {0: 5, 1: 80, 2: 7})
        ends = {rank["rank"]: rank["end"] for rank in self.report(self.path("out"))["ranks"]}
        self.assertEqual([ends[rank]["exit_code"] for rank in range(3)], [3, 4, 0])

    def test_one_collector_for_all(self):
        ranks = [self.start_waiting_rank(rank, ranks=3) for rank in range(3)]
        self.assertEqual([len(self.collectors_of(rank)) for rank in ranks], [1, 0, 0])
        self.go()
        self.assertEqual([rank.wait().returncode for rank in ranks], [0, 0, 0])
        self.assertEqual(self.kernels(), {0: 80, 1: 80, 2: 80})
        self.assert_nothing_runs()

    def test_a_launcher_that_starts_only_some_ranks_under_the_probe(self):
        """Those that never come are waited for in vain, and not for long."""
        only = self.start_rank(5, "kernels:5", ranks=8)
        self.assertEqual(only.wait(limit=60).returncode, 0)
        self.assertEqual(self.kernels(), {5: 5})
        self.assert_nothing_runs()

    @hazard("signals are sent to the `gpuprobe run` of a rank that joined another one's collector", sees="each one reaches that rank's command", counted="what was recorded is reported")
    def test_signals_to_a_rank_that_joined(self):
        first = self.start_waiting_rank(0)
        second = self.start_rank(1, "on-term", "kernels:50", "sleep")
        self.await_recorded({0: 50, 1: 50})
        second.signal(signal.SIGTERM)
        finished = second.wait()
        self.assertEqual((finished.returncode, finished.stdout), (3, b"caught SIGTERM\n"))
        self.assertTrue(first.alive())
        self.go()
        self.assertEqual(first.wait().returncode, 0)
        self.assertEqual(self.kernels(), {0: 80, 1: 50})
        self.assert_nothing_runs()

    @hazard("the process that records for all ranks of a launcher is killed", sees="no difference; each `gpuprobe run` ends as its command does",
            counted="one of them says so in one line, and which command shows what was recorded until then")
    def test_the_collector_is_killed(self):
        first = self.start_waiting_rank(0, "return:7")
        second = self.start_waiting_rank(1, "return:8")
        collector, = self.collectors_of(first)
        self.await_recorded({0: 50, 1: 50})
        os.kill(collector, signal.SIGKILL)
        harness.wait_until(lambda: b"the command goes on" in first.so_far(), "the line")
        self.go()
        self.assertEqual([first.wait().returncode, second.wait().returncode], [7, 8])
        self.assertRegex(first.so_far(), rb"^gpuprobe: run: the collector was killed by signal 9 [^\n]*\n[^\n]*gpuprobe report [^\n]*\n$")
        self.assertEqual(second.so_far(), b"")
        self.assert_nothing_left()

    @hazard("the `gpuprobe run` that waits for the first rank's command is killed (SIGKILL)", sees="all commands go on", counted="everything is recorded, and the report is written when the last rank ends")
    def test_the_first_is_killed(self):
        first = self.start_waiting_rank(0)
        second = self.start_waiting_rank(1, "return:6")
        first.signal(signal.SIGKILL)
        first.wait()
        self.go()
        self.assertEqual(second.wait().returncode, 6)
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {0: 80, 1: 80})

    @hazard("the `gpuprobe run` of a rank that joined another one's collector is killed (SIGKILL)", sees="its command goes on", counted="everything is recorded")
    def test_one_that_joined_is_killed(self):
        first = self.start_waiting_rank(0)
        second = self.start_waiting_rank(1)
        second.signal(signal.SIGKILL)
        second.wait()
        self.go()
        self.assertEqual(first.wait().returncode, 0)
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {0: 80, 1: 80})

    def test_a_command_that_cannot_be_executed(self):
        """Of the first, and of one that joins."""
        missing = self.path("no-such-program")
        env = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        finished = self.run_program(self.run_of(missing), env=env)
        self.assertEqual(finished.returncode, 127, str(finished))
        first = self.start_waiting_rank(0)
        finished = self.run_program(self.run_of(missing), env={**env, "RANK": "1"})
        self.assertEqual(finished.returncode, 127, str(finished))
        self.go()
        self.assertEqual(first.wait().returncode, 0)
        self.assertEqual(self.kernels(), {0: 80})
        self.assert_nothing_left()


class JobsApart(RanksOfOneHost):

    def test_two_launchers_at_once(self):
        jobs = [self.start([LAUNCH_RANKS, "3", *self.run_of(*TRAINING, out=name)], devices=3, env={**PATIENT, "TORCHELASTIC_RUN_ID": "none"}) for name in ("one", "two")]
        for job, name in zip(jobs, ("one", "two")):
            finished = job.wait()
            self.assertEqual(finished.returncode, 0, str(finished))
            self.assert_one_report(finished.stderr.decode(), 3)
            self.assertEqual(sorted(self.kernels(name)), [0, 1, 2])
        self.assert_nothing_left()

    def test_the_next_command_of_a_script_while_other_ranks_are_at_the_one_before(self):
        """Two runs, each with both ranks, although they overlap."""
        before = [self.start_waiting_rank(rank, out="before") for rank in (0, 1)]
        ready = self.path("ready-0-after")
        after = [self.start_rank(0, "kernels:3", f"touch:{ready}", f"await:{self.path('end')}", out="after")]
        harness.wait_until(lambda: os.path.exists(ready), "the next command of rank 0")
        self.go()
        self.assertEqual([program.wait().returncode for program in before], [0, 0])
        after.append(self.start_rank(1, "kernels:4", f"touch:{self.path('end')}", out="after"))
        self.assertEqual([program.wait().returncode for program in after], [0, 0])
        self.assertEqual((self.kernels("before"), self.kernels("after")), ({0: 80, 1: 80}, {0: 3, 1: 4}))
        self.assert_nothing_left()

    def test_ranks_with_directories_of_their_own(self):
        """Several jobs that one launcher starts."""
        programs = [self.start_waiting_rank(rank, f"return:{rank}", out=f"out-{rank}") for rank in (0, 1)]
        self.go()
        self.assertEqual([program.wait().returncode for program in programs], [0, 1])
        for rank, program in enumerate(programs):
            self.assert_one_report(program.so_far().decode(), "1 of 2")
            self.assertEqual(self.kernels(f"out-{rank}"), {rank: 80})
        self.assert_nothing_left()

    def test_one_rank_needs_no_others(self):
        """A launcher that starts one rank on this host, and a batch script of Slurm, whose commands all have its rank."""
        for env in ({"RANK": "0", "WORLD_SIZE": "1"}, {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
                    {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}):
            program = self.start(self.run_of("/bin/sh", "-c", f"touch {self.path('ready')}; while ! test -e {self.path('go')}; do sleep 0.02; done"), env=env)
            harness.wait_until(lambda: os.path.exists(self.path("ready")), "the command")
            self.assertEqual(glob.glob(self.path("run", "gpuprobe", "job-*")), [])
            self.go()
            self.assertEqual(program.wait().returncode, 0)
            for name in ("go", "ready"):
                os.remove(self.path(name))
        self.assert_nothing_runs()


class MeetingPlace(RanksOfOneHost):

    def test_only_this_user_can_enter(self):
        program = self.start_waiting_rank(0)
        folder = self.job_folder()
        for path in (os.path.dirname(folder), folder):
            self.assertEqual((os.stat(path).st_mode & 0o777, os.stat(path).st_uid), (0o700, os.geteuid()))
        self.go()
        self.assertEqual(program.wait().returncode, 0)
        self.assert_nothing_runs()

    def test_what_a_killed_run_left_behind_is_removed(self):
        first = self.start_waiting_rank(0)
        left = self.job_folder()
        collector, = self.collectors_of(first)
        for pid in (first.pid, collector):
            os.kill(pid, signal.SIGKILL)
        first.wait()
        self.go()
        harness.wait_until(lambda: not os.path.exists(f"/proc/{collector}"), "the collector's end")
        self.assertTrue(os.path.exists(left))
        ranks = [self.start_rank(rank, "kernels:9", out="new") for rank in (0, 1)]
        self.assertEqual([rank.wait().returncode for rank in ranks], [0, 0])
        self.assertEqual(self.kernels("new"), {0: 9, 1: 9})
        self.assert_nothing_left()

    def test_a_folder_that_cannot_be_used(self):
        """The ranks meet in /tmp."""
        os.rmdir(self.path("run"))
        place = f"/tmp/gpuprobe-{os.getuid()}"
        program = self.start_waiting_rank(0)
        self.assertTrue(glob.glob(os.path.join(place, "job-*", "ranks.sock")))
        other = self.start_rank(1, "kernels:8")
        self.go()
        self.assertEqual([program.wait().returncode, other.wait().returncode], [0, 0])
        self.assertEqual(self.kernels(), {0: 80, 1: 8})
        self.assert_nothing_runs()

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_a_folder_of_another_user(self):
        """Nobody else's folder is entered, whatever is in it: each rank is recorded by itself, and says why."""
        os.chmod(self.folder, 0o755)
        os.chown(self.path("run"), 1234, 1234)
        planted = tempfile.mkdtemp(prefix="gpe2e-", dir="/tmp")
        self.addCleanup(shutil.rmtree, planted, True)
        uid = 54321
        place = f"/tmp/gpuprobe-{uid}"
        os.mkdir(place, 0o777)
        self.addCleanup(shutil.rmtree, place, True)
        os.chown(place, 1234, 1234)
        for name in ("cwd", "tmp", "home"):
            os.chown(self.path(name), uid, uid)
        command = self.run_of("/bin/true", out="cwd/out")
        env = self.env({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
        finished = subprocess.run(command, env=env, cwd=self.cwd, user=uid, group=uid, extra_groups=[], capture_output=True, timeout=harness.LIMIT_S)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertRegex(finished.stderr, rb"gpuprobe: run: rank 0 is recorded by itself, because .*gpuprobe-54321")
        self.assertEqual(os.listdir(place), [])
        self.assert_nothing_runs()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


SLURM_CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
KillWait=2
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
NodeName=node NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=64 State=UNKNOWN
PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:64
"""


@unittest.skipUnless(os.geteuid() == 0 and all(shutil.which(name) for name in ("slurmctld", "slurmd", "srun")), "needs root and Slurm: install slurmctld, slurmd and slurm-client")
class Slurm(RanksOfOneHost):
    """A cluster of one node, which is this host, with its own configuration and ports."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = tempfile.mkdtemp(prefix="gpslurm-", dir="/tmp")
        cls.addClassCleanup(shutil.rmtree, cls.cluster, True)
        cls.conf = os.path.join(cls.cluster, "slurm.conf")
        with open(cls.conf, "w", encoding="utf-8") as file:
            file.write(SLURM_CONF.format(folder=cls.cluster, controller_port=free_port(), node_port=free_port()))
        for name in ("state", "spool"):
            os.mkdir(os.path.join(cls.cluster, name))
        env = {"PATH": os.environ["PATH"], "SLURM_CONF": cls.conf}
        for command in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "node"]):
            with open(os.path.join(cls.cluster, command[0] + ".log"), "w", encoding="utf-8") as log:
                daemon = subprocess.Popen([*command, "-f", cls.conf], env=env, cwd=cls.cluster, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            cls.addClassCleanup(cls.end, daemon)
        harness.wait_until(lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%t"], env=env, capture_output=True, text=True, check=False).stdout, "node of Slurm")

    @staticmethod
    def end(daemon):
        daemon.terminate()
        try:
            daemon.wait(20)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def env(self, extra=None, devices=1, sim_lib=None):
        return super().env({"SLURM_CONF": self.conf, **(extra or {})}, devices, sim_lib)

    def test_srun(self):
        plain = self.run_well(["srun", "-n", "4", *TRAINING], devices=4)
        self.forget_truth()
        finished = self.run_program(["srun", "-n", "4", *self.run_of(*TRAINING)], devices=4, env=PATIENT)
        self.assert_recorded(finished)
        self.assertEqual(sorted(finished.stdout), sorted(plain.stdout))

    def test_statuses_of_tasks(self):
        script = f"exec {CUDA_SCRIPT} kernels:5 return:$SLURM_PROCID"
        plain = self.run_program(["srun", "-n", "3", "/bin/sh", "-c", script])
        finished = self.run_program(["srun", "-n", "3", *self.run_of("/bin/sh", "-c", script)], env=PATIENT)
        self.assertEqual((plain.returncode, finished.returncode), (2, 2), str(finished))
        for task in (1, 2):
            self.assertIn(b"task %d: Exited with exit code %d" % (task, task), finished.stderr)
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {0: 5, 1: 5, 2: 5})

    def test_steps_of_one_job(self):
        """Two at once, then one more: three runs."""
        steps = " ".join(f"srun --overlap -n 2 {' '.join(self.run_of(CUDA_SCRIPT, f'kernels:{count}', out=f'out-{count}', options=['--quiet']))} {end}"
                         for count, end in ((10, "&"), (20, "& wait;"), (30, "")))
        finished = self.run_program(["salloc", "-n", "4", "/bin/sh", "-c", steps], env=PATIENT)
        self.assertEqual(finished.returncode, 0, str(finished))
        self.assert_nothing_left()
        for count in (10, 20, 30):
            self.assertEqual(self.kernels(f"out-{count}"), {0: count, 1: count})

    @hazard("scancel ends a Slurm step whose tasks are `gpuprobe run`", sees="the tasks get SIGTERM, and srun says so, as without the probe", counted="one report has all tasks up to then")
    def test_scancel(self):
        def cancelled(*prefix):
            program = self.start(["srun", "-n", "3", *prefix, "/bin/sh", "-c", f"exec {CUDA_SCRIPT} kernels:20 touch:{self.path('ready-')}$SLURM_PROCID sleep"], env={"GPUPROBE_FLUSH_MS": "20"})
            harness.wait_until(lambda: len(glob.glob(self.path("ready-*"))) == 3, "three tasks")
            if prefix:
                self.await_recorded({0: 20, 1: 20, 2: 20})
            for path in glob.glob(self.path("ready-*")):
                os.remove(path)
            jobs = self.run_well(["squeue", "-h", "-o", "%i"]).stdout.split()
            self.run_well(["scancel", *(job.decode() for job in jobs)])
            return program.wait().returncode
        self.assertEqual(cancelled(*self.run_of()), cancelled())
        self.assert_nothing_left()
        self.assertEqual(self.kernels(), {0: 20, 1: 20, 2: 20})


if __name__ == "__main__":
    harness.main()
