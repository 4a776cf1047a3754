"""A real NCCL on the simulated node: each call, kernel, range and byte once, with the node's times, and the verdicts that its ranks deserve.

GPUPROBE_TEST_NCCL names a folder with libnccl.so.2, built against the shared CUDA runtime (CONTRIBUTING.md); without it everything here is skipped. The node watches
the calls on their way into the library, so that kernels of different ranks meet and the truth knows what they carry. Left out of the suites that are borrowed:
what is about the node's own NCCL (its older and newer versions, linked statically, called past the watcher by dlsym) and programs that go on after refused calls,
which a real one does not recover from.
"""
import sys
from collections import Counter

import harness
import test_communicator_names
import test_hangs
import test_hard_way
import test_nccl_ways
import test_real_faults
import test_truth
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, NCCL_CALLS, PATIENT, SMALL_TRAINING

SKIPPED = 77


class OnRealNccl(harness.EndToEndTest):
    on_real_nccl = True

    def record_calls(self, arguments=(), ranks=2, env=None):
        """The run directory of nccl_calls."""
        out = self.path(f"run-directory-{len(self._programs)}")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, str(ranks), NCCL_CALLS, *arguments], devices=ranks, env={**PATIENT, **(env or {})})
        self.assert_nothing_runs()
        return out


class Truth(OnRealNccl, test_truth.Truth):
    """Every kind of call, trainings, one process with several devices."""


class CapturedCollectives(OnRealNccl, test_nccl_ways.CapturedCollectives):
    pass


class UpdatedGraphs(OnRealNccl, test_nccl_ways.UpdatedGraphs):
    pass


class CommunicatorNames(OnRealNccl, test_communicator_names.CommunicatorNames):
    """As in its own log."""


class HardWay(OnRealNccl, test_hard_way.HardWay):
    """How programs call NCCL; each way loaded in one of the ways."""

    test_a_group_that_is_larger_than_what_is_kept = None  # of 5,000 calls: minutes

    def test_a_split_without_blocking(self):
        """NCCL writes the new handle some time after the call has returned, when the probe must not look there any more. From 2.28 on NCCL tells its plugin of the
        communicator, but not of its parent; before that, the communicator has no name."""
        command, devices = test_hard_way.WAYS["split_without_blocking"]
        _, out = self.record(command, devices, "run")
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(sum(record["kind"] == "collective" for record in happened), 12)
        if self.report(out)["conditions"]["nccl"] < "2.28":
            happened, captured = ([{**record, "comm": ""} if "comm" in record else record for record in side] for side in (happened, captured))
        self.assertEqual(self.differences(happened, captured), [])


CHOSEN = ("lazily_bound", "bound_now_and_relro", "without_plt", "function_pointers", "eight_devices", "eight_threads", "nested_groups", "pipeline", "nonblocking",
          "several_ids", "split", "split_in_groups", "shrink", "no_elements", "one_rank", "abort", "abort_while_one_waits", "types",
          "streams_and_threads", "grid")
LOADINGS = ("preloaded", "injected", "run")
for number, chosen in enumerate(test_hard_way.WAYS):
    for loading in LOADINGS:
        if chosen not in CHOSEN or loading != LOADINGS[number % len(LOADINGS)]:
            setattr(HardWay, f"test_{chosen}_{loading}", None)


class Transports(OnRealNccl):
    """Algorithms, protocols and paths between ranks: what is recorded does not depend on them."""

    SETTINGS = {
        "ring": {"NCCL_ALGO": "Ring"},
        "tree": {"NCCL_ALGO": "allreduce:tree"},
        "simple": {"NCCL_PROTO": "Simple"},
        "shared memory": {"NCCL_P2P_DISABLE": "1"},
        "legacy IPC": {"NCCL_CUMEM_ENABLE": "0"},
    }

    def test_each(self):
        for name, env in self.SETTINGS.items():
            for ranks in (2, 4):
                with self.subTest(name, ranks=ranks):
                    self.forget_truth()
                    out = self.record_calls(("--rounds=1",), ranks, env)
                    self.assertEqual(self.differences(self.truth(), self.export(out)), [])
                    self.assert_no_loss(self.report(out))


class WhatItHolds(OnRealNccl):
    """NCCL's buffers are NCCL's, its ranges are no phases of the training, and the peak is of all kinds of memory."""

    def test_a_training(self):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, env=PATIENT)
        buffers = Counter()
        for record in self.export(out):
            if record["kind"] == "alloc" and record["memory"] == "vmm":
                self.assertTrue(record.get("by_nccl"), record)
                buffers[record["rank"]] += record["bytes"]
        report = self.report(out)
        for rank in report["ranks"]:
            device, = rank["device_memory"]
            self.assertGreater(buffers[rank["rank"]], 16 << 20, "what a real one takes for two ranks")
            self.assertEqual(device["at_high_water"]["vmm"], buffers[rank["rank"]])
            self.assertGreater(device["high_water_bytes"], buffers[rank["rank"]])
            self.assertEqual({name for name in (phase["name"] for phase in rank["phases"]) if name.startswith("nccl")}, set())
        self.assertIn("NCCL's buffers", self.run_well([GPUPROBE, "report", out]).stdout.decode())


class Hangs(OnRealNccl, test_hangs.Hangs):
    """A rank that stops calling is named, and so is one that calls something else."""

    test_all_issued_behind_work_whose_records_are_held_back = None  # counts the buffers of a program whose NCCL launches nothing but its kernels


class RealFaults(OnRealNccl, test_real_faults.RealFaults):
    """Kernels meet: a rank that comes late makes the others wait, and is blamed."""


if __name__ == "__main__":
    if not harness.REAL_NCCL:
        print("skipped: GPUPROBE_TEST_NCCL names no folder with a real libnccl.so.2")
        sys.exit(SKIPPED)
    harness.main()
