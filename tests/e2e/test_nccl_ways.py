"""NCCL used in the ways that are hard to see: captured into CUDA graphs, linked into the program. Each call once, with the time of its kernel."""
import os
import subprocess
from collections import Counter, defaultdict

import harness
import truth
from harness import (BUILD, CAPTURED_COLLECTIVES, DDP_TRAIN, GPUPROBE, LATE_COLLECTIVES, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, OPENS_MODULE, SIM_LIB, SMALL_TRAINING,
                     STATIC_COLLECTIVES)


GRAPH_UPDATES = os.path.join(BUILD, "tests", "e2e", "graph_updates")
CHILD_GRAPHS = os.path.join(BUILD, "tests", "e2e", "child_graphs")


class NcclWays(harness.EndToEndTest):
    maxDiff = None
    """What the tests below share."""

    def hold_against_truth(self, out, untold_names=False):
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(self.differences(happened, captured, untold_names), [])
        report = self.report(out)
        self.assert_no_loss(report)
        return happened, captured, report

    def record(self, command, env, devices):
        collector = harness.Collector(self)
        self.run_well(command, env={**collector.env(), **env}, devices=devices)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        return collector.out


class CapturedCollectives(NcclWays):

    CALLS_OF_A_STEP = 7

    def check(self, out, ranks, replays):
        happened, captured, report = self.hold_against_truth(out)
        replayed = [record for record in happened if record["kind"] == "collective" and record.get("replay")]
        self.assertEqual(len(replayed), ranks * self.CALLS_OF_A_STEP * 3 * replays)
        launches = {(record["pid"], record["correlation"]): record["time_ns"] for record in captured if record["kind"] == "launch"}
        for record in captured:
            if record["kind"] == "collective" and record.get("replay"):
                self.assertEqual(record["issue_ns"], launches[(record["pid"], record["correlation"])], "issued by the launch of its graph")
                self.assertLessEqual(record["issue_ns"], record["start_ns"])
        calls = sum(record["kind"] == "collective" for record in happened)
        self.assertEqual(sum(entry["calls"] for rank in report["ranks"] for entry in rank["collectives"]), calls)
        self.assertEqual(sum(entry["untimed_calls"] for rank in report["ranks"] for entry in rank["collectives"]), 0)
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                if "Send" not in entry["op"]:
                    self.assertIsNotNone(entry["wait_ns"], f"replays of {entry['op']} were compared across ranks")

    def test_with_run(self):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "4"], devices=4)
        self.check(out, 4, 4)

    def test_by_injection_alone(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "2"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4), 4, 2)

    def test_by_preload_alone(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "2"], {"LD_PRELOAD": LIBRARY}, 4), 4, 2)

    def test_many_replays(self):
        self.check(self.record([LAUNCH_RANKS, "4", CAPTURED_COLLECTIVES, "100"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4), 4, 100)


class UpdatedGraphs(NcclWays):

    CALLS_OF_A_LAUNCH = 4

    def check(self, out, updates):
        happened, captured, report = self.hold_against_truth(out)
        calls = [record for record in happened if record["kind"] == "collective" and record.get("replay")]
        self.assertEqual(len(calls), 2 * self.CALLS_OF_A_LAUNCH * (2 + 3 * updates + 1 + 2))
        self.assertEqual({record["source"] for record in captured if record["kind"] == "collective"} - {"interposed", "relocation"}, set())
        self.assertEqual(sum(entry["untimed_calls"] for rank in report["ranks"] for entry in rank["collectives"]), 0)
        self.assertEqual(sum(entry["calls"] for rank in report["ranks"] for entry in rank["collectives"]), len(calls))
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                self.assertIsNotNone(entry["wait_ns"], f"replays of {entry['op']} were compared across ranks")

    def test_by_both_ways_of_loading(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
            with self.subTest(way=way):
                self.forget_truth()
                self.check(self.record([LAUNCH_RANKS, "2", GRAPH_UPDATES, "3"], {way: LIBRARY}, 2), 3)

    def test_many_updates(self):
        self.check(self.record([LAUNCH_RANKS, "2", GRAPH_UPDATES, "60"], {"CUDA_INJECTION64_PATH": LIBRARY}, 2), 60)


class ChildGraphs(NcclWays):
    """Graphs in graphs: added twice, two deep, cloned, moved, replaced, updated, switched off. From CUPTI 13.4 on records say which node theirs was made from."""

    EXACT = {"GPUSIM_CUPTI_VERSION": "13.4.1"}

    RING, FUSED, ONE = 3, 3, 1
    MIDDLE = ONE + 2 * RING + FUSED
    PARENT = ONE + RING + FUSED

    def check(self, way, replays):
        happened, captured, report = self.hold_against_truth(self.record([LAUNCH_RANKS, "4", CHILD_GRAPHS, str(replays)], {way: LIBRARY, **self.EXACT}, 4))
        launches = 2 * (2 * (self.ONE + 2 * self.MIDDLE) + self.MIDDLE)  # of graphs in which children are copied
        launches += 9 * self.PARENT - self.ONE  # once without its own call
        launches += 2 * (self.ONE + self.RING)
        calls = [record for record in happened if record["kind"] == "collective" and record.get("replay")]
        self.assertEqual(len(calls), 4 * replays * launches)
        self.assertEqual({record["source"] for record in captured if record["kind"] == "collective"} - {"interposed", "relocation"}, set())
        entries = [entry for rank in report["ranks"] for entry in rank["collectives"]]
        self.assertEqual(sum(entry["untimed_calls"] for entry in entries), 0)
        self.assertEqual(sum(entry["calls"] for entry in entries), len(calls) + 4 * 2)
        for entry in entries:
            if "Send" not in entry["op"]:
                self.assertIsNotNone(entry["wait_ns"], f"replays of {entry['op']} were compared across ranks")

    def test_by_both_ways_of_loading(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
            with self.subTest(way=way):
                self.forget_truth()
                self.check(way, 1)

    def test_many_replays(self):
        self.check("CUDA_INJECTION64_PATH", 20)

    def test_an_older_cupti_leaves_only_the_kernels_names(self):
        """It never reports the ids under which nodes of child graphs run: no kernel is lost, and their calls are collectives of an unknown communicator, and nothing else."""
        out = self.record([LAUNCH_RANKS, "4", CHILD_GRAPHS, "3"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4)
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(self.differences([record for record in happened if record["kind"] != "collective"],
                                          [record for record in captured if record["kind"] != "collective"]), [])
        self.assert_no_loss(self.report(out))
        by_name = [record for record in captured if record["kind"] == "collective" and record["source"] == "kernel_name"]
        self.assertGreater(len(by_name), 0)
        self.assertEqual({record["comm"] for record in by_name}, {"unknown"})
        known = [record for record in captured if record["kind"] == "collective" and record["source"] != "kernel_name" and "start_ns" in record]
        exact = ("pid", "rank", "start_ns", "end_ns", "correlation", "op", "comm", "count")
        wrong = [line for line in truth.multiset_difference("collective", exact, happened, known) if "did not happen" in line]
        self.assertEqual(wrong, [], "what is attributed is right")


class ProfilerPlugin(NcclWays):
    """A program that has NCCL inside calls nothing that could be intercepted: NCCL itself tells, through its plugin interface."""

    def record_static(self, env=None):
        return self.record([LAUNCH_RANKS, "4", STATIC_COLLECTIVES, "0", "3"], {"CUDA_INJECTION64_PATH": LIBRARY, **(env or {})}, 4)

    def sources(self, captured):
        return {record["source"] for record in captured if record["kind"] == "collective"}

    def test_every_call_of_a_static_nccl(self):
        happened, captured, report = self.hold_against_truth(self.record_static())
        self.assertEqual(sum(record["kind"] == "collective" for record in happened), 4 * 3 * 7)
        self.assertEqual(self.sources(captured), {"plugin"})
        for rank in report["ranks"]:
            for entry in rank["collectives"]:
                if "Send" not in entry["op"]:
                    self.assertIsNotNone(entry["wait_ns"])

    def test_every_version_of_the_interface(self):
        for version in range(1, 7):
            with self.subTest(version=version):
                out = self.record_static({"GPUSIM_NCCL_PLUGIN_VERSION": str(version)})
                captured, happened = self.export(out), self.truth()
                self.assertEqual(self.sources(captured), {"plugin"})
                if version < 4:  # these do not tell how many ranks there are
                    for record in captured + happened:
                        record.pop("comm_ranks", None)
                self.assertEqual([line for line in truth.multiset_difference(
                    "collective", truth.COMPARED["collective"],
                    *([r for r in records if r["kind"] == "collective" and not truth.launched_nothing(r)] for records in (happened, captured)))], [])
                self.forget_truth()

    def test_captured_calls_of_a_static_nccl(self):
        """From version 5 on NCCL tells calls as they are made, whether they are captured or not; only whom they send to is not told."""
        out = self.record([LAUNCH_RANKS, "4", STATIC_COLLECTIVES, "3", "1"], {"CUDA_INJECTION64_PATH": LIBRARY}, 4)
        happened, captured = self.truth(), self.export(out)
        self.assertGreater(sum(record["kind"] == "collective" and bool(record.get("replay")) for record in happened), 100)
        for record in happened + captured:
            if record["kind"] == "collective" and record.get("replay") and record["op"] in ("Send", "Recv"):
                record["peer"] = None
        self.assertEqual(self.differences(happened, captured), [])
        self.assertEqual(self.sources(captured), {"plugin"})
        self.assert_no_loss(self.report(out))

    def test_a_call_that_both_see_is_the_wrappers(self):
        for env in ({"CUDA_INJECTION64_PATH": LIBRARY}, {"LD_PRELOAD": LIBRARY}):
            out = self.record([LAUNCH_RANKS, "4", NCCL_CALLS, "--rounds=1"], env, 4)
            _, captured, _ = self.hold_against_truth(out)
            self.assertLessEqual(self.sources(captured), {"interposed", "relocation"})
            self.forget_truth()

    def test_somebody_elses_plugin_stays(self):
        """Then nothing but the kernels tells of the calls: each is a collective of an unknown communicator, with its operation and time."""
        happened_out = self.record_static({"NCCL_PROFILER_PLUGIN": "/somebody/elses.so"})
        happened = [record for record in self.truth() if record["kind"] == "collective"]
        captured = [record for record in self.export(happened_out) if record["kind"] == "collective"]
        kernels = {(record["pid"], record["correlation"]): (record["start_ns"], record["end_ns"]) for record in happened}
        self.assertEqual({(record["pid"], record["correlation"]): (record["start_ns"], record["end_ns"]) for record in captured}, kernels)
        self.assertEqual({(record["source"], record["comm"]) for record in captured}, {("kernel_name", "unknown")})
        self.assertEqual({record["op"] for record in captured}, {"AllReduce", "AllGather", "SendRecv"})
        for rank in self.report(happened_out)["ranks"]:
            calls = sum(entry["calls"] for entry in rank["collectives"])
            self.assertEqual(calls, sum(record["rank"] == rank["rank"] for record in captured))


class CopyEngines(NcclWays):
    """Calls that NCCL runs by copies and no kernel have the time of these copies."""

    RANKS, SHARE = 4, 65536 * 4

    def test_calls_have_the_time_of_their_copies(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
            with self.subTest(way=way):
                self.forget_truth()
                out = self.record([LAUNCH_RANKS, str(self.RANKS), NCCL_CALLS, "--rounds=2"], {way: LIBRARY, "GPUSIM_NCCL_COPY_ENGINE": "1"}, self.RANKS)
                copies = defaultdict(list)
                for record in self.truth():
                    if record["kind"] == "memcpy" and record["direction"] == "d2d" and record["bytes"] == self.SHARE:
                        copies[record["pid"]].append((record["start_ns"], record["end_ns"]))
                calls = [record for record in self.export(out) if record["kind"] == "collective" and record["op"] in ("AllGather", "AlltoAll")]
                self.assertEqual(Counter(call["op"] for call in calls), {"AllGather": 2 * self.RANKS, "AlltoAll": 2 * self.RANKS})
                for call in calls:
                    within = [copy for copy in copies[call["pid"]] if call["start_ns"] <= copy[0] and copy[1] <= call["end_ns"]]
                    self.assertEqual(len(within), self.RANKS - 1, call)
                    self.assertEqual((min(within)[0], max(end for _, end in within)), (call["start_ns"], call["end_ns"]))
                report = self.report(out)
                self.assert_no_loss(report)
                self.assert_complete(report)
                self.assertEqual(sum(entry["untimed_calls"] - entry["unlaunched_calls"] for rank in report["ranks"] for entry in rank["collectives"]), 0)


class HowNcclRunsCalls(NcclWays):
    """Algorithm, protocol and channels of each call, as NCCL tells its plugin: whoever else saw the call."""

    def check(self, env, program, ranks=4, version=6):
        out = self.record([LAUNCH_RANKS, str(ranks), *program], env, ranks)
        happened, captured = self.truth(), self.export(out)
        if version < 4:
            happened, captured = map(truth.without_names_of_one_rank, (happened, captured))
        self.assertEqual(self.differences(happened, captured), [])
        report = self.report(out)
        self.assert_no_loss(report)
        def how(records):
            return truth.multiset_difference("how", ("pid", "comm", "seq", "op", "count", "algorithm", "protocol", "channels"),
                                             [r for r in happened if r["kind"] == "collective" and not r.get("replay") and "algorithm" in r], records)
        self.assertEqual(how([r for r in captured if r["kind"] == "collective" and "algorithm" in r]), [])
        told = [entry for rank in report["ranks"] for entry in rank["collectives"] if entry["algorithm"]]
        self.assertGreater(len(told), 0)
        for entry in told:
            self.assertEqual({"algorithm": entry["algorithm"], "protocol": entry["protocol"], "channels": entry["channels"]},
                             {key: entry["ran_as"][0][key] for key in ("algorithm", "protocol", "channels")})
            self.assertEqual(sum(way["calls"] for way in entry["ran_as"]), entry["calls"])
        self.forget_truth()

    def test_beside_a_wrapper(self):
        for env in ({"CUDA_INJECTION64_PATH": LIBRARY}, {"LD_PRELOAD": LIBRARY}):
            self.check(env, [NCCL_CALLS, "--rounds=2"])

    def test_in_every_version_of_the_interface(self):
        for version in range(1, 7):
            self.check({"CUDA_INJECTION64_PATH": LIBRARY, "GPUSIM_NCCL_PLUGIN_VERSION": str(version)}, [NCCL_CALLS, "--rounds=1"], 2, version)


class OtherVersions(NcclWays):
    """A program meets the NCCL that is installed, older or newer than the one whose header this was built with. The folders hold libnccl.so.2 alone."""

    PROGRAM = os.path.join(BUILD, "tests", "e2e", "optional_functions")

    @staticmethod
    def node_with(version):
        return f"{SIM_LIB}_nccl_{version}:{SIM_LIB}"

    def test_a_preloaded_library_shows_no_function_that_nccl_may_lack(self):
        """The program computes the same: what it finds by weak references and by name is what its NCCL has, before CUDA is initialised and after."""
        for version in ("2_18", "2_29"):
            node = self.node_with(version)
            alone = self.run_well([self.PROGRAM], devices=2, sim_lib=node)
            self.assertIn(b"ncclAlltoAll: yes yes" if version == "2_29" else b"ncclAlltoAll: no with a reason no", alone.stdout)
            for env in ({"LD_PRELOAD": LIBRARY}, {"CUDA_INJECTION64_PATH": LIBRARY}):
                with self.subTest(version=version, way=env):
                    beside_us = self.run_well([self.PROGRAM], devices=2, sim_lib=node, env={"GPUPROBE_AUTOSTART": "0", **env})
                    self.assertEqual(beside_us.outcome, alone.outcome)

    def test_what_is_exported_is_what_the_oldest_nccl_has(self):
        def functions(library):
            lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.splitlines()
            names = {line.split()[-1].partition("@")[0] for line in lines}
            return {name for name in names if name.lstrip("p").startswith("nccl") and not name.startswith("ncclProfiler_v")}
        exported = functions(LIBRARY)
        self.assertGreaterEqual(exported, {"ncclAllReduce", "pncclAllReduce", "ncclGroupEnd", "ncclCommInitRank"})
        self.assertLessEqual(exported, functions(os.path.join(self.node_with("2_18").partition(":")[0], "libnccl.so.2")))

    def test_every_call_of_an_old_nccl(self):
        """It knows no profiler plugin: the wrappers see everything, with the functions that it has."""
        for scenario, devices in (("devices", 8), ("threads", 8), ("nested", 2), ("pipeline", 4), ("nonblocking", 2)):
            for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
                with self.subTest(scenario=scenario, way=way):
                    self.forget_truth()
                    collector = harness.Collector(self)
                    env = {**collector.env(), way: LIBRARY, "NCCL_PROFILER_PLUGIN": "/none/that/exists.so"}
                    self.run_well([WhoseRank.MEMBER, scenario], env=env, devices=devices, sim_lib=self.node_with("2_18"))
                    self.assertEqual(collector.stop().returncode, 0)
                    _, captured, report = self.hold_against_truth(collector.out, untold_names=True)
                    self.assertLessEqual({record["source"] for record in captured if record["kind"] == "collective"}, {"interposed", "relocation"})
                    self.assert_complete(report)

    def record_with_2_29(self, way, scenario, env=None):
        command, node = [self.PROGRAM, scenario], self.node_with("2_29")
        if way == "run":
            out = self.path(f"out-{scenario}")
            self.run_well([GPUPROBE, "run", "--out", out, "--", *command], env=env, devices=2, sim_lib=node)
            return out
        collector = harness.Collector(self)
        self.run_well(command, env={**collector.env(), way: LIBRARY, **(env or {})}, devices=2, sim_lib=node)
        self.assertEqual(collector.stop().returncode, 0)
        return collector.out

    def test_functions_that_the_probe_does_not_know_are_named(self):
        """One that the program imports, one that it looks up by name; not those of a network plugin beside them."""
        plugin = os.path.join(harness.BUILD, "tests", "e2e", "libforeign_plugin_0.so")
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(way=way):
                report = self.report(self.record_with_2_29(way, "new", {"NCCL_NET_PLUGIN": plugin}))
                self.assertEqual(report["trust"]["unknown_functions"], {"Conjure": 1, "Vanish": 1})
                self.assertEqual(report["trust"]["other_unknown_functions"], 0)
                evidence = [finding["evidence"] for finding in report["findings"] if finding["id"] == "capture-incomplete"]
                self.assertEqual(len(evidence), 1)
                for name in ("ncclConjure", "ncclVanish"):
                    self.assertIn(name, evidence[0])

    def test_one_sided_calls_have_the_time_of_their_copies(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(way=way):
                self.forget_truth()
                out = self.record_with_2_29(way, "moves")
                calls = [record for record in self.export(out) if record["kind"] == "collective"]
                self.assertEqual([(r["op"], r["seq"], r["bytes"], r["peer"], r["comm_ranks"]) for r in sorted(calls, key=lambda r: r["seq"])],
                                 [("PutSignal", 0, 1 << 20, 1, 2), ("Signal", 1, 0, 1, 2), ("WaitSignal", 2, 0, 1, 2), ("PutSignal", 3, 1 << 18, 1, 2)])
                copies = {record["correlation"]: record for record in self.truth() if record["kind"] == "memcpy"}
                for call in calls:
                    self.assertEqual(call["source"], "relocation")
                    if call["op"] == "PutSignal":
                        copy = copies.pop(call["correlation"])
                        self.assertEqual({key: call[key] for key in ("start_ns", "end_ns", "bytes", "stream", "device")},
                                         {key: copy[key] for key in ("start_ns", "end_ns", "bytes", "stream", "device")})
                    else:
                        self.assertNotIn("start_ns", call)
                report = self.report(out)
                self.assertEqual(copies, {})
                self.assertEqual(report["trust"]["unknown_functions"], {"Conjure": 1})  # which the program imports, and does not call here
                evidence, = [finding["evidence"] for finding in report["findings"] if finding["id"] == "capture-incomplete"]
                self.assertNotIn("no kernel", evidence)
                entries = [entry for rank in report["ranks"] for entry in rank["collectives"]]
                self.assertEqual({(e["op"], e["calls"], e["untimed_calls"], e["unlaunched_calls"]) for e in entries},
                                 {("PutSignal", 1, 0, 0), ("Signal", 1, 1, 1), ("WaitSignal", 1, 1, 1)})


    def test_one_sided_calls_in_graphs_have_a_time_for_each_replay(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(way=way):
                self.forget_truth()
                out = self.record_with_2_29(way, "captured")
                calls = [record for record in self.export(out) if record["kind"] == "collective"]
                copies = [record for record in self.truth() if record["kind"] == "memcpy" and record["bytes"] != 64]
                self.assertEqual(len(copies), 1 + 2 * 3)
                fields = ("start_ns", "end_ns", "bytes", "stream", "device", "correlation")
                key = lambda record: tuple(record[field] for field in fields)
                self.assertEqual(sorted(key(call) for call in calls if "start_ns" in call), sorted(map(key, copies)))
                self.assertEqual(sorted((call["seq"], call["bytes"]) for call in calls if "start_ns" in call),
                                 [(0, 1 << 15)] + [(1, 1 << 18)] * 3 + [(2, 1 << 17)] * 3)
                entries = [entry for rank in self.report(out)["ranks"] for entry in rank["collectives"]]
                self.assertEqual({(e["op"], e["bytes"], e["calls"], e["untimed_calls"]) for e in entries},
                                 {("PutSignal", 1 << 15, 1, 0), ("PutSignal", 3 << 18, 3, 0), ("PutSignal", 3 << 17, 3, 0)})


class NothingToLaunch(NcclWays):

    def test_a_training_of_one_rank_is_healthy(self):
        """Its gradients are reduced over one rank: calls without a kernel, of which none is missing."""
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
            with self.subTest(way=way):
                self.forget_truth()
                happened, _, report = self.hold_against_truth(self.record([LAUNCH_RANKS, "1", DDP_TRAIN, *SMALL_TRAINING], {way: LIBRARY}, 1))
                issued = sum(record["kind"] == "collective" for record in happened)
                self.assertGreater(issued, 10)
                for count in ("calls", "untimed_calls", "unlaunched_calls"):
                    self.assertEqual(sum(entry[count] for rank in report["ranks"] for entry in rank["collectives"]), issued, count)
                self.assert_complete(report)


class WhoseRank(NcclWays):

    MEMBER = os.path.join(BUILD, "tests", "e2e", "hard_way_lazy")

    def test_a_process_that_no_launcher_told_anything_has_its_communicators_rank(self):
        script = f"{self.MEMBER} member 1 2 {self.path('id')} & {self.MEMBER} member 0 2 {self.path('id')}; wait"
        out = self.record(["/bin/sh", "-c", script], {"CUDA_INJECTION64_PATH": LIBRARY}, 2)
        calls = [record for record in self.export(out) if record["kind"] == "collective"]
        self.assertEqual(sorted((record["rank"], record["comm_rank"]) for record in calls), [(0, 0), (1, 1)])
        self.assertEqual(sorted(rank["rank"] for rank in self.report(out)["ranks"]), [0, 1])

    def test_a_process_that_is_several_ranks_has_none(self):
        out = self.record([self.MEMBER, "threads"], {"CUDA_INJECTION64_PATH": LIBRARY}, 8)
        self.assertEqual({record["rank"] for record in self.export(out)}, {-1})


class LateModule(NcclWays):
    """NCCL comes with a module that is opened long after CUDA was initialised, and is called at once.

    Its calls lead to the probe from the first one on, if the thread that opened it looks a function up in it. Else the probe's thread patches it a little
    later: calls before that are known from what NCCL reports to its plugin, else by their kernels. The tests of torn groups below wait for it.
    """

    COMMAND = [LAUNCH_RANKS, "4", OPENS_MODULE, LATE_COLLECTIVES, "2", "2"]
    TORN = {"CUDA_INJECTION64_PATH": LIBRARY, "NCCL_PROFILER_PLUGIN": LIBRARY, "OPENS_ON_ANOTHER_THREAD": "1", "GPUPROBE_FLUSH_MS": "1200"}

    def test_every_call_with_its_communicator(self):
        out = self.record(self.COMMAND, {"CUDA_INJECTION64_PATH": LIBRARY}, 4)
        happened, captured = self.without_kernels_by_name(self.truth(), self.export(out))
        for record in happened + captured:  # NCCL does not tell its plugin whom a captured call sends to
            if record["kind"] == "collective" and record.get("replay") and record["op"] in ("Send", "Recv"):
                record["peer"] = None
        # Where calls were missed, the communicator is not known by its name, so that its numbers are not compared with those of other ranks.
        missed = {record["pid"] for record in captured if record["kind"] == "collective" and record["comm"] == "unknown"}
        self.assertEqual(self.differences(*self.without_exchanges(*([record for record in records if record["pid"] not in missed] for records in (happened, captured)))), [])
        fields = tuple(field for field in truth.COMPARED["collective"] if field not in ("comm", "seq"))
        self.assertEqual(truth.multiset_difference("collective", fields, *(
            [record for record in records if record["kind"] == "collective" and record["pid"] in missed and not truth.launched_nothing(record)]
            for records in (happened, captured))), [])
        self.assert_no_loss(self.report(out))

    def without_exchanges(self, happened, captured):
        """A parent and its child that meet in a group before either was used alone may have each other's kernels (docs/internals/real-nccl.md), and which call is the first
        that the probe sees is the machine's matter here. Where kernels of a process are exchanged between two communicators, their calls are left out."""
        fields = truth.COMPARED["collective"]
        sides = [[record for record in records if record["kind"] == "collective" and record.get("start_ns") is not None] for records in (happened, captured)]
        found = [Counter(truth.frozen(record, fields) for record in side) for side in sides]
        odd = [[record for record in side if truth.frozen(record, fields) not in other] for side, other in zip(sides, reversed(found))]
        exchanged = set()
        for pid in {record["pid"] for record in odd[0]}:
            places, calls, communicators = (
                [Counter(truth.frozen(record, of) for record in side if record["pid"] == pid) for side in odd]
                for of in (("start_ns", "end_ns", "correlation"), [field for field in fields if field not in ("start_ns", "end_ns", "correlation")], ("comm",)))
            if set(places[0]) == set(places[1]) and calls[0] == calls[1] and len(communicators[0]) == 2:
                exchanged |= {(pid, *place) for place in places[0]}
        return [[record for record in records if (record["pid"], record.get("start_ns"), record.get("end_ns"), record.get("correlation")) not in exchanged or
                 record["kind"] != "collective"] for records in (happened, captured)]

    def without_kernels_by_name(self, happened, captured):
        """Calls that were captured into a graph before they were led to the probe are known by their kernels only: each has the kernel's time, and is once there."""
        def place(record):
            return record["pid"], record["correlation"], record["start_ns"], record["end_ns"]
        by_name = [place(record) for record in captured if record["kind"] == "collective" and record["source"] == "kernel_name"]
        self.assertEqual(len(by_name), len(set(by_name)))
        self.assertLessEqual(set(by_name), {place(record) for record in happened if record["kind"] == "collective"})
        def rest(records):
            return [record for record in records if record["kind"] != "collective" or record.get("captured") or record.get("start_ns") is None or
                    place(record) not in set(by_name)]
        return rest(happened), rest(captured)

    def test_a_group_that_begins_before_its_calls_are_led_to_the_probe(self):
        module = os.path.join(BUILD, "tests", "e2e", "hard_way_module.so")
        out = self.record([OPENS_MODULE, module, "torn"], self.TORN, 2)
        _, captured, _ = self.hold_against_truth(out)
        calls = [record for record in captured if record["kind"] == "collective"]
        self.assertEqual({record["source"] for record in calls if record["count"] < 300}, {"plugin"})
        self.assertEqual({record["source"] for record in calls if record["count"] == 300}, {"relocation"})

    def test_a_torn_group_of_an_older_nccl(self):
        """It tells its plugin of calls when they have been launched: the wrapper's calls are the wrapper's, in the order in which they were issued."""
        module = os.path.join(BUILD, "tests", "e2e", "hard_way_module.so")
        for version in ("1", "4"):
            out = self.record([OPENS_MODULE, module, "torn"], {**self.TORN, "GPUSIM_NCCL_PLUGIN_VERSION": version}, 2)
            happened, captured = ([record for record in records if record["kind"] == "collective"] for records in (self.truth(), self.export(out)))
            fields = ("pid", "device", "op", "count", "datatype", "seq", "start_ns", "end_ns", "correlation")
            self.assertEqual(truth.multiset_difference("collective", fields, happened, captured), [])
            self.assertEqual({record["count"]: record["source"] for record in captured}, {100: "plugin", 200: "relocation", 300: "relocation"})
            self.forget_truth()

    def test_a_torn_group_without_the_plugin(self):
        """What was called before is known by the kernel only, which the calls after it share."""
        module = os.path.join(BUILD, "tests", "e2e", "hard_way_module.so")
        out = self.record([OPENS_MODULE, module, "torn"], {**self.TORN, "NCCL_PROFILER_PLUGIN": "/somebody/elses.so"}, 2)
        def calls(records):
            return sorted((record["device"], record["count"], record["start_ns"], record["end_ns"]) for record in records
                          if record["kind"] == "collective" and record["count"] != 100)
        self.assertEqual(calls(self.export(out)), calls(self.truth()))

    def assert_first_kernels_exchanged(self, happened, found, expected, fields):
        """What was found and did not happen: calls that happened, each once, in another one of the first eight kernels of their rank."""
        def without_time(counter):
            times = ("start_ns", "end_ns", "correlation")
            return sum((Counter({tuple(value for field, value in zip(fields, record) if field not in times): count})
                        for record, count in counter.items()), Counter())
        self.assertEqual(without_time(found) - without_time(expected), Counter(), "each once, and nothing that did not happen")
        pid, device, correlation = (fields.index(field) for field in ("pid", "device", "correlation"))
        elsewhere = found - expected
        for rank in {(record[pid], record[device]) for record in elsewhere}:
            exchanged = {record[correlation] for record in elsewhere if (record[pid], record[device]) == rank}
            first = sorted({record["correlation"] for record in happened if (record["pid"], record["device"]) == rank})[:8]
            self.assertLessEqual(exchanged, set(first))

    def test_every_call_without_the_plugin(self):
        """The making of the first communicator may have been missed, and with it the hash and the number of the first call that is seen.

        Of a group that was in progress when its calls were led to the probe, the first ones may have been missed: nobody tells of them. The kernel that they
        share with others is recorded with those. And if that group has several communicators, the order of their kernels follows from what was missed, so
        that they may be exchanged: these are the first kernels of their rank.
        """
        out = self.record(self.COMMAND, {"CUDA_INJECTION64_PATH": LIBRARY, "NCCL_PROFILER_PLUGIN": "/somebody/elses.so"}, 4)
        fields = tuple(field for field in truth.COMPARED["collective"] if field not in ("comm", "seq"))
        of = [[record for record in records if record["kind"] == "collective" and not record.get("captured") and record["comm_ranks"] > 1]
              for records in self.without_kernels_by_name(self.truth(), self.export(out))]
        expected, found = (Counter(truth.frozen(record, fields) for record in records) for records in of)
        self.assert_first_kernels_exchanged(of[0], found, expected, fields)
        kernels = {(record["pid"], record["correlation"]) for record in of[1]}
        seen = {truth.frozen(record, fields) for record in of[1]}
        for record in of[0]:
            if truth.frozen(record, fields) not in seen:
                self.assertIn((record["pid"], record["correlation"]), kernels, f"a kernel that nobody knows: {record}")


del NcclWays  # has no tests of its own


if __name__ == "__main__":
    harness.main()
