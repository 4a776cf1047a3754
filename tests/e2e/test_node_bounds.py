"""What one user may take of `gpuprobe collect --node` (docs/security.md), bound by bound.

Each is reached exactly, refused beyond in a line that says which it is, no other user's matter, and free again with what it counts.
"""
import os
import select
import shutil
import tempfile
import time
import unittest

import harness
import wire
from harness import GPUPROBE, wait_until

ALICE, BOB = 54331, 54332
RUNS, PROCESSES, KEPT_RUNS, KEPT_FILES = 64, 4096, 2000, 100_000
MIB = 1 << 20
UNFINISHED = 64 * MIB
DISK, LEAST_OF_A_RUN, ENTRY = 256 * MIB, 16 * MIB, 4096  # ENTRY: what each file and directory counts besides its blocks


@unittest.skipUnless(os.geteuid() == 0, "needs root: it acts as two users")
class NodeBounds(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("node"))
        self.socket = self.path("node", "gpuprobe-node.sock")
        self.base = self.path("runs")
        self.held = []
        self.pids = iter(range(1 << 23, 1 << 24))  # above every process
        self.home = os.path.join(self.base, str(ALICE))
        self.start_collector()

    def start_collector(self, *options):
        self.collector = self.start([GPUPROBE, "collect", "--node", "--socket", self.socket, "--out", self.base, *options])
        wait_until(lambda: b"collecting for all users" in self.collector.so_far(), "collector")

    def stop_collector(self):
        self.collector.signal(15)
        self.assertEqual(self.collector.wait().returncode, 0)

    def tearDown(self):
        for connection in self.held:
            connection.close()
        self.stop_collector()

    def begin(self, run, uid=ALICE):
        """A process of the user's that stays; returns its connection and why it was refused, None if it was not."""
        connection = wire.connect_as(uid, self.socket)
        connection.sendall(wire.delimited(wire.hello(pid=next(self.pids), run=run)))
        received = connection.recv(65536)  # whatever it is: an answer to Hello or a refusal
        return connection, wire.refusal(received)

    def taken(self, run, uid=ALICE):
        connection, refused = self.begin(run, uid)
        self.held.append(connection)
        self.assertIsNone(refused, run)
        return connection

    def refused(self, run):
        connection, why = self.begin(run)
        connection.close()
        self.assertIsNotNone(why, f"{run} was taken")
        self.taken("other", BOB)  # beside it
        return why

    def is_taken_again(self, run):
        """By and by: a run counts until it is reported."""
        def attempt():
            connection, refused = self.begin(run)
            self.held.append(connection)
            return refused is None
        wait_until(attempt, "place for a new run", limit=30)

    def make_home(self):
        os.mkdir(self.home, 0o700)
        os.chown(self.home, ALICE, ALICE)

    def make_run(self, name, files=()):
        os.mkdir(os.path.join(self.home, name))
        for file in files:
            os.close(os.open(os.path.join(self.home, name, file), os.O_CREAT | os.O_WRONLY))

    def test_runs_at_a_time(self):
        connections = [self.taken(f"run {i}") for i in range(RUNS)]
        self.assertRegex(self.refused("one more"), rf"you have {RUNS} runs on this node already; end one of them")
        self.taken("run 0")  # another process of a run that is there
        connections[5].close()
        self.is_taken_again("one more")

    def test_runs_that_begin_too_fast(self):
        connections = [self.taken(f"run {i}") for i in range(RUNS)]
        for connection in connections:
            connection.close()
        wait_until(lambda: len([name for name in os.listdir(self.home) if os.path.exists(os.path.join(self.home, name, "report.html"))]) == RUNS, "end of all runs")
        self.begin("warm")[0].close()
        reasons = [self.begin(f"again {i}") for i in range(RUNS)]
        for connection, _ in reasons:
            connection.close()
        self.assertIn("your runs on this node start too fast; try again", [why for _, why in reasons])
        self.taken("other", BOB)
        self.is_taken_again("later")

    def test_processes_of_all_runs(self):
        first = self.taken("one")
        for _ in range(PROCESSES - 1):
            connection, why = self.begin("one")
            connection.close()
            self.assertIsNone(why)
        self.assertRegex(self.refused("two"), rf"your runs on this node have {PROCESSES} processes already; end one of them")
        first.close()
        self.is_taken_again("two")

    def test_runs_that_are_kept(self):
        self.make_home()
        for i in range(KEPT_RUNS - 1):
            self.make_run(f"old-{i}")
        self.taken("the last")
        self.assertRegex(self.refused("one more"), rf"/{ALICE} already holds {KEPT_RUNS} runs with \d+ files; remove some of them")
        os.rmdir(os.path.join(self.home, "old-0"))
        self.taken("one more")

    def test_files_that_are_kept(self):
        if os.path.isdir("/dev/shm"):  # where a file is made in no time
            self.stop_collector()
            self.base = tempfile.mkdtemp(prefix="gpe2e-", dir="/dev/shm")
            self.addCleanup(shutil.rmtree, self.base)
            os.chmod(self.base, 0o755)
            self.home = os.path.join(self.base, str(ALICE))
            self.start_collector()
        self.make_home()
        self.make_run("old", (str(i) for i in range(KEPT_FILES - 1)))
        self.taken("the last")
        self.assertRegex(self.refused("one more"), rf"/{ALICE} already holds 2 runs with 10\d{{4}} files; remove some of them")
        for i in range(10):  # of the last run there are a few by now
            os.unlink(os.path.join(self.home, "old", str(i)))
        self.taken("one more")

    def test_disk_of_kept_runs(self):
        self.stop_collector()
        self.start_collector("--user-disk", f"{DISK // MIB}MiB")
        self.make_home()
        self.make_run("old", ["records"])
        records = os.path.join(self.home, "old", "records")
        with open(records, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, DISK - LEAST_OF_A_RUN - MIB)
        # The run, its file, and then empty files, which count an entry each, up to the last.
        left = DISK - LEAST_OF_A_RUN - 2 * ENTRY - os.stat(records).st_blocks * 512
        self.assertGreater(left, 0)
        for i in range(left // ENTRY + 1):
            os.close(os.open(os.path.join(self.home, "old", str(i)), os.O_CREAT | os.O_WRONLY))
        self.assertRegex(self.refused("too large"), r"has reached this node's limit for one user \(256 MiB\); remove old runs")
        os.unlink(os.path.join(self.home, "old", "0"))
        self.taken("fits")

    def is_open(self, connection):
        """Reads whatever has been said to it, which may be a refusal before its end."""
        try:
            while select.select([connection], [], [], 0)[0]:
                if not connection.recv(65536):
                    return False
        except ConnectionResetError:
            return False
        return True

    def test_unfinished_frames_of_all_processes(self):
        """As much of them as the bound stays; with one more the largest go, down to three quarters of it."""
        part = 8 * MIB - 8192  # what a frame takes with its length; the rest is for what each connection keeps (kWorthKeeping, frame_decoder.cc)
        length = wire.varint(part - 4)
        self.assertEqual(len(length), 4)

        def begin_frame(run):
            connection = self.taken(run)
            connection.sendall((length + b"\x12").ljust(part - 1, b"\0"))  # the beginning of a batch; its last byte is missing
            return connection

        held = [begin_frame("one") for _ in range(UNFINISHED // part)]
        ordinary, other = self.taken("one"), self.taken("other", BOB)
        time.sleep(1)
        self.assertEqual([self.is_open(connection) for connection in held], [True] * len(held))
        held.append(begin_frame("one"))
        wait_until(lambda: sum(map(self.is_open, held)) <= UNFINISHED // part * 3 // 4, "end of the largest")
        time.sleep(1)
        self.assertEqual(sum(map(self.is_open, held)), UNFINISHED // part * 3 // 4)
        self.assertIn(b"its unfinished frame has", self.collector.so_far())
        self.assertTrue(self.is_open(ordinary) and self.is_open(other))
        ordinary.sendall(wire.delimited(wire.bye()))
        self.taken("another")

    def test_memory(self):
        """Runs of a user are ended and reported when recording them takes more."""
        self.stop_collector()
        self.start_collector("--user-memory", "64MiB")
        growing, other = self.taken("grows"), self.taken("other", BOB)
        # Names are kept: 1 MiB of them in each batch.
        for sequence in range(1, 200):
            names = b"".join(wire.block(4, wire.number(1, sequence * 1000 + i) + wire.block(2, f"{sequence} {i} ".ljust(2000, "x"))) for i in range(500))
            try:
                growing.sendall(wire.delimited(wire.block(2, wire.number(1, sequence) + wire.fixed64(2, time.time_ns()) + wire.block(3, wire.clock()) + names)))
            except (BrokenPipeError, ConnectionResetError):
                break
        else:
            self.fail("198 MiB of names were taken")
        self.assertGreater(sequence, 16)
        wait_until(lambda: b"exceed this node's memory limit for one user (64.0 MiB); they are reported up to this point" in self.collector.so_far(), "the line", limit=5)
        wait_until(lambda: [name for name in os.listdir(self.home) if os.path.exists(os.path.join(self.home, name, "report.json"))], "report")
        self.assertTrue(self.is_open(other))
        self.is_taken_again("later")


if __name__ == "__main__":
    harness.main()
