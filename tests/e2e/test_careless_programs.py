"""Programs whose calls are harmless as long as no tool listens: they stay harmless, and what cannot be recorded of them is counted."""
import os
from collections import Counter

import harness
from harness import BUILD, LIBRARY
from hazards import hazard

CARELESS_NVTX = os.path.join(BUILD, "tests", "e2e", "careless_nvtx")
CARELESS_SIGNALS = os.path.join(BUILD, "tests", "e2e", "careless_signals")


class CarelessPrograms(harness.EndToEndTest):

    def compare(self, *command, env=None):
        """Runs the program without and with the probe; returns the records, and the report's part on trust."""
        plain = self.run_program(command)
        self.forget_truth()
        collector = harness.Collector(self)
        probed = self.run_program(command, env={**collector.env(), **(env or {}), "CUDA_INJECTION64_PATH": LIBRARY, "NVTX_INJECTION64_PATH": LIBRARY})
        self.assertEqual(probed.outcome[:2], plain.outcome[:2], str(probed))
        self.stderr = probed.stderr.decode()
        self.assertEqual(collector.stop().returncode, 0)
        return self.export(collector.out), self.report(collector.out)["trust"]

    def check_pointers(self, *arguments, env=None):
        records, trust = self.compare(CARELESS_NVTX, *arguments, env=env)
        ranges = Counter(r["name"] for r in records if r["kind"] == "range")
        # Four calls with each of five texts, two with each of two wide ones, three with each of two structs; two texts on stacks that are gone.
        unreadable = ranges.pop("(unreadable)")
        self.assertIn(unreadable, (4 * 5 + 2 * 2 + 3 * 2 + 1 + 1, 4 * 5 + 2 * 2 + 3 * 2 + 1))
        for text in ("a constant", "on the stack", "in the program's data", "on the heap, and longer than what a string has room for", "last", "wide",
                     "attributes on the heap", "on a fiber's stack", "on a thread's stack"):
            self.assertGreaterEqual(ranges[text], 1, text)
        # The names of a thread (twice), a category, a device, a domain, a string and a resource; see Payloads for the rest.
        self.assertEqual(trust["lost"], {"unreadable": 7 + 8})

    @hazard("NVTX is called with texts, attributes, payloads and names at addresses where nothing can be read, or without an end",
            sees="output and status unchanged", counted="such ranges are called (unreadable); names and payloads are counted as lost (unreadable)")
    def test_pointers_to_nothing(self):
        self.check_pointers()

    @hazard("the same in a sandbox that refuses process_vm_readv", sees="output and status unchanged", counted="the same")
    def test_pointers_to_nothing_in_a_sandbox(self):
        self.check_pointers("refused", env={"GPUPROBE_IN_SANDBOX": "1"})

    @hazard("NVTX is called with a text that another thread unmaps in the meantime", sees="output and status unchanged",
            counted="each range has as much of the text as was there, or is called (unreadable)")
    def test_pointers_to_what_another_thread_unmaps(self):
        records, trust = self.compare(CARELESS_NVTX, "race")
        names = Counter(r["name"] for r in records if r["kind"] == "range")
        self.assertEqual(trust["lost"], {"unreadable": 1})  # the thread's name
        self.assertEqual(sum(names.values()), 20000)
        # The other thread may have written only a part of the text.
        self.assertLessEqual(set(names), {"there"[:size] for size in range(6)} | {"(unreadable)"})

    @hazard("a thread makes ranges and marks faster than they can be taken away", sees="never waits",
            counted="each is recorded, or counted as lost (event_ring_full) once; those that are recorded have their ends")
    def test_a_flood_of_ranges(self):
        records, trust = self.compare(CARELESS_NVTX, "flood")
        lost = trust["lost"].get("event_ring_full", 0)
        self.assertLessEqual(set(trust["lost"]), {"event_ring_full", "unreadable"})
        launches = sum(r["kind"] in ("alloc", "free", "launch") for r in records)
        self.assertEqual(sum(r["kind"] == "range" for r in records) + launches + lost, 2000000 + 3)
        self.assertEqual([trust[key] for key in ("range_pops_without_push", "ranges_unclosed")], [0, 0])

    @hazard("a signal handler makes NVTX calls, also while its thread is in the probe's code", sees="output and status unchanged",
            counted="each range and mark of the handler is recorded, or counted as lost (interrupted); the program's own are all recorded")
    def test_calls_in_signal_handlers(self):
        records, trust = self.compare(CARELESS_SIGNALS, "calls", "2000")
        names = Counter(r["name"] for r in records if r["kind"] == "range")
        rounds = int(self.stderr.split()[-1])
        # The ring may overflow on a busy machine: that is counted, too.
        self.assertLessEqual(set(trust["lost"]), {"interrupted", "event_ring_full"})
        self.assertEqual(sum(names.values()) + sum(trust["lost"].values()), 2 * 2000 + 201 * rounds)
        self.assertLessEqual(names["in the handler"] + names["mark of the handler"] + trust["lost"].get("interrupted", 0), 2 * 2000)
        self.assertEqual([trust[key] for key in ("range_pops_without_push", "ranges_unclosed")], [0, 0])

    @hazard("a signal handler leaves NVTX calls by siglongjmp, in the middle of the probe's code", sees="output and status unchanged",
            counted="later calls are recorded; each call that was left is counted as lost (interrupted)")
    def test_jumps_out_of_signal_handlers(self):
        records, trust = self.compare(CARELESS_SIGNALS, "jumps", "300")
        names = Counter(r["name"] for r in records if r["kind"] == "range")
        self.assertLessEqual(set(trust["lost"]), {"interrupted", "event_ring_full"})
        # The ring may be full of what the jumps left behind, as in the test above.
        self.assertGreaterEqual(names["after the jumps"] + trust["lost"].get("event_ring_full", 0), 99)
        self.assertEqual(sum(r["kind"] == "memset" for r in records), 100)


if __name__ == "__main__":
    harness.main()
