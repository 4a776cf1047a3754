"""What the flight recorder knows of processes that were killed, against what they logged themselves before."""
import contextlib
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY
from hazards import hazard

SHIFTED_CLOCK = os.path.join(harness.BUILD, "tests", "e2e", "libshifted_clock.so")
LOGGED_PROGRESS = os.path.join(harness.BUILD, "tests", "e2e", "logged_progress")
# How often processes are killed; 50 take about two minutes.
ROUNDS = int(os.environ.get("GPUPROBE_KILLS", "10"))
SEED = int(os.environ.get("GPUPROBE_SEED") or random.SystemRandom().randrange(1 << 30))
RANKS = 2
RING_BYTES = 64 << 10


class Progress:
    """Where a program was, by its log: each line is begun before, and ended after, what it says."""

    def __init__(self, lines):
        self.done, self.pending = [], None
        for line in lines:
            mark, _, what = line.partition(" ")
            if mark == ">":
                self.pending = what
            elif mark == "<":
                assert self.pending == what, lines[-3:]
                self.done.append(what)
                self.pending = None

    @staticmethod
    def _ranges(events):
        ranges = []
        for event in events:
            if event.startswith("push "):
                ranges.append(event[len("push "):])
            elif event == "pop":
                ranges.pop()
        return ranges

    @property
    def ranges(self):
        """The open ranges that are possible: the thing that was begun may have been done."""
        return [self._ranges(self.done)] + ([self._ranges([*self.done, self.pending])] if self.pending else [])

    @property
    def calls(self):
        """(sequence, whether it had returned) that are possible."""
        numbers = [int(event.split()[1]) for event in self.done if event.startswith("call ")]
        possible = [(numbers[-1], True)] if numbers else []
        if self.pending and self.pending.startswith("call "):
            number = int(self.pending.split()[1])
            possible += [(number, False), (number, True)]
        return possible


class Recorder(harness.EndToEndTest):

    def setUp(self):
        super().setUp()
        print(f"GPUPROBE_SEED={SEED}")
        self.random = random.Random(SEED)

    def shared_rings(self):
        """Those of this test's runs: others run at the same time."""
        own = set()
        for path in glob.glob(f"/dev/shm/gpuprobe-{os.geteuid()}/*"):
            with contextlib.suppress(FileNotFoundError), open(path, "rb") as file:
                if os.fsencode(self.folder) in file.read():
                    own.add(path)
        return own

    def lines(self, log, rank):
        """Whole ones."""
        try:
            with open(f"{log}.{rank}", encoding="ascii") as file:
                return [line[:-1] for line in file if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def pid_of(self, log, rank):
        return int(self.lines(log, rank)[0].split()[1])

    def autopsy(self, run):
        found = json.loads(self.run_well([GPUPROBE, "autopsy", run, "--json"]).stdout)["processes"]
        return {process["rank"]: process for process in found}

    def begin(self, name, way=(), steps=40):
        """A collector and ranks that are well under way."""
        collector = harness.Collector(self, out=self.path(f"{name}-run"), socket=self.path(f"{name}.sock"))
        log = self.path(name)
        job = self.start([LAUNCH_RANKS, str(RANKS), LOGGED_PROGRESS, log, *way], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY}, devices=RANKS)
        harness.wait_until(lambda: all(len(self.lines(log, rank)) > 20 * steps for rank in range(RANKS)) or not job.alive(), "steps of every rank")
        self.assertTrue(job.alive(), job.finished())
        return collector, log, job

    def assert_is_where_it_was(self, process, log):
        progress = Progress(self.lines(log, process["rank"]))
        said = f"{process}\n{progress.done[-4:]} {progress.pending}"
        self.assertEqual(process["torn"] if process["torn"] > 1 else 0, 0, said)  # the record that the signal interrupted
        if process["torn"] == 0:
            # Between two steps the thread has no range, and it launches nothing itself: then it is not listed.
            ranges = next((thread["ranges"] for thread in process["threads"] if thread["main"]), [])
            self.assertIn(ranges, progress.ranges, said)
            call = process["calls"][0]
            self.assertIn((call["sequence"], call["left_ns"] is not None), progress.calls, said)
            self.assertEqual((call["operation"], call["ranks"], call["bytes"]), ("AllReduce", RANKS, 16384), said)
        self.assertEqual(process["pid"], self.pid_of(log, process["rank"]))
        self.assertLessEqual(abs(process["seen_ns"] / 1e9 - os.stat(f"{log}.{process['rank']}").st_mtime), 2, said)

    def end(self, collector, job, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.kill()
        if collector.program.alive():
            collector.stop()

    @hazard("a rank, its collector, or both are killed (SIGKILL) at any moment", sees="ends by SIGKILL; the others go on",
            counted="the last call into NCCL, whether it returned, and the open ranges are what the rank itself had logged")
    def test_killed_at_a_random_moment(self):
        for number in range(ROUNDS):
            victims = ("rank", "collector", "both")[number % 3]
            with self.subTest(f"round {number}: {victims}"):
                collector, log, job = self.begin(f"round-{number}")
                pids = [self.pid_of(log, rank) for rank in range(RANKS)]
                time.sleep(self.random.uniform(0, 0.3))
                victim = self.random.randrange(RANKS)
                if victims != "rank":
                    collector.program.signal(signal.SIGKILL)
                    collector.program.wait()
                if victims == "collector":  # and the ranks go on
                    time.sleep(self.random.uniform(0, 0.3))
                    for pid in pids:
                        os.kill(pid, signal.SIGSTOP)
                    self.await_stopped(pids)
                    looked = range(RANKS)
                else:
                    os.kill(pids[victim], signal.SIGKILL)
                    harness.wait_until(lambda pid=pids[victim]: harness.is_dead(pid), "end of the rank")
                    looked = [victim]
                if victims == "rank":  # the collector notes the end, and keeps the ring
                    harness.wait_until(lambda: not os.path.islink(os.path.join(collector.out, f"rank-{victim}.ring")), "ring in the run directory")
                found = self.autopsy(collector.out)
                for rank in looked:
                    self.assert_is_where_it_was(found[rank], log)
                    self.assertEqual(found[rank]["ended_ns"] is not None, victims == "rank")
                self.end(collector, job, pids)
                self.assert_reported(collector.out, victim, found[victim], victims)
                harness.remove_rings(collector.out)
        self.assertEqual(self.shared_rings(), set(), "what a run leaves in /dev/shm is named by its directory")

    def await_stopped(self, pids):
        for pid in pids:
            harness.wait_until(lambda pid=pid: b"State:\tT" in harness.read_proc(pid, "status"), "stop of the rank")

    def assert_reported(self, run, rank, known, victims):
        report = json.loads(self.run_well([GPUPROBE, "report", run, "--json", "--ranks"]).stdout)
        entry = next(r for r in report["ranks"] if r["rank"] == rank)
        self.assertTrue(entry["cut_off"])
        if victims == "rank":
            self.assertEqual(entry["last_moments"], known)
        self.assertIn("last_moments", entry)
        told = [f["evidence"] for f in report["findings"] if f["id"] in ("rank-died", "rank-cut-off") and "ast moments" in f["evidence"]]
        of_it = [words for words in told if f"Last moments of rank {rank}: " in words or (f"It was pid {known['pid']} " in words and " Its last moments: " in words)]
        self.assertEqual(len(of_it), 1, told)
        self.assertIn("AllReduce", of_it[0])

    def test_orderly_end_leaves_nothing(self):
        run = self.path("recorded")
        self.run_well([GPUPROBE, "run", "--out", run, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *harness.SMALL_TRAINING], devices=2)
        self.assertEqual([name for name in os.listdir(run) if name.endswith(".ring")], [])
        self.assertEqual(self.shared_rings(), set())
        refused = self.run_program([GPUPROBE, "autopsy", run])
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"left a flight recorder: each ended in order", refused.stderr)

    def look_at_stopped(self, name, way, **options):
        collector, log, job = self.begin(name, way, **options)
        pids = [self.pid_of(log, rank) for rank in range(RANKS)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.await_stopped(pids)
        found = self.autopsy(collector.out)
        for rank in range(RANKS):
            self.assert_is_where_it_was(found[rank], log)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.end(collector, job, pids)
        harness.remove_rings(collector.out)
        return found

    def test_line_of_python(self):
        program = os.path.join(harness.SOURCE, "tests", "e2e", "programs", "host_samples.py")
        collector = harness.Collector(self)
        job = self.start(["/usr/bin/python3", "-B", program, "steps", "100000"], env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY})

        def stacks():
            found = self.run_program([GPUPROBE, "autopsy", collector.out, "--json"])
            return [process["stack"] for process in json.loads(found.stdout)["processes"] if process["stack"]] if found.returncode == 0 else []
        harness.wait_until(lambda: stacks() or not job.alive(), "sampled stack")
        job.signal(signal.SIGKILL)
        job.wait()
        harness.wait_until(lambda: any(name.endswith(".ring") and not os.path.islink(os.path.join(collector.out, name)) for name in os.listdir(collector.out)),
                           "ring in the run directory")
        (process,) = json.loads(self.run_well([GPUPROBE, "autopsy", collector.out, "--json"]).stdout)["processes"]
        frames = process["stack"]["python"]
        self.assertIn(frames[0]["function"], ("compute", "wait", "launch", "step"))
        with open(program, encoding="utf-8") as file:
            lines = file.read().split("\n")
        for frame in frames:
            self.assertTrue(frame["file"].endswith("host_samples.py"), frame)
            self.assertGreater(len(lines), frame["line"])
        self.assertEqual(frames[-1]["function"], "<module>")
        self.assertLess(process["ended_ns"] - process["stack"]["at_ns"], 5e9)
        collector.stop()

    @hazard("a program whose flight recorder is in use forks, closes all descriptors, or may map no more memory", sees="no difference",
            counted="its last moments are its own: no child writes to them")
    def test_ways_of_programs(self):
        for way in ("fork", "close", "limit"):
            with self.subTest(way):
                self.look_at_stopped(way, (way,))

    @hazard("somebody removes what is in /dev/shm while programs run", sees="no difference", counted="the collector has the ring mapped, and keeps it when the process is killed")
    def test_ring_is_removed_while_in_use(self):
        collector, log, job = self.begin("removed")
        harness.remove_rings(collector.out)
        lines = len(self.lines(log, 0))
        harness.wait_until(lambda: len(self.lines(log, 0)) > lines + 200 or not job.alive(), "steps after that")
        self.assertTrue(job.alive(), job.finished())
        os.kill(self.pid_of(log, 0), signal.SIGKILL)
        path = os.path.join(collector.out, "rank-0.ring")
        harness.wait_until(lambda: os.path.exists(path) and not os.path.islink(path), "ring in the run directory")
        self.assert_is_where_it_was(self.autopsy(collector.out)[0], log)
        self.end(collector, job, [self.pid_of(log, rank) for rank in range(RANKS)])
        harness.remove_rings(collector.out)

    def test_rings_that_nobody_can_find_go_after_a_day(self):
        rings = {}
        for name in ("deleted", "kept"):
            collector, log, job = self.begin(name)
            pids = [self.pid_of(log, rank) for rank in range(RANKS)]
            collector.program.signal(signal.SIGKILL)
            collector.program.wait()
            self.end(collector, job, pids)
            harness.wait_until(lambda pids=pids: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "end of the ranks")
            rings[collector.out] = {os.readlink(path) for path in glob.glob(os.path.join(collector.out, "*.ring"))}
            self.assertEqual(len(rings[collector.out]), RANKS)
        (deleted, lost), (kept, found) = rings.items()
        shutil.rmtree(deleted)
        for days, left in ((0, lost | found), (2, found)):
            later = harness.Collector(self, env={"LD_PRELOAD": SHIFTED_CLOCK, "SHIFTED_CLOCK_S": str(days * 86_400)})
            self.run_well([LAUNCH_RANKS, "1", DDP_TRAIN, *harness.SMALL_TRAINING], env={**later.env(), "CUDA_INJECTION64_PATH": LIBRARY})
            later.stop()
            self.assertEqual({ring for ring in lost | found if os.path.exists(ring)}, left, f"{days} days later")
        harness.remove_rings(kept)

    def in_small_memory(self, kib, command):
        """With so much of /dev/shm for rings. The simulated node has the rest."""
        return ["unshare", "-m", "sh", "-c", f"mkdir -p -m 700 /dev/shm/gpuprobe-0 && mount -t tmpfs -o mode=700,size={kib}k none /dev/shm/gpuprobe-0 && exec \"$@\"", "sh", *command]

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "mounting takes root")
    @hazard("/dev/shm is full when a process reports", sees="no difference", counted="the ring is a sealed memfd, which the collector keeps when the process is killed")
    def test_full_shared_memory(self):
        run = self.path("recorded")
        log = self.path("log")
        job = self.start(self.in_small_memory(4, [GPUPROBE, "run", "--out", run, "--", LAUNCH_RANKS, str(RANKS), LOGGED_PROGRESS, log]), devices=RANKS)
        harness.wait_until(lambda: all(len(self.lines(log, rank)) > 800 for rank in range(RANKS)) or not job.alive(), "steps")
        self.assertTrue(job.alive(), job.finished())
        os.kill(self.pid_of(log, 1), signal.SIGKILL)
        harness.wait_until(lambda: os.path.exists(os.path.join(run, "rank-1.ring")), "ring in the run directory")
        self.assert_is_where_it_was(self.autopsy(run)[1], log)
        job.signal(signal.SIGTERM)
        job.wait()

    @unittest.skipUnless(os.geteuid() == 0 and shutil.which("unshare"), "mounting takes root")
    @hazard("the disk that holds the run is full when a rank is killed", sees="no difference", counted="its ring stays in /dev/shm, where the run directory's link names it")
    def test_full_disk(self):
        disk = self.path("disk")
        os.mkdir(disk)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        run = os.path.join(disk, "run")
        log = self.path("log")
        job = self.start([GPUPROBE, "run", "--out", run, "--", LAUNCH_RANKS, str(RANKS), LOGGED_PROGRESS, log], devices=RANKS)
        harness.wait_until(lambda: all(len(self.lines(log, rank)) > 800 for rank in range(RANKS)) or not job.alive(), "steps")
        self.assertTrue(job.alive(), job.finished())
        filler = os.open(os.path.join(disk, "filler"), os.O_WRONLY | os.O_CREAT, 0o600)
        with self.assertRaises(OSError):
            while True:
                os.write(filler, bytes(4096))
        os.close(filler)
        os.kill(self.pid_of(log, 0), signal.SIGKILL)
        harness.wait_until(lambda: harness.is_dead(self.pid_of(log, 0)), "end of the rank")
        self.assert_is_where_it_was(self.autopsy(run)[0], log)
        job.signal(signal.SIGTERM)
        job.wait()
        self.assertTrue(os.path.islink(os.path.join(run, "rank-0.ring")))
        self.assert_is_where_it_was(self.autopsy(run)[0], log)
        harness.remove_rings(run)

    def test_damage_is_torn_and_never_a_wrong_name(self):
        collector, log, job = self.begin("whole")
        os.kill(self.pid_of(log, 0), signal.SIGKILL)
        path = os.path.join(collector.out, "rank-0.ring")
        harness.wait_until(lambda: os.path.exists(path) and not os.path.islink(path), "ring in the run directory")
        whole = harness.read_file(path)
        self.end(collector, job, [self.pid_of(log, rank) for rank in range(RANKS)])
        known = self.autopsy(collector.out)[0]
        numbers = {int(line.split()[2]) for line in self.lines(log, 0) if line.startswith("> call")}
        names = {line[len("> push "):] for line in self.lines(log, 0) if line.startswith("> push")} | {"?"}
        damaged = self.path("damaged")
        os.mkdir(damaged)
        count = 400
        for number in range(count):
            ring = bytearray(whole)
            for _ in range(self.random.choice((1, 1, 8, 300))):
                ring[self.random.randrange(RING_BYTES)] ^= self.random.randrange(1, 256)
            with open(os.path.join(damaged, f"rank-{number}.ring"), "wb") as file:
                file.write(ring)
        found = json.loads(self.run_well([GPUPROBE, "autopsy", damaged, "--json"]).stdout)["processes"]
        self.assertEqual(len(found), count)
        torn = 0
        for process in found:
            torn += process["torn"] > 0
            if process["torn"] == 0 and process["unreadable"] is None:
                self.assertEqual({**process, "ring": ""}, {**known, "ring": ""})
            self.assertIn(process["host"], ("", known["host"]))
            self.assertIn(process["pid"], (0, known["pid"]))
            for call in process["calls"]:
                self.assertEqual(call["operation"], "AllReduce")
                self.assertIn(call["sequence"], numbers)
                self.assertIn(call["communicator"], (known["calls"][0]["communicator"], "unknown"))
            for thread in process["threads"]:
                self.assertLessEqual(set(thread["ranges"]), names)
        self.assertGreater(torn, count / 2)

    def test_what_is_no_ring_is_refused(self):
        run = self.path("recorded")
        os.mkdir(run)
        for name, content in (("rank-0.ring", b""), ("rank-1.ring", bytes(RING_BYTES)), ("rank-2.ring", os.urandom(RING_BYTES))):
            with open(os.path.join(run, name), "wb") as file:
                file.write(content)
        os.mkfifo(os.path.join(run, "rank-3.ring"))
        os.symlink("/dev/shm/gpuprobe-0/gone.ring", os.path.join(run, "rank-4.ring"))
        shown = self.run_well([GPUPROBE, "autopsy", run]).stdout.decode()
        self.assertEqual(shown.count("it is no flight recorder's ring"), 3, shown)
        self.assertIn("rank-4.ring: not readable: it was kept in /dev/shm/gpuprobe-0/gone.ring, which is gone", shown)
        self.assertIn("records are torn", shown)


if __name__ == "__main__":
    harness.main()
