"""One library for every CUPTI that the simulated node can be: whatever its record layouts, everything that happened is in the record."""
import os
import shutil
import unittest
from collections import Counter

import harness
from harness import CAPTURED_COLLECTIVES, CUDA_SCRIPT, DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, SIM_LIB, SMALL_TRAINING, VECTOR_ADD
from hazards import hazard

# What cuptiGetVersion says in these releases: those with layouts of their own, and the newest.
VERSIONS = {"11.8": "18", "12.0": "18", "12.4": "22", "12.6": "24", "12.9": "27", "13.0": "130001", "13.2": "130200", "13.5": "130500"}
STALE_NAMES = os.path.join(harness.BUILD, "tests", "e2e", "stale_names")
MODULE_RELOAD = os.path.join(harness.BUILD, "tests", "e2e", "module_reload")
EAGER_LAUNCHES = os.path.join(harness.BUILD, "tests", "e2e", "eager_launches")


class Versions(harness.EndToEndTest):

    def test_a_program_of_cuda_12_on_a_driver_of_cuda_13(self):
        """Its CUPTI is the one of its CUDA, whichever others there are."""
        node = self.path("node")
        os.mkdir(node)
        shutil.copy(os.path.join(SIM_LIB, "libcuda.so.1"), os.path.join(node, "libcuda.so.580.95.05"))
        os.symlink("libcuda.so.580.95.05", os.path.join(node, "libcuda.so.1"))
        for name in ("libcudart.so.12", "libcupti.so.12"):
            shutil.copy(os.path.join(SIM_LIB + "_cuda_12", name), node)
        program = os.path.join(harness.BUILD, "tests", "e2e", "cuda_12_program")
        for others in ((), ("libcupti.so.13",)):
            for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH"):
                with self.subTest(way=way, others=others):
                    self.forget_truth()
                    for name in others:
                        shutil.copy(os.path.join(SIM_LIB, name), node)
                    collector = harness.Collector(self)
                    self.run_well([program], env={**collector.env(), way: harness.LIBRARY, "GPUSIM_CUPTI_VERSION": "12.6"}, sim_lib=node)
                    self.assertEqual(collector.stop().returncode, 0)
                    self.assertEqual(self.differences(self.truth(), self.export(collector.out)), [])
                    report = self.report(collector.out)
                    self.assertEqual((report["trust"]["timing_source"], report["conditions"]["cupti"]), ("cupti_activity", "24"))

    @unittest.skipUnless(os.path.exists(os.path.join(harness.BUILD, "samples", "one_of_each_static")), "the toolkit has no static runtime")
    def test_a_program_with_the_static_runtime_is_told_that_the_node_cannot_serve_it(self):
        finished = self.run_program([GPUPROBE, "run", "--out", self.path("static"), "--", os.path.join(harness.BUILD, "samples", "one_of_each_static")])
        self.assertNotEqual(finished.returncode, 0)
        self.assertEqual(finished.stderr.count(b"relink with -cudart shared to run it on the simulated node"), 1, finished)

    def check(self, version, command, devices=1):
        out = self.path("run-" + version)
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, "GPUSIM_CUPTI_VERSION": version})
        self.assert_nothing_runs()
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        report = self.report(out)
        self.assert_no_loss(report)
        self.assertEqual(report["trust"]["unknown_kinds"], {})
        self.assertEqual(report["conditions"]["cupti"], VERSIONS[version])
        self.assertEqual(report["conditions"]["devices"][0]["name"], "Simulated GPU")
        self.forget_truth()

    def test_vector_add(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                self.check(version, [VECTOR_ADD])

    def test_training_with_2_ranks(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                self.check(version, [LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2)

    @hazard("CUPTI delivers records of kinds that the probe does not know", sees="output and status unchanged",
            counted="they are counted and named")
    def test_records_of_a_kind_that_the_probe_does_not_know_are_counted_and_named(self):
        out = self.path("run")
        self.run_well([GPUPROBE, "run", "--out", out, "--", VECTOR_ADD], env={**PATIENT, "GPUSIM_FAULT": "unasked_kind=2"})
        happened = self.truth()
        self.assertEqual(self.differences(happened, self.export(out)), [], "what it knows it has")
        trust = self.report(out)["trust"]
        unknown = sum(record["kind"] == "kernel" for record in happened) // 2
        self.assertGreater(unknown, 0)
        self.assertEqual(trust["unknown_kinds"], {"environment": unknown})
        self.assertEqual(trust["lost"], {"unknown_record": unknown})

    def test_overheads_are_recorded_where_their_details_are_ours_alone_to_free(self):
        for fault, recorded in ({"GPUSIM_FAULT": "one_subscriber"}, True), ({}, False):
            with self.subTest(fault=fault):
                out = self.path(f"run-{recorded}")
                self.run_well([GPUPROBE, "run", "--out", out, "--", VECTOR_ADD], env={**PATIENT, "GPUSIM_CUPTI_VERSION": "13.5", **fault})
                happened = self.truth()
                self.assertEqual(any(record["kind"] == "overhead" for record in happened), recorded)
                self.assertEqual(self.differences(happened, self.export(out)), [])
                self.forget_truth()


FORCED, DISABLING, WAITS = "cuptiActivityFlushAll may crash", "disabling CONCURRENT_KERNEL may deadlock", "cudaDeviceSynchronize has no synchronisation record"
WHOLE = "tracing CUDA graphs whole may crash"
NAMES = "kernels may keep the names of modules that were unloaded"


class KnownDefects(harness.EndToEndTest):
    """What this release is known to do wrong would crash or hang the program, or the probe's thread. It is not done, and the report says what is missing for it."""

    def run_under(self, version, command, env=None, devices=1):
        out = self.path("run-" + version)
        self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=devices, env={**PATIENT, "GPUSIM_CUPTI_VERSION": version, **(env or {})})
        self.assert_nothing_runs()
        return out, self.report(out)

    def assert_said(self, report, defects):
        self.assertEqual([defect["defect"] for defect in report["trust"]["cupti_defects"]], defects)
        incomplete = [finding for finding in report["findings"] if finding["id"] == "capture-incomplete"]
        for defect in report["trust"]["cupti_defects"]:
            self.assertIn(f"{defect['left_out']} ({defect['defect']} in CUPTI {report['conditions']['cupti']}: {defect['source']})", incomplete[0]["evidence"])

    @hazard("CUPTI 13.0 crashes if a flush is forced", sees="no difference: no flush is forced",
            counted="what had not finished at exit is counted as lost; the report names the defect")
    def test_no_flush_is_forced_in_130(self):
        command = [CUDA_SCRIPT, "kernels:100", "launch:200", "return:0"]
        _, forced = self.run_under("13.0.1", command, {"GPUSIM_KERNELS": ".*=20ms"})
        self.assertEqual(forced["trust"]["cupti_defects"], [])
        out, report = self.run_under("13.0.0", command, {"GPUSIM_KERNELS": ".*=20ms"})
        self.assert_said(report, [FORCED, DISABLING, WAITS])
        recorded = sum(record["kind"] == "kernel" for record in self.export(out))
        self.assertEqual(recorded + sum(report["trust"]["lost"].values()), 300)

    @hazard("CUPTI 13.0 hangs if recording of kernels is disabled", sees="no difference: it stays enabled",
            counted="everything is recorded, nothing lost; the report names the defect")
    def test_kernels_stay_enabled_in_130(self):
        """A program that launches all the time is over the budget by what CUPTI is estimated to add to launches, so that its kernels are no longer recorded."""
        launches = 1_500_000
        command = [EAGER_LAUNCHES, str(launches), "2"]
        env = {"GPUSIM_KERNELS": ".*=100ns", "GPUPROBE_FLUSH_MS": "100", "GPUPROBE_OVERHEAD_BUDGET": "4"}
        _, shed = self.run_under("13.0.1", command, env)
        self.assertGreaterEqual(shed["trust"]["detail"]["reductions"], 1)
        self.assertLess(sum(rank["kernels"]["count"] for rank in shed["ranks"]), launches)
        self.forget_truth()
        _, report = self.run_under("13.0.0", command, env)
        self.assert_said(report, [FORCED, DISABLING, WAITS])
        self.assertGreaterEqual(report["trust"]["detail"]["reductions"], 1)
        self.assertEqual(report["trust"]["exit_incomplete"], [])
        self.assert_no_loss(report)
        kernels = sum(rank["kernels"]["count"] for rank in report["ranks"])
        self.assertEqual((kernels < launches, kernels + report["trust"]["outside_window"] >= launches), (True, True))

    def test_what_130_records_is_right(self):
        out, report = self.run_under("13.0.0", [VECTOR_ADD])
        happened = [record for record in self.truth() if (record["kind"], record.get("what")) != ("sync", "device")]
        self.assertEqual(self.differences(happened, self.export(out)), [])
        self.assert_no_loss(report)

    @hazard("whole CUDA graphs are requested from a CUPTI that crashes on them (before 12.6)", sees="no difference: they are recorded node by node",
            counted="every node is recorded; the report names the defect")
    def test_graphs_are_recorded_node_by_node_before_126(self):
        command = [LAUNCH_RANKS, "2", CAPTURED_COLLECTIVES, "3"]
        out, report = self.run_under("12.5", command, {"GPUPROBE_KINDS": "graphs"}, devices=2)
        self.assert_said(report, [WHOLE])
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.forget_truth()
        out, report = self.run_under("12.6", command, {"GPUPROBE_KINDS": "graphs"}, devices=2)
        self.assert_said(report, [])
        self.assertGreater(Counter(record["kind"] for record in self.export(out))["graph_run"], 0)

    def test_names_are_called_uncertain_where_modules_come_after_others_went(self):
        """Before 13.4 Update 1 CUPTI gives the second module's kernel the first one's name. It cannot be told from the record, so it is said."""
        command = [MODULE_RELOAD, "3", "10"]
        out, report = self.run_under("13.4", command)
        self.assert_said(report, [NAMES])
        self.assertEqual(Counter(record["name"] for record in self.export(out) if record["kind"] == "kernel"), {"kernel_of_module_0": 30}, "the node's CUPTI is wrong so that this test means something")
        self.forget_truth()
        out, report = self.run_under("13.4.1", command)
        self.assert_said(report, [])
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])
        self.forget_truth()
        out, report = self.run_under("13.3.1", [MODULE_RELOAD, "1", "10"])
        self.assert_said(report, [])
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])

    def stale_names(self, version, *arguments):
        """The report of a program whose all-reduce has a compute kernel's name, and whose layers have NCCL's: rank 1 waits for rank 0 in each of 60 steps, some 10 ms."""
        kernels = "layer=100us;AdamUpdate=50us;pack_for_nccl=10us"
        out, report = self.run_under(version, [LAUNCH_RANKS, "2", STALE_NAMES, "60", *arguments], {"GPUSIM_KERNELS": kernels}, devices=2)
        self.assertEqual(report["steps"]["count"], 60)
        self.assertNotIn("slow-gpu", [finding["id"] for finding in report["findings"]])
        late = [finding for finding in report["findings"] if finding["id"].startswith("straggler")]
        self.assertTrue(late and " waits for rank 0," in late[0]["statement"], report["findings"])
        return out, report

    def assert_waits(self, steps_of_rank):
        exposed_ns = {rank: steps["exposed_comm_ns"]["mean"] for rank, steps in steps_of_rank.items()}
        self.assertGreater(exposed_ns[1], max(2e6, 3 * exposed_ns[0]))

    def assert_calls(self, report, calls):
        self.assertEqual({(c["op"], c["comm"] == "unknown"): c["calls"] for c in report["collectives"]}, {("AllReduce", False): 2 * calls, ("AllReduce", True): 2}, report["collectives"])

    def assert_are_what_launched_them(self, report, steps=60):
        classes = {entry["class"]: entry["calls"] for entry in report["compute"]["classes"]}
        # On each rank: an all-reduce in each step and one before the first, and the unloaded kernel that was called like one, when names could still be believed.
        self.assertEqual(classes["collective"], 2 * (steps + 2))
        self.assertEqual((classes["optimizer"], classes["other"]), (2 * steps, 2 * 7 * steps))
        self.assert_calls(report, steps + 1)
        steps_of_rank = {rank["rank"]: rank["steps"] for rank in report["ranks"]}
        for rank in steps_of_rank.values():
            self.assertAlmostEqual(rank["compute_ns"]["mean"], 6 * 100e3 + 50e3 + 10e3, delta=60e3)
        self.assert_waits(steps_of_rank)

    def test_kernels_are_what_their_launches_say_whatever_their_names(self):
        out, report = self.stale_names("13.4")
        names = Counter(record["name"] for record in self.export(out) if record["kind"] == "kernel")
        self.assertEqual(names["triton_per_fused_gelu_0"], 2 * 62, "the node's CUPTI is wrong so that this test means something")
        self.assertGreater(names["ncclDevKernel_AllReduce_Sum_f32_RING_LL"], 2 * 360)
        self.assert_are_what_launched_them(report)
        self.assertEqual(report["trust"]["misnamed_kernels"], 2 * (61 + 6 * 60))
        incomplete, = [finding for finding in report["findings"] if finding["id"] == "capture-incomplete"]
        self.assertIn("842 kernels have another kernel's name in CUPTI's records", incomplete["evidence"])
        collectives = [record for record in self.export(out) if record["kind"] == "collective"]
        self.assertEqual(Counter((record["comm"] == "unknown", "end_ns" in record) for record in collectives), {(False, True): 2 * 61, (True, True): 2})

    def test_kernels_of_graphs_are_what_their_nodes_carry(self):
        _, report = self.stale_names("13.4", "graph")
        self.assertGreater(report["trust"]["misnamed_kernels"], 0)
        self.assert_calls(report, 60)
        self.assert_waits({rank["rank"]: rank["steps"] for rank in report["ranks"]})

    def test_a_cupti_that_names_kernels_rightly_is_believed(self):
        _, report = self.stale_names("13.4.1")
        self.assertEqual(report["trust"]["misnamed_kernels"], 0)
        self.assert_are_what_launched_them(report)

    def test_a_precaution_that_nobody_feels_is_not_mentioned(self):
        _, report = self.run_under("12.5", [VECTOR_ADD])
        self.assertEqual(report["trust"]["cupti_defects"], [])
        _, report = self.run_under("13.0.0", [VECTOR_ADD], {"GPUPROBE_KINDS": "copies"})
        self.assert_said(report, [FORCED])


if __name__ == "__main__":
    harness.main()
