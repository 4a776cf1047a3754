"""Random but valid sequences of every call that obtains or releases memory, held against the simulated node's own ledger.

A handful of seeds in the test suite; `RANDOM_SEEDS=100-200 RANDOM_THREADS=1,4 RANDOM_STEPS=600` runs others, and names those that fail.
"""
import os
import random
from collections import defaultdict

import harness
import truth
from harness import BUILD, GPUPROBE, LIBRARY

RANDOM_MEMORY = os.path.join(BUILD, "tests", "e2e", "random_memory")
KINDS = {"device": "device", "pinned": "host_pinned", "managed": "managed", "pool": "pool", "array": "array", "vmm": "vmm", "graph": "graph"}
WAYS = ("run", "preload", "inject")


def chosen_seeds(default):
    if "RANDOM_SEEDS" not in os.environ:
        return default
    first, _, last = os.environ["RANDOM_SEEDS"].partition("-")
    return range(int(first), int(last or first) + 1)


def chosen_threads(default):
    return [int(n) for n in os.environ.get("RANDOM_THREADS", default).split(",")]


def smallest_of(seed):
    """For several threads: what is smaller has no record of its own, and is in the marks and their errors all the same."""
    return random.Random(-seed).choice([0, 0, 5_000, 100_000, 5_000_000])


def settings_of(seed):
    """Settings that must not change what is recorded."""
    draw = random.Random(seed)
    env = {"GPUPROBE_FLUSH_MS": str(draw.choice([10, 50, 500])), "GPUSIM_MEMORY_GIB": "4",
           "GPUSIM_CUPTI_VERSION": draw.choice(["11.8", "12.0", "12.6", "13.0", "13.0", "13.0"])}
    if draw.random() < 0.3:
        env["GPUPROBE_BUFFER_KIB"], env["GPUPROBE_BUFFERS"] = "64", "256"
    if draw.random() < 0.2:
        env["GPUSIM_FAULT"] = "pinned_mib=100000"
    return env, draw.choice([1, 2, 3])


def highest(records):
    """Bytes at their highest. Of graphs, an allocation and what the graph has for itself may be at one address: a release says its bytes."""
    live = most = 0
    for record in sorted((r for r in records if not r.get("failed")), key=lambda r: r["time_ns"]):
        live += record["bytes"] if record["kind"] == "alloc" else -record["bytes"]
        most = max(most, live)
    return most


class RandomMemory(harness.EndToEndTest):

    def record(self, seed, threads, steps, way, more=None):
        """The run directory, what happened, and what the program said."""
        env, devices = settings_of(seed)
        env.update(more or {})
        command = [RANDOM_MEMORY, str(seed), str(threads), str(steps)]
        self.forget_truth()
        if way == "run":
            out = self.path(f"run-{seed}-{threads}")
            finished = self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**env, **harness.PATIENT})
            said = finished.stdout.splitlines()[0]
        else:
            collector = harness.Collector(self)
            load = {"LD_PRELOAD": LIBRARY} if way == "preload" else {"CUDA_INJECTION64_PATH": LIBRARY}
            try:
                said = self.run_well(command, devices=devices, env={**env, **load, **collector.env()}).stdout.splitlines()[0]
            finally:
                collector.stop()
            out = collector.out
        happened = self.truth()
        self.forget_truth()
        alone = self.run_well(command, devices=devices, env=env)
        self.assertEqual(alone.stdout.splitlines()[0], said, "the program's own result")
        return out, happened

    def check_marks(self, happened, report, exact):
        memory = report["ranks"][0]["memory"]
        allocations = [r for r in happened if r["kind"] in ("alloc", "free")]
        for kind, name in KINDS.items():
            mine = [r for r in allocations if r["memory"] == kind]
            if not mine:
                self.assertNotIn(name, memory)
                continue
            found = memory[name]
            mark = highest(mine)
            self.assertLessEqual(abs(found["high_water_bytes"] - mark), 0 if exact else found["high_water_error_bytes"], kind)
            if exact:
                self.assertEqual(found["high_water_error_bytes"], 0, kind)
            self.assertEqual(found["allocations"], sum(r["kind"] == "alloc" and not r.get("failed") for r in mine), kind)
            self.assertEqual(found["frees"], sum(r["kind"] == "free" for r in mine), kind)
            self.assertEqual(found["failed"], sum(bool(r.get("failed")) for r in mine), kind)
            live = sum(0 if r.get("failed") else r["bytes"] if r["kind"] == "alloc" else -r["bytes"] for r in mine)
            self.assertEqual(found["live_bytes"], live, kind)
        on_devices = defaultdict(list)
        for record in allocations:
            if record["memory"] != "pinned" and not record.get("failed"):
                on_devices[record["device"]].append(record)
        marks = {device: highest(records) for device, records in on_devices.items()}
        found = {entry["device"]: entry for entry in report["ranks"][0]["device_memory"] if entry["high_water_bytes"]}
        self.assertEqual(set(found), {device for device, mark in marks.items() if mark})
        for device, entry in found.items():
            self.assertLessEqual(abs(entry["high_water_bytes"] - marks[device]), 0 if exact else entry["high_water_error_bytes"], device)

    def by_address(self, records):
        """What became of each address, in its order. Threads have no other order in common. An array's address is the node's own."""
        lives = defaultdict(list)
        for record in sorted((r for r in records if r["kind"] in ("alloc", "free")), key=lambda r: r["time_ns"]):
            if record.get("failed") or record["memory"] == "array":
                continue
            lives[record["memory"], record["address"]].append((record["kind"], record["bytes"], record["device"]))
        return lives

    def check(self, seed, threads, steps, way, more=None):
        smallest = smallest_of(seed) if threads > 1 else 0
        out, happened = self.record(seed, threads, steps, way, {"GPUPROBE_MIN_ALLOCATION_BYTES": str(smallest), **(more or {})})
        report, captured = self.report(out), self.export(out)
        self.assert_no_loss(report)
        if threads == 1:
            self.assertEqual(self.differences(happened, captured), [])
        else:
            expected, found = (self.by_address([r for r in side if r.get("bytes", 0) >= smallest]) for side in (happened, captured))
            self.assertEqual(set(expected) ^ set(found), set())
            for address, lives in expected.items():
                self.assertEqual(found[address], lives, address)
            self.assertEqual(self.differences(*([r for r in side if r["kind"] not in ("alloc", "free")] for side in (happened, captured))), [])
        self.check_marks(happened, report, exact=threads == 1)
        self.assert_nothing_runs()

    def check_all(self, seeds, threads, steps):
        for seed in seeds:
            for number in threads:
                way = WAYS[(seed + number) % 3]
                with self.subTest(seed=seed, threads=number, way=way):
                    self.check(seed, number, int(os.environ.get("RANDOM_STEPS", steps)), way)
                harness.shutil.rmtree(self.path(f"run-{seed}-{number}"), ignore_errors=True)

    def test_one_thread(self):
        self.check_all(chosen_seeds(range(1, 11)), [1], 300)

    def test_small_ones_are_counted_only(self):
        smallest = 60_000
        for seed in chosen_seeds(range(7, 9)):
            with self.subTest(seed=seed):
                out, happened = self.record(seed, 1, 300, WAYS[seed % 3], {"GPUPROBE_MIN_ALLOCATION_BYTES": str(smallest)})
                report, captured = self.report(out), self.export(out)
                self.assert_no_loss(report)
                expected, found = ([r for r in side if r["kind"] in ("alloc", "free") and (r["bytes"] >= smallest or r.get("failed"))]
                                   for side in (happened, captured))
                self.assertEqual(truth.allocation_differences(expected, found), [])
                self.check_marks(happened, report, exact=True)

    def test_threads_that_hand_on_what_they_hold(self):
        self.check_all(chosen_seeds(range(1, 6)), chosen_threads("3,8"), 150)


if __name__ == "__main__":
    harness.main()
