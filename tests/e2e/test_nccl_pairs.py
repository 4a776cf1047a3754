"""Several ways of seeing NCCL calls are active at once: each collective is in the record once, from the best source that saw it.

The best source is the one that knows most: a wrapper (interposed before relocation: nobody else is in front of it), then what NCCL tells its plugin, then the
kernel's name. The plugin adds how NCCL runs a call, whoever else saw it.
"""
import os

import harness
import truth
from harness import BUILD, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, STATIC_COLLECTIVES

PRELOADED = {"LD_PRELOAD": LIBRARY}
INJECTED = {"CUDA_INJECTION64_PATH": LIBRARY}
NO_PLUGIN = {"NCCL_PROFILER_PLUGIN": "/somebody/elses.so"}
LINKED = [LAUNCH_RANKS, "2", NCCL_CALLS, "--rounds=1"]  # lazily: a slot that is not resolved yet is patched before what is exported is found
BOUND = [os.path.join(BUILD, "tests", "e2e", "hard_way_now"), "operations"]
# Looks NCCL up in a scope of its own: what the library exports is not in front of it.
DEEPBOUND = [os.path.join(BUILD, "tests", "e2e", "hard_way_deepbind"), os.path.join(BUILD, "tests", "e2e", "hard_way_module.so"), "operations"]
STATIC = [LAUNCH_RANKS, "2", STATIC_COLLECTIVES, "0", "2"]

# Both ways are active (preloading patches relocations, too; kernels always have names): program, environment, what each call's source is, and whether the
# plugin tells how it runs.
PAIRS = {
    ("interposition", "relocation"): (BOUND, {**PRELOADED, **NO_PLUGIN}, "interposed", False),
    ("relocation", "interposition"): (DEEPBOUND, {**PRELOADED, **NO_PLUGIN}, "relocation", False),
    ("relocation_lazy", "interposition"): (LINKED, {**PRELOADED, **NO_PLUGIN}, "relocation", False),
    ("interposition", "plugin"): (BOUND, PRELOADED, "interposed", True),
    ("interposition", "kernel_names"): (BOUND, {**PRELOADED, **NO_PLUGIN}, "interposed", False),
    ("relocation", "plugin"): (LINKED, INJECTED, "relocation", True),
    ("relocation", "kernel_names"): (LINKED, {**INJECTED, **NO_PLUGIN}, "relocation", False),
    ("plugin", "kernel_names"): (STATIC, INJECTED, "plugin", True),
    ("plugin", "interposition"): (STATIC, PRELOADED, "plugin", True),
}
# Not exported, because the program's NCCL may lack them.
NEWER_THAN_EVERY_NCCL = ("AlltoAll", "Gather", "Scatter")
PLUGIN_VERSIONS = ("1", "4", "6")


class Pairs(harness.EndToEndTest):
    maxDiff = None

    def check(self, program, env, source, told):
        collector = harness.Collector(self)
        self.run_well(program, env={**collector.env(), **env}, devices=2)
        self.assertEqual(collector.stop().returncode, 0)
        self.assert_nothing_runs()
        happened, captured = self.truth(), self.export(collector.out)
        self.forget_truth()
        if env.get("GPUSIM_NCCL_PLUGIN_VERSION") == "1" and source == "plugin":  # it does not say how many ranks there are
            for record in captured + happened:
                record.pop("comm_ranks", None)
        if not told or env.get("GPUSIM_NCCL_PLUGIN_VERSION") == "1":
            happened, captured = map(truth.without_names_of_one_rank, (happened, captured))
        self.assertEqual(self.differences(happened, captured, untold_names=not told), [])
        calls = [record for record in captured if record["kind"] == "collective"]
        for record in calls:
            unexported = source == "interposed" and record["op"] in NEWER_THAN_EVERY_NCCL
            self.assertEqual(record["source"], "relocation" if unexported else source, record["op"])
        self.assertEqual(any("algorithm" in record for record in calls), told)
        report = self.report(collector.out)
        self.assert_no_loss(report)
        launched = [record for record in calls if not record.get("captured")]  # into a graph
        self.assertEqual(sum(entry["calls"] for rank in report["ranks"] for entry in rank["collectives"]), len(launched))


def add_tests():
    for pair, (program, env, source, told) in PAIRS.items():
        def test(self, program=program, env=env, source=source, told=told):
            for version in PLUGIN_VERSIONS if told else PLUGIN_VERSIONS[-1:]:
                with self.subTest(plugin_version=version):
                    self.check(program, {**env, "GPUSIM_NCCL_PLUGIN_VERSION": version}, source, told)
        setattr(Pairs, "test_" + "_and_".join(pair), test)


add_tests()

if __name__ == "__main__":
    harness.main()
