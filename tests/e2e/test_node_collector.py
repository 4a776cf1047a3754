"""`gpuprobe collect --node`: one collector for all users of a node, that keeps them apart."""
import json
import os
import re
import shutil
import stat
import subprocess
import unittest

import harness
import truth
from harness import GPUPROBE, LIBRARY, SIM_LIB, VECTOR_ADD, answers, wait_until

# Nobody on a system: the collector must do with numbers.
ALICE, BOB = 54321, 54322


class NodeCollector(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        self.socket = self.path("node", "gpuprobe-node.sock")
        self.base = self.path("runs")

    def start_collector(self, *options):
        program = self.start([GPUPROBE, "collect", "--node", "--socket", self.socket, "--out", self.base, *options])
        wait_until(lambda: answers(self.socket) or not program.alive(), "collector for the node")
        return program

    def install_for_everybody(self):
        """The build tree may be in somebody's home."""
        place = self.path("installed")
        os.mkdir(place)
        for source in (VECTOR_ADD, LIBRARY):
            shutil.copy(source, place)
        shutil.copytree(SIM_LIB, os.path.join(place, "sim"), symlinks=True)
        return place

    def run_as(self, uid, job, command=None):
        """vector_add under the probe as another user, with a truth folder of its own; returns that folder."""
        place = self.path("installed")
        own = self.path(f"user-{uid}-{job}")
        os.mkdir(own)
        os.chown(own, uid, uid)
        env = self.env({"GPUPROBE_SOCKET": self.socket, "GPUPROBE_AUTOSTART": "0", "CUDA_INJECTION64_PATH": os.path.join(place, "libgpuprobe.so"),
                        "TORCHELASTIC_RUN_ID": job, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "GPUSIM_TRUTH": os.path.join(own, "truth"),
                        "HOME": own, "TMPDIR": own, "XDG_RUNTIME_DIR": own, **harness.PATIENT}, sim_lib=os.path.join(place, "sim"))
        done = subprocess.run(command or [os.path.join(place, "vector_add")], env=env, cwd=own, user=uid, group=uid, extra_groups=[], timeout=harness.LIMIT_S,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return os.path.join(own, "truth")

    def logged(self, folder):
        records = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                records += [json.loads(line) for line in file]
        return records

    def runs_of(self, uid):
        home = os.path.join(self.base, str(uid))
        return sorted(os.path.join(home, name) for name in os.listdir(home)) if os.path.isdir(home) else []

    def as_user(self, uid, command):
        return subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True, timeout=harness.LIMIT_S, check=False)

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as two users")
    def test_each_user_gets_his_own_runs_and_nobody_elses(self):
        self.install_for_everybody()
        collector = self.start_collector()
        happened = {uid: self.run_as(uid, "one") for uid in (ALICE, BOB)}
        # While the collector lives: a run is there when its last process has gone.
        for uid in (ALICE, BOB):
            wait_until(lambda uid=uid: self.runs_of(uid), f"run of {uid}")
        for uid, other in ((ALICE, BOB), (BOB, ALICE)):
            [run] = self.runs_of(uid)
            self.assertEqual(truth.differences(self.logged(happened[uid]), self.export(run)), [])
            self.assertTrue(os.path.exists(os.path.join(run, "report.html")))
            for path in (os.path.join(self.base, str(uid)), run, *(os.path.join(run, name) for name in os.listdir(run))):
                self.assertEqual(os.lstat(path).st_uid, uid, path)
            self.assertEqual(stat.S_IMODE(os.stat(run).st_mode), 0o700)
            self.assertEqual(self.as_user(uid, ["cat", os.path.join(run, "report.json")]).returncode, 0)
            self.assertNotEqual(self.as_user(other, ["ls", run]).returncode, 0)
            self.assertNotEqual(self.as_user(other, ["cat", os.path.join(run, "report.json")]).returncode, 0)
        self.assertNotEqual(self.as_user(ALICE, ["ls", os.path.join(self.base, ".recording")]).returncode, 0)
        collector.signal(15)
        ended = collector.wait()
        self.assertEqual(ended.returncode, 0, str(ended))
        said = ended.stderr.decode()
        self.assertRegex(said, rf"gpuprobe: {ALICE}: 1 rank, {re.escape(self.base)}/{ALICE}/\S+\n")
        self.assertEqual(os.listdir(os.path.join(self.base, ".recording")), [])
        self.assertFalse(os.path.exists(self.socket))

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as another user")
    def test_a_second_job_of_a_user_is_a_run_of_its_own(self):
        self.install_for_everybody()
        self.start_collector("--step-marker", "kernel:VectorAdd")
        for job in ("one", "two"):
            self.run_as(ALICE, job)
        wait_until(lambda: len(self.runs_of(ALICE)) == 2, "two runs")
        for run in self.runs_of(ALICE):
            with open(os.path.join(run, "settings.txt"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "step-marker=kernel:VectorAdd\n")
            self.assertFalse(os.path.exists(os.path.join(run, "live.txt")))

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as another user")
    def test_a_directory_that_somebody_else_put_there_is_not_written_into(self):
        self.install_for_everybody()
        collector = self.start_collector()
        os.symlink(self.path("home"), os.path.join(self.base, str(ALICE)))
        self.run_as(ALICE, "one")
        recording = os.path.join(self.base, ".recording")
        collector.signal(15)
        said = collector.wait().stderr.decode()
        self.assertIn(f"a run of {ALICE} stays in {recording}/", said)
        self.assertEqual(os.listdir(self.path("home")), [])
        [run] = os.listdir(recording)
        self.assertTrue(os.path.exists(os.path.join(recording, run, "report.json")), "the report is lost")

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it becomes another user")
    def test_only_root_may_serve_a_node(self):
        refused = self.as_user(ALICE, [shutil.copy(GPUPROBE, self.path("gpuprobe-copy")), "collect", "--node", "--socket", self.path("x.sock")])
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr.decode(), r"^gpuprobe: collect: --node needs root: .*without --node.*\n$")


if __name__ == "__main__":
    harness.main()
