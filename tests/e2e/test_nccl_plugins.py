"""NVIDIA's own plugins and ours in one NCCL: theirs write what they write without us, the probe records every call, and nothing untrue is found.

GPUPROBE_TEST_NCCL_PLUGINS names a folder with plugins that were built from NCCL's sources: libnccl-profiler-inspector.so, libnccl-profiler-example.so,
libnccl-net-example.so, libnccl-tuner-example.so (CONTRIBUTING.md); what is not there is skipped. They run on the node's NCCL, and on the real one that
GPUPROBE_TEST_NCCL names.
"""
import json
import os
import re
import sys
from collections import Counter

import harness
import truth
from harness import GPUPROBE, LAUNCH_RANKS, LIBRARY, NCCL_CALLS, PATIENT

SKIPPED = 77
PLUGINS = os.environ.get("GPUPROBE_TEST_NCCL_PLUGINS")
RANKS = 2
# Everything but what a proxy does with the network.
EVENTS = 1 | 2 | 4 | 64 | 256 | 512 | 1024 | 2048


class NcclPlugins(harness.EndToEndTest):

    def plugin(self, name):
        path = os.path.join(PLUGINS, f"libnccl-{name}.so")
        if not os.path.exists(path):
            self.skipTest(f"{PLUGINS} has no {os.path.basename(path)}")
        return path

    def run_calls(self, way, env):
        """The run directory (None without the probe), and the folder that the plugin wrote to."""
        out, wrote = self.path(f"out-{way}"), self.path(f"wrote-{way}")
        os.mkdir(wrote)
        command = [LAUNCH_RANKS, str(RANKS), NCCL_CALLS, "--rounds=2"]
        env = {**PATIENT, **{key: value.replace("<wrote>", wrote) for key, value in env.items()}}
        self.forget_truth()
        if way == "alone":
            self.run_well(command, devices=RANKS, env=env)
            return None, wrote
        if way == "run":
            self.run_well([GPUPROBE, "run", "--out", out, "--", *command], devices=RANKS, env=env)
        else:
            collector = harness.Collector(self)
            self.run_well(command, devices=RANKS, env={**collector.env(), way: LIBRARY, **env})
            self.assertEqual(collector.stop().returncode, 0)
            out = collector.out
        return out, wrote

    def check(self, env, read):
        """`read`: what the plugin wrote into a folder, without what differs from run to run."""
        _, wrote = self.run_calls("alone", env)
        alone = read(wrote, self.truth())
        self.assertTrue(alone)
        for way in ("LD_PRELOAD", "CUDA_INJECTION64_PATH", "run"):
            with self.subTest(way=way):
                out, wrote = self.run_calls(way, env)
                happened = self.truth()
                self.assertEqual(read(wrote, happened), alone)
                self.assertEqual(self.differences(happened, self.export(out)), [])
                report = self.report(out)
                self.assert_no_loss(report)
                self.assert_complete(report)
                self.assertEqual((report["trust"]["unknown_functions"], report["trust"]["other_unknown_functions"]), ({}, 0))

    @staticmethod
    def texts(folder):
        for name in sorted(os.listdir(folder)):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                yield name, file.read()

    def test_the_inspector(self):
        """It samples: every line is a call that happened, as it was, and there are lines of the same kinds of calls as without us."""
        def read(folder, happened):
            calls = {}
            for record in truth_calls(happened):  # it prints 14 digits of a communicator's name
                calls.setdefault((record["comm"].lstrip("0")[:14], record["comm_rank"], record["op"]), []).append(record)
            kinds = set()
            for _, text in self.texts(folder):
                for line in filter(None, text.splitlines()):
                    entry = json.loads(line)
                    header, call = entry["header"], entry.get("coll_perf")
                    if call is None:  # a send or receive, which newer ones write, too, and number by peers
                        kinds.add((header["n_ranks"], *sorted(set(entry) - {"header", "metadata"})))
                        continue
                    series = calls[header["id"].removeprefix("0x"), header["rank"], call["coll"]]
                    sizes = {series[call["coll_sn"]]["bytes"] * factor for factor in (1, header["n_ranks"])} if call["coll_sn"] < len(series) else set()
                    self.assertIn(call["coll_msg_size_bytes"], sizes, entry)
                    kinds.add((header["n_ranks"], call["coll"]))
            return kinds
        # Each call takes longer than the time between two samples.
        self.check({"NCCL_PROFILER_PLUGIN": self.plugin("profiler-inspector"), "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_DUMP_DIR": "<wrote>",
                    "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "500", "GPUSIM_LINK": "alpha=20ms,beta=100GB/s"}, read)

    def test_the_example_profiler(self):
        """It writes events down when a communicator ends, as many as it keeps: one of a collective takes 755 MB of address space."""
        def read(folder, _):
            events = Counter()
            for name, text in self.texts(folder):
                rank = re.search(r"_(\d+)\.json$", name).group(1)
                # Its JSON has types without quotes.
                for line in text.splitlines():
                    if (found := re.match(r'\{"name": "([^"]*)", "cat": "([^"]*)", "ph": "(.)"', line)) is None:
                        continue
                    fields = re.findall(r'"(count|datatype|root|GraphCaptured|SeqNum|Rank|Count|Datatype|Algorithm|Protocol|nChannels|Peer|Channel)": ?([^,}]+)', line)
                    events[(rank, *found.groups(), *map(tuple, fields))] += 1
            return events
        self.check({"NCCL_PROFILER_PLUGIN": self.plugin("profiler-example"), "NCCL_PROFILE_EVENT_MASK": str(EVENTS), "NCCL_PROFILE_DUMP_FILE": "<wrote>/events",
                    "NCCL_PROFILE_COLL_POOL_SIZE": "8", "NCCL_PROFILE_P2P_POOL_SIZE": "64"}, read)

    def test_a_network_plugin(self):
        self.check_log({"NCCL_NET_PLUGIN": self.plugin("net-example")}, "NET|INIT")

    def test_a_tuner_plugin(self):
        with open(self.path("tuner.conf"), "w", encoding="utf-8") as file:
            file.write("broadcast,0,1,ring,simple,-1,-1,-1\n")  # which no call matches: 2.28.9's example crashes when one does, without the probe, too
        self.check_log({"NCCL_TUNER_PLUGIN": self.plugin("tuner-example"), "NCCL_TUNER_CONFIG_FILE": self.path("tuner.conf")}, "TUNING")

    def check_log(self, env, parts):
        """The plugin writes to NCCL's log alone."""
        def read(folder, _):
            lines = Counter()
            for _, text in self.texts(folder):
                for line in re.findall(r"NCCL (?:INFO|WARN) (.*(?:NET/Plugin|TUNER|Tuner|Example).*)", text):
                    lines[re.sub(r"0x[0-9a-f]+|\d{4,}", "#", line)] += 1
            return lines or Counter({"nothing": 1})  # the node's own NCCL has neither
        self.check({**env, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": parts.replace("|", ","), "NCCL_DEBUG_FILE": "<wrote>/log.%p"}, read)


def truth_calls(happened):
    """Collectives in the order in which a communicator's rank issued them, as NCCL's sequence numbers count them."""
    calls = [record for record in happened if record["kind"] == "collective" and not truth.launched_nothing(record) and not record.get("replay")]
    return sorted(calls, key=lambda record: record["seq"])


class NcclPluginsOnRealNccl(NcclPlugins):
    on_real_nccl = True

    def setUp(self):
        if not harness.REAL_NCCL:
            self.skipTest("GPUPROBE_TEST_NCCL names no folder with a real libnccl.so.2")
        super().setUp()


if __name__ == "__main__":
    if not PLUGINS:
        print("skipped: GPUPROBE_TEST_NCCL_PLUGINS names no folder with NCCL's plugins")
        sys.exit(SKIPPED)
    harness.main()
