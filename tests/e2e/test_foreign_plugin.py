"""Somebody else's profiler plugin and ours in one NCCL: theirs sees exactly what it sees without us, and the probe sees every call."""
import os
import re
from collections import Counter

import harness
import truth
from harness import BUILD, GPUPROBE, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, STATIC_COLLECTIVES
from hazards import hazard

# Events to ask for, by NCCL's bits.
NOTHING, GROUP, COLLECTIVE, POINT_TO_POINT, PROXY_STEP, CHANNEL, GROUP_API, COLLECTIVE_API, LAUNCH, EVERYTHING = 0, 1, 2, 4, 16, 64, 256, 512, 2048, 4095


def plugin(versions):
    return os.path.join(BUILD, "tests", "e2e", f"libforeign_plugin_{versions}.so")


class ForeignPlugin(harness.EndToEndTest):

    def what_it_saw(self, command, env):
        """By rank; addresses and times are not among it."""
        log = self.path("foreign.log")
        logs = [f"{log}.{rank}" for rank in range(2)]
        for name in os.listdir(self.folder):
            if name.startswith("foreign.log."):
                os.remove(self.path(name))
        self.run_well(command, devices=2, env={"FOREIGN_PLUGIN_LOG": log, **env})
        # Channels end in any order.
        return [self.text_of(name) + "".join(sorted(self.text_of(name + ".channels").splitlines(keepends=True))) for name in logs]

    @staticmethod
    def text_of(path):
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read()

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
            self.assert_nothing_is_unknown(collector.out)
            happened, captured = ([record for record in records if record["kind"] == "collective" and not truth.launched_nothing(record)]
                                  for records in (self.truth(), self.export(collector.out)))
            self.forget_truth()
            return happened, captured

    def assert_nothing_is_unknown(self, out):
        """The plugin's own functions are named like NCCL's (plugin_functions.cc)."""
        report = self.report(out)
        self.assertEqual(report["trust"]["unknown_functions"], {})
        self.assertEqual(report["trust"]["other_unknown_functions"], 0)

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
        for mask in (NOTHING, GROUP, COLLECTIVE, POINT_TO_POINT, PROXY_STEP, CHANNEL, GROUP_API, COLLECTIVE_API, LAUNCH):
            self.check_static(6, mask)
        for mask in (NOTHING, GROUP, COLLECTIVE, PROXY_STEP):
            self.check_static(2, mask, nccl=2)

    def test_channels_of_kernels_start_and_end(self):
        """As many as NCCL says of the call; with the times of the kernel from version 4 on."""
        for version in (3, 4, 6):
            env = {"NCCL_PROFILER_PLUGIN": plugin(version), "FOREIGN_PLUGIN_MASK": str(CHANNEL), "GPUSIM_NCCL_PLUGIN_VERSION": str(version)}
            text = "".join(self.what_it_saw([LAUNCH_RANKS, "2", STATIC_COLLECTIVES, "0", "1"], env))
            channels = Counter(re.findall(r"^channel \d+ of (.*?)(?: without times)?$", text, re.MULTILINE))
            self.assertEqual(sum(channels.values()), text.count("\nchannel "))
            self.assertEqual("without times" in text, version < 4)
            started = re.findall(r"start context=\S+ parent=\S+ rank=\d+ ((?:Coll|P2p) .*?)(?: group=\S+)? -> ", text)
            for call, times in Counter(started).items():
                each = int(call.split()[-1]) if call.startswith("Coll") else 1
                self.assertEqual(channels[call], times * each, call)
            self.assertEqual(set(channels), set(started))

    def test_the_log_function_writes_what_the_settings_let_through(self):
        for level, parts, wanted in (("WARN", "PROFILE", {"warns"}), ("INFO", "PROFILE", {"warns", "opened"}), ("INFO", "INIT", {"warns"}), ("NONE", "ALL", set()),
                                     ("INFO", "^PROFILE", {"warns"})):
            env = {"NCCL_PROFILER_PLUGIN": plugin(6), "FOREIGN_PLUGIN_MASK": "0", "FOREIGN_PLUGIN_LOG": self.path("foreign.log"),
                   "NCCL_DEBUG": level, "NCCL_DEBUG_SUBSYS": parts}
            for file in (None, "log.%p"):
                with self.subTest(level, parts=parts, file=file):
                    output = self.run_well([LAUNCH_RANKS, "2", STATIC_COLLECTIVES, "0", "1"], devices=2,
                                           env={**env, **({"NCCL_DEBUG_FILE": self.path(file)} if file else {})}).stdout.decode()
                    for name in os.listdir(self.folder):
                        if name.startswith("log."):
                            output += self.text_of(self.path(name))
                            os.remove(self.path(name))
                    self.assertEqual(set(re.findall(r"NCCL (?:WARN|INFO) foreign plugin (\w+)", output)), wanted)
                    for rank in range(2) if wanted else ():
                        self.assertRegex(output, rf":\d+:\d+ \[{rank}\] Opened:\d+ NCCL WARN foreign plugin warns of rank {rank}\n")

    def test_the_version_that_both_have(self):
        self.check_static(26, EVERYTHING, nccl=4)
        self.check_static(4, COLLECTIVE, nccl=6)

    def test_a_plugin_without_handles_for_groups(self):
        for version, nccl in ((6, 6), (4, 4), (2, 2)):
            self.check_static(version, EVERYTHING & ~CHANNEL, nccl, {"FOREIGN_PLUGIN_NO_HANDLES": "1"})  # whose calls may have none

    @hazard("another NCCL profiler plugin gives the same handle for all its events", sees="the plugin gets exactly what it asked for",
            counted="everything is recorded as well")
    def test_a_plugin_with_one_handle_for_everything(self):
        for version, nccl in ((6, 6), (5, 5), (4, 4), (2, 2)):
            self.check_static(version, EVERYTHING & ~CHANNEL, nccl, {"FOREIGN_PLUGIN_ONE_HANDLE": "1"})  # which says nothing of a channel's call

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
        self.assert_nothing_is_unknown(collector.out)

    @hazard("a plugin of NCCL's has functions and data of its own that are named like NCCL's", sees="the plugin is used as without the probe",
            counted="nothing is called unknown, and nothing missing")
    def test_a_network_plugin_beside_wrapped_calls(self):
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(way=way):
                command, env = [LAUNCH_RANKS, "2", NCCL_CALLS, "--rounds=1"], {"NCCL_NET_PLUGIN": plugin(0)}
                if way == "run":
                    out = self.path("run-directory")
                    self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=2, env=env)
                else:
                    collector = harness.Collector(self)
                    self.run_well(command, devices=2, env={**collector.env(), way: LIBRARY, **env})
                    self.assertEqual(collector.stop().returncode, 0)
                    out = collector.out
                self.assert_nothing_is_unknown(out)
                self.assert_complete(self.report(out))


if __name__ == "__main__":
    harness.main()
