"""What the library holds in a program that needs all of it: GPUPROBE_MEMORY_MIB of memory, eight descriptors and two threads, seen from outside."""
import os
import signal
import threading
import time

import harness
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, SMALL_TRAINING
from hazards import hazard

EVERYTHING = os.path.join(harness.BUILD, "tests", "e2e", "everything_at_once")
MIB = 1 << 20
DESCRIPTORS, THREADS = 8, 2
LOWEST_OWN_DESCRIPTOR = 512


def own_resident_bytes(pid):
    """Memory in the library's mappings: its file, the zeroed memory behind it, and address space that it alone asks for: without huge pages and without a reservation."""
    resident, ours, before = 0, False, ""
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as lines:
        size = 0
        for line in lines:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                path = words[5] if len(words) > 5 else ""
                ours = path.endswith("libgpuprobe.so") or (path == "" and before.endswith("libgpuprobe.so"))
                before = path
            elif words[0] == "Rss:":
                size = int(words[1]) * 1024
            elif words[0] == "VmFlags:" and (ours or {"nr", "nh"} <= set(words)):
                resident += size
    return resident


def own_descriptors(pid):
    return sum(int(number) >= LOWEST_OWN_DESCRIPTOR for number in os.listdir(f"/proc/{pid}/fd"))


def own_threads(pid):
    count = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/comm", encoding="utf-8") as name:
                count += name.read().startswith("gpuprobe")
        except OSError:  # it has ended
            pass
    return count


class Watcher:
    """Looks at a process until it ends, and keeps the most that it held."""

    def __init__(self, pid):
        self.most = {"memory": 0, "descriptors": 0, "threads": 0}
        self.looks = 0
        self._thread = threading.Thread(target=self._watch, args=(pid,), daemon=True)
        self._thread.start()

    def _note(self, what, value):
        self.most[what] = max(self.most[what], value)

    def _watch(self, pid):
        try:
            while True:
                self._note("memory", own_resident_bytes(pid))
                for _ in range(100):  # these change faster
                    self._note("descriptors", own_descriptors(pid))
                    time.sleep(0.0005)
                self._note("threads", own_threads(pid))
                self.looks += 1
        except OSError:  # it has ended
            pass

    def end(self):
        self._thread.join(60)


class Bounds(harness.EndToEndTest):

    def load(self, threads, launches, allocations, communicators, memory_mib=None):
        """Runs it without the probe and with it, the collector being stopped meanwhile, and returns what was held and reported."""
        command = [EVERYTHING, *map(str, (threads, launches, allocations, communicators))]
        sim = {"GPUSIM_KERNELS": ".*=1us"}
        bare = self.run_well(command, env={**sim, "GPUPROBE_DISABLE": "1"})
        self.forget_truth()
        collector = harness.Collector(self)
        os.kill(collector.program.pid, signal.SIGSTOP)
        own = {} if memory_mib is None else {"GPUPROBE_MEMORY_MIB": str(memory_mib)}
        program = self.start(command, env={**collector.env(), **sim, **own, "CUDA_INJECTION64_PATH": LIBRARY, "GPUPROBE_EXIT_WAIT_MS": "60000"})
        watcher = Watcher(program.pid)
        expected = threads * launches
        harness.wait_until(lambda: self.kernels_happened() >= expected or not program.alive(), "all kernels", 120)
        os.kill(collector.program.pid, signal.SIGCONT)
        finished = program.wait()
        watcher.end()
        self.assertEqual((finished.returncode, finished.stdout, finished.stderr), (bare.returncode, bare.stdout, bare.stderr))
        self.assertEqual(collector.stop().returncode, 0)
        return watcher, self.report(collector.out)

    def kernels_happened(self):
        folder = self.path("truth")
        count = 0
        for file in os.scandir(folder) if os.path.isdir(folder) else ():
            with open(file, "rb") as lines:
                count += lines.read().count(b'"kind":"kernel"')
        return count

    def assert_within(self, watcher, report, limit_mib):
        self.assertGreater(watcher.looks, 3)
        self.assertLessEqual(watcher.most["memory"], limit_mib * MIB)
        self.assertTrue(0 < watcher.most["descriptors"] <= DESCRIPTORS, watcher.most)
        self.assertTrue(0 < watcher.most["threads"] <= THREADS, watcher.most)
        cost = report["trust"]["cost"]
        self.assertEqual(cost["memory_limit_bytes"], limit_mib * MIB)
        # What is charged is never less than what is there.
        self.assertTrue(watcher.most["memory"] <= cost["memory_peak_bytes"] <= limit_mib * MIB, (watcher.most, cost))

    def assert_all_is_counted(self, report, threads, launches):
        """Each kernel is in the report, or counted as lost."""
        counted = sum(rank["kernels"]["count"] for rank in report["ranks"])
        self.assertGreaterEqual(counted + sum(report["trust"]["lost"].values()), threads * launches)

    @hazard("a program with hundreds of threads, communicators and streams and a million live allocations runs while the collector is stopped",
            sees="never waits; the probe holds at most GPUPROBE_MEMORY_MIB, eight descriptors and two threads",
            counted="what does not fit is dropped and counted; the report says how much memory was held")
    def test_everything_at_once(self):
        threads, launches, allocations = 200, 2000, 5000
        watcher, report = self.load(threads, launches, allocations, communicators=300)
        self.assert_within(watcher, report, 64)
        self.assertGreater(sum(report["trust"]["lost"].values()), 0)
        self.assert_all_is_counted(report, threads, launches)

    def test_a_quarter_of_the_memory(self):
        threads, launches, allocations = 60, 2000, 2000
        watcher, report = self.load(threads, launches, allocations, communicators=100, memory_mib=16)
        self.assert_within(watcher, report, 16)
        self.assert_all_is_counted(report, threads, launches)

    def test_a_training_loses_nothing_with_the_least_memory(self):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, env={**PATIENT, "GPUPROBE_MEMORY_MIB": "16"})
        report = self.report(out)
        self.assert_no_loss(report)
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.assertTrue(0 < report["trust"]["cost"]["memory_peak_bytes"] < report["trust"]["cost"]["memory_limit_bytes"] == 16 * MIB)


if __name__ == "__main__":
    harness.main()
