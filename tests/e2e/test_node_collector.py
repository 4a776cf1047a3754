"""`gpuprobe collect --node`: one collector for all users of a node, that keeps them apart."""
import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import unittest

import harness
import wire
from hazards import hazard
from harness import GPUPROBE, LIBRARY, SIM_LIB, VECTOR_ADD, answers, wait_until

# Nobody on a system: the collector must do with numbers.
ALICE, BOB = 54321, 54322


class NodeCollector(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("node"))
        self.socket = self.path("node", "gpuprobe-node.sock")
        self.base = self.path("runs")

    def start_collector(self, *options):
        program = self.start([GPUPROBE, "collect", "--node", "--socket", self.socket, "--out", self.base, *options])
        wait_until(lambda: answers(self.socket) or not program.alive(), "collector for the node")
        self.addCleanup(self.end, program)
        return program

    def end(self, program):
        """In order, so that the users' processes have ended, too."""
        program.signal(15)
        program.wait()

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
        """Those that are reported."""
        home = os.path.join(self.base, str(uid))
        runs = sorted(os.path.join(home, name) for name in os.listdir(home)) if os.path.isdir(home) else []
        return [run for run in runs if os.path.exists(os.path.join(run, "report.html"))]

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
            self.assertEqual(self.differences(self.logged(happened[uid]), self.export(run)), [])
            self.assertTrue(os.path.exists(os.path.join(run, "report.html")))
            for path in (os.path.join(self.base, str(uid)), run, *(os.path.join(run, name) for name in os.listdir(run))):
                self.assertEqual(os.lstat(path).st_uid, uid, path)
            self.assertEqual(stat.S_IMODE(os.stat(run).st_mode), 0o700)
            self.assertEqual(self.as_user(uid, ["cat", os.path.join(run, "report.json")]).returncode, 0)
            self.assertNotEqual(self.as_user(other, ["ls", run]).returncode, 0)
            self.assertNotEqual(self.as_user(other, ["cat", os.path.join(run, "report.json")]).returncode, 0)
        # Each user's process has ended with his last run, and nothing of it is left.
        wait_until(lambda: not self.processes_of(ALICE) and not self.processes_of(BOB), "end of the users' processes")
        collector.signal(15)
        ended = collector.wait()
        self.assertEqual(ended.returncode, 0, str(ended))
        said = ended.stderr.decode()
        self.assertRegex(said, rf"gpuprobe: {ALICE}: 1 rank, {re.escape(self.base)}/{ALICE}/\S+\n")
        # That of root is of the test's own connection.
        self.assertEqual(sorted(set(os.listdir(self.base)) - {"root"}), [str(ALICE), str(BOB)])
        self.assertFalse(os.path.exists(self.socket))

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as another user")
    def test_a_second_job_of_a_user_is_a_run_of_its_own(self):
        self.install_for_everybody()
        self.start_collector("--step-marker", "kernel:*VectorAdd*")
        for job in ("one", "two"):
            self.run_as(ALICE, job)
        wait_until(lambda: len(self.runs_of(ALICE)) == 2, "two runs")
        for run in self.runs_of(ALICE):
            with open(os.path.join(run, "settings.txt"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "step-marker=kernel:*VectorAdd*\n")
            wait_until(lambda run=run: not os.path.exists(os.path.join(run, "live.json")), "the end of the run")

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as another user")
    def test_what_a_user_sends_is_read_by_a_process_of_his_own(self):
        """It has his rights, no way to others, and no descriptor of the collector's but the two that it needs."""
        collector = self.start_collector()
        with wire.connect_as(ALICE, self.socket) as connection:
            connection.sendall(wire.delimited(wire.hello()))
            [pid] = wait_until(lambda: self.processes_of(ALICE), "process of the user")
            wait_until(lambda: self.run_directories(ALICE), "run directory")
            status = harness.read_proc(pid, "status").decode()
            self.assertRegex(status, rf"\nUid:\t{ALICE}\t{ALICE}\t{ALICE}\t{ALICE}\n")
            self.assertRegex(status, rf"\nGid:\t{ALICE}\t{ALICE}\t{ALICE}\t{ALICE}\n")
            self.assertRegex(status, r"\nGroups:\t *\n")
            self.assertRegex(status, r"\nNoNewPrivs:\t1\n")
            self.assertRegex(status, r"\nCapEff:\t0+\n")
            self.assertRegex(harness.read_proc(pid, "limits").decode(), r"Max core file size +0 +0 ")
            allowed = r"/dev/null|socket:.*|anon_inode:.*|" + re.escape(os.path.join(self.base, str(ALICE))) + r"(/.*)?"

            def targets():
                """Of its descriptors; some are open for a moment only."""
                for name in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(FileNotFoundError):
                        yield os.readlink(f"/proc/{pid}/fd/{name}")
            wait_until(lambda: all(re.fullmatch(allowed, target) for target in targets()), "moment in which it has none of others'")
            self.assertLess(sum(target.startswith("socket:") for target in targets()), 3, "the listener or another user's socket")
        collector.signal(15)
        self.assertEqual(collector.wait().returncode, 0)
        self.assertEqual(len(self.runs_of(ALICE)), 1)

    @hazard("the process that records for one user of a node is killed", sees="no difference", counted="other users' runs go on; what was written is kept, and the user's next program is recorded")
    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as two users")
    def test_a_user_who_kills_his_process_harms_himself_only(self):
        collector = self.start_collector()
        with wire.connect_as(ALICE, self.socket) as alice, wire.connect_as(BOB, self.socket) as bob:
            for connection in (alice, bob):
                connection.sendall(wire.delimited(wire.hello()))
            wait_until(lambda: self.run_directories(ALICE) and self.run_directories(BOB), "runs")
            [pid] = self.processes_of(ALICE)
            self.as_user(ALICE, ["kill", "-9", str(pid)])
            while alice.recv(4096):  # the answer to Hello, then the end
                pass
            bob.sendall(wire.delimited(wire.bye()))
        wait_until(lambda: self.runs_of(BOB), "run of the other user")
        self.assertIn(f"the collector process for {ALICE} ended with signal 9".encode(), collector.so_far())
        self.install_for_everybody()
        wait_until(lambda: self.finds_collector(ALICE), "a new process for him", limit=20)
        collector.signal(15)
        self.assertEqual(collector.wait().returncode, 0)

    @hazard("a symbolic link is planted where the node's collector keeps a user's runs", sees="one line: refused", counted="nothing is written, and the operator's log says so")
    @unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as another user")
    def test_a_directory_that_somebody_else_put_there_is_not_written_into(self):
        collector = self.start_collector()
        os.symlink(self.path("home"), os.path.join(self.base, str(ALICE)))
        with wire.connect_as(ALICE, self.socket) as connection:
            with contextlib.suppress(BrokenPipeError):  # refused before Hello was sent
                connection.sendall(wire.delimited(wire.hello()))
            self.assertIn("/runs/" + str(ALICE), wire.refusal(wire.read_until_closed(connection)))
        collector.signal(15)
        self.assertIn(f"a program of uid {ALICE} was refused: ", collector.wait().stderr.decode())
        self.assertEqual(os.listdir(self.path("home")), [])

    def processes_of(self, uid):
        """Among those that this test's collector has started."""
        found = []
        for pid in harness.all_pids():
            is_collector = b"--node" in harness.read_proc(pid, "cmdline") and self.socket.encode() in harness.read_proc(pid, "cmdline")
            if is_collector and f"\nUid:\t{uid}\t".encode() in harness.read_proc(pid, "status"):
                found.append(pid)
        return found

    def run_directories(self, uid):
        home = os.path.join(self.base, str(uid))
        return os.listdir(home) if os.path.isdir(home) else []

    def finds_collector(self, uid):
        """Whether a program of this user is recorded now."""
        before = len(self.run_directories(uid))
        with wire.connect_as(uid, self.socket) as connection:
            connection.sendall(wire.delimited(wire.hello()) + wire.delimited(wire.bye()))
            received = wire.read_some(connection, 0.3)
        return wire.refusal(received) is None and len(self.run_directories(uid)) > before

    @unittest.skipUnless(os.geteuid() == 0, "needs root: it becomes another user")
    def test_only_root_may_serve_a_node(self):
        refused = self.as_user(ALICE, [shutil.copy(GPUPROBE, self.path("gpuprobe-copy")), "collect", "--node", "--socket", self.path("x.sock")])
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr.decode(), r"^gpuprobe: collect: --node needs root: .*drop --node.*\n$")


if __name__ == "__main__":
    harness.main()
