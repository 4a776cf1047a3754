"""Somebody else's profiler plugin and ours in one NCCL: theirs sees exactly what it sees without us, and the probe sees every call."""
import os

import harness
import truth
from harness import BUILD, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, STATIC_COLLECTIVES
from hazards import hazard

# Events to ask for, by NCCL's bits.
NOTHING, GROUP, COLLECTIVE, POINT_TO_POINT, PROXY_STEP, GROUP_API, COLLECTIVE_API, LAUNCH, EVERYTHING = 0, 1, 2, 4, 16, 256, 512, 2048, 4095


def plugin(versions):
    return os.path.join(BUILD, "tests", "e2e", f"libforeign_plugin_{versions}.so")


class ForeignPlugin(harness.EndToEndTest):

    def what_it_saw(self, command, env):
        """By rank; addresses and times are not among it."""
        log = self.path("foreign.log")
        for rank in range(2):
            if os.path.exists(f"{log}.{rank}"):
                os.remove(f"{log}.{rank}")
        self.run_well(command, devices=2, env={"FOREIGN_PLUGIN_LOG": log, **env})
        texts = []
        for rank in range(2):
            with open(f"{log}.{rank}", encoding="utf-8") as file:
                texts.append(file.read())
        return texts

    def check(self, versions, mask, nccl=6, command=STATIC_COLLECTIVES, env=None):
        command = [LAUNCH_RANKS, "2", command, *(("2", "2") if command == STATIC_COLLECTIVES else ("--rounds=1",))]
        env = {"NCCL_PROFILER_PLUGIN": plugin(versions), "FOREIGN_PLUGIN_MASK": str(mask), "GPUSIM_NCCL_PLUGIN_VERSION": str(nccl), **(env or {})}
        with self.subTest(versions=versions, mask=mask, nccl=nccl):
            alone = self.what_it_saw(command, env)
            self.assertTrue(all(" init " in text and "finalize" in text for text in alone))
            self.assertNotIn("unknown", "".join(alone))
            self.forget_truth()
            collector = harness.Collector(self)
            beside_us = self.what_it_saw(command, {**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, **env})
            self.assertEqual(collector.stop().returncode, 0)
            self.assertEqual(beside_us, alone)
            happened, captured = ([record for record in records if record["kind"] == "collective" and not truth.launched_nothing(record)]
                                  for records in (self.truth(), self.export(collector.out)))
            self.forget_truth()
            return happened, captured

    def check_static(self, versions, mask, nccl=6, env=None):
        """Every call that is not captured is the plugin's: there is no wrapper in a static NCCL."""
        happened, captured = self.check(versions, mask, nccl, env=env)
        of_graphs = {(record["pid"], record["correlation"]) for record in happened if record.get("replay")}
        # Before version 4 NCCL does not tell the size of a communicator, before 5 nothing of captured calls, which count like others.
        version = max(v for v in map(int, str(versions)) if v <= nccl)
        untold = {*(["comm_ranks"] if version < 4 else []), *(["seq"] if version < 5 else [])}
        fields = tuple(field for field in truth.COMPARED["collective"] if field not in untold)
        at_once = [[record for record in records if (record["pid"], record["correlation"]) not in of_graphs] for records in (happened, captured)]
        self.assertEqual(truth.multiset_difference("collective", fields, *at_once), [])
        self.assertEqual({record["source"] for record in at_once[1]}, {"plugin"})

    @hazard("another NCCL profiler plugin is loaded, of any version", sees="the plugin gets exactly what it asked for",
            counted="everything is recorded as well")
    def test_every_version(self):
        for version in range(1, 7):
            self.check_static(version, EVERYTHING)

    def test_it_gets_nothing_that_it_did_not_ask_for(self):
        for mask in (NOTHING, GROUP, COLLECTIVE, POINT_TO_POINT, PROXY_STEP, GROUP_API, COLLECTIVE_API, LAUNCH):
            self.check_static(6, mask)
        for mask in (NOTHING, GROUP, COLLECTIVE, PROXY_STEP):
            self.check_static(2, mask, nccl=2)

    def test_the_version_that_both_have(self):
        self.check_static(26, EVERYTHING, nccl=4)
        self.check_static(4, COLLECTIVE, nccl=6)

    def test_a_plugin_without_handles_for_groups(self):
        for version, nccl in ((6, 6), (4, 4), (2, 2)):
            self.check_static(version, EVERYTHING, nccl, {"FOREIGN_PLUGIN_NO_HANDLES": "1"})

    @hazard("another NCCL profiler plugin gives the same handle for all its events", sees="the plugin gets exactly what it asked for",
            counted="everything is recorded as well")
    def test_a_plugin_with_one_handle_for_everything(self):
        for version, nccl in ((6, 6), (5, 5), (4, 4), (2, 2)):
            self.check_static(version, EVERYTHING, nccl, {"FOREIGN_PLUGIN_ONE_HANDLE": "1"})

    def test_with_an_nccl_of_its_own_library(self):
        happened, captured = self.check(6, COLLECTIVE, command=NCCL_CALLS)
        self.assertEqual(truth.multiset_difference("collective", truth.COMPARED["collective"], happened, captured), [])
        self.assertLessEqual({record["source"] for record in captured}, {"interposed", "relocation"})

    def test_a_network_plugin_that_has_none_is_answered_with_ours(self):
        network = plugin(0)
        collector = harness.Collector(self)
        self.run_well([LAUNCH_RANKS, "2", STATIC_COLLECTIVES, "0", "2"], devices=2,
                      env={**collector.env(), "CUDA_INJECTION64_PATH": LIBRARY, "NCCL_NET_PLUGIN": network})
        self.assertEqual(collector.stop().returncode, 0)
        captured = self.export(collector.out)
        self.assertEqual(self.differences(self.truth(), captured), [])
        self.assertEqual({record["source"] for record in captured if record["kind"] == "collective"}, {"plugin"})


if __name__ == "__main__":
    harness.main()
