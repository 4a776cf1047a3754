"""Programs that each reach or use NCCL the hard way: every collective is in the record once, with what it was and the time that its kernel took.

Each program runs by preloading alone, by injection alone and by `gpuprobe run`; the tests are made from the table of programs. Captured collectives have
tests of their own.
"""
import os
import re
from collections import defaultdict

import harness
import truth
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, LIBRARY, PATIENT, SIM_LIB, SOURCE

PROGRAMS = os.path.join(BUILD, "tests", "e2e")
PYTHON = os.path.join(SOURCE, "tests", "e2e", "programs", "hard_way.py")


def program(name, *arguments):
    return [os.path.join(PROGRAMS, name), *arguments]


# Name: (command, devices). COPY stands for the path of a second copy of NCCL.
COPY = "<copy>"
WAYS = {
    "lazily_bound": (program("hard_way_lazy", "operations"), 2),
    "bound_now_and_relro": (program("hard_way_now", "operations"), 2),
    "without_plt": (program("hard_way_noplt", "operations"), 2),
    "local_and_dlsym": (program("hard_way_dlsym", "operations"), 2),
    "deepbind": (program("hard_way_deepbind", os.path.join(PROGRAMS, "hard_way_module.so"), "operations"), 2),
    "half_loaded": (program("hard_way_late", os.path.join(PROGRAMS, "hard_way_slow_module.so"), "operations"), 2),
    "function_pointers": (program("hard_way_table", "operations"), 2),
    "ctypes": (["/usr/bin/env", "python3", "-B", PYTHON], 2),
    "dlsym_before_cuda": (program("hard_way_dlsym", "early"), 2),
    "two_copies": (program("hard_way_dlsym", "copies", COPY), 2),
    "linked_and_a_copy": (program("hard_way_lazy", "linked_and_a_copy", COPY), 2),
    "eight_devices": (program("hard_way_lazy", "devices"), 8),
    "eight_threads": (program("hard_way_lazy", "threads"), 8),
    "nested_groups": (program("hard_way_lazy", "nested"), 2),
    "pipeline": (program("hard_way_lazy", "pipeline"), 4),
    "nonblocking": (program("hard_way_lazy", "nonblocking"), 2),
    "profiling_names": (program("hard_way_profiling_names", "operations"), 2),
    "static_nested_groups": (program("hard_way_static", "nested"), 2),
    "static_pipeline": (program("hard_way_static", "pipeline"), 4),
    "static_eight_threads": (program("hard_way_static", "threads"), 8),
    "static_eight_devices": (program("hard_way_static", "devices"), 8),
    "static_nonblocking": (program("hard_way_static", "nonblocking"), 2),
    "several_ids": (program("communicators", "scalable"), 4),
    "names": (program("communicators", "named"), 2),
    "split": (program("communicators", "split"), 4),
    "split_in_groups": (program("communicators", "split_in_groups"), 4),
    "split_without_blocking": (program("communicators", "split_without_blocking"), 4),
    "shrink": (program("communicators", "shrink"), 4),
    "many_communicators": (program("communicators", "many"), 2),
    "no_elements": (program("communicators", "empty"), 2),
    "one_rank": (program("communicators", "alone"), 1),
    "wrong_arguments": (program("communicators", "wrong"), 2),
    "revoke": (program("communicators", "revoke"), 2),
    "abort": (program("communicators", "abort"), 2),
    "abort_while_one_waits": (program("communicators", "abort_waiting"), 2),
    "revoke_while_one_waits": (program("communicators", "revoke_waiting"), 2),
    "streams_and_threads": (program("communicators", "threads"), 2),
    "types": (program("communicators", "types"), 2),
    "grid": ([LAUNCH_RANKS, "8", os.path.join(PROGRAMS, "hard_way_grid")], 8),
}

# Started by an interpreter or a script.
NOT_SANITIZED = ("ctypes", "grid")


class HardWay(harness.EndToEndTest):

    def second_copy(self):
        """NCCL under another name and soname, as one that a wheel brought next to the system's."""
        path = self.path("libnccm.so.2")
        with open(os.path.join(SIM_LIB, "libnccl.so.2"), "rb") as file:
            content = file.read()
        self.assertIn(b"\0libnccl.so.2\0", content)
        with open(path, "wb") as file:
            file.write(content.replace(b"\0libnccl.so.2\0", b"\0libnccm.so.2\0"))
        return path

    def record(self, command, devices, loading, env=None):
        """Returns the finished program and the run directory."""
        if loading == "run":
            out = self.path("out")
            return self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, **(env or {})}), out
        collector = harness.Collector(self)
        finished = self.run_well(command, devices=devices, env={**collector.env(), loading: LIBRARY, **(env or {})})
        self.assertEqual(collector.stop().returncode, 0)
        return finished, collector.out

    def check(self, way, loading):
        command, devices = WAYS[way]
        if harness.SANITIZED and (way in NOT_SANITIZED or loading == "LD_PRELOAD"):
            self.skipTest("the program that starts is not sanitized, and cannot load a library that is")
        if harness.SANITIZED and way == "deepbind":
            self.skipTest("a sanitizer's run-time ends programs that call dlopen with RTLD_DEEPBIND")
        if COPY in command:
            command = [*command[:-1], self.second_copy()]
        # Its own thread looks at the module before the loader is done.
        finished, out = self.record(command, devices, loading, {"GPUPROBE_FLUSH_MS": "50"} if way == "half_loaded" else None)
        self.assert_nothing_runs()
        issued = int(re.search(rb": (\d+) calls", finished.stdout).group(1))
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(sum(record["kind"] == "collective" for record in happened), issued, "the node's own count")
        self.name_ranks(happened)
        self.assertEqual(self.differences(happened, captured), [])
        if "static" not in way and way != "dlsym_before_cuda":  # NCCL tells its plugin neither of parents nor of what becomes of communicators
            self.assertEqual(truth.communicator_differences(happened, captured), [])
        if way in ("lazily_bound", "linked_and_a_copy", "half_loaded"):  # not from NCCL's plugin interface, which tells less
            self.assertLessEqual({record["source"] for record in captured if record["kind"] == "collective"}, {"interposed", "relocation"})
        report = self.report(out)
        self.assert_no_loss(report)
        self.assert_complete(report)
        return happened, captured, report

    def name_ranks(self, happened):
        """A process that no launcher told its rank, and that is one rank of its communicators, is that one."""
        ranks = defaultdict(set)
        for record in happened:
            if record["kind"] == "collective" and record["rank"] == -1:
                ranks[record["pid"]].add(record["comm_rank"])
        for record in happened:
            if len(ranks[record["pid"]]) == 1:
                record["rank"] = next(iter(ranks[record["pid"]]))


    def test_a_group_that_is_larger_than_what_is_kept(self):
        """What is kept of a group is bounded (kGroupCalls, injector/capture/nccl/calls.h): the rest is counted as lost, and the numbers after it are right."""
        kept, calls = 4096, 5000
        for loading in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(loading=loading):
                finished, out = self.record(program("communicators", "big_groups", str(calls)), 2, loading)
                happened = [record for record in self.truth() if not (record["kind"] == "collective" and record["seq"] % calls >= kept)]
                self.assertEqual(self.differences(happened, self.export(out)), [])
                report = self.report(out)
                self.assertEqual({reason: count for reason, count in report["trust"]["lost"].items() if count}, {"event_ring_full": 4 * (calls - kept)})
                self.assertIn("records-lost", [finding["id"] for finding in report["findings"]])
                self.forget_truth()


def add_tests():
    for way in WAYS:
        for name, loading in (("preloaded", "LD_PRELOAD"), ("injected", "CUDA_INJECTION64_PATH"), ("run", "run")):
            def test(self, way=way, loading=loading):
                self.check(way, loading)
            setattr(HardWay, f"test_{way}_{name}", test)


add_tests()

if __name__ == "__main__":
    harness.main()
