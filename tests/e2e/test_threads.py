"""Programs with more threads than one thinks of: each one's calls and kernels are there, whether it lives for a microsecond or all the time."""
import os

import harness
from harness import BUILD, GPUPROBE
from hazards import hazard

MANY_THREADS = os.path.join(BUILD, "tests", "e2e", "many_threads")


class Threads(harness.EndToEndTest):

    def record(self, *arguments, cupti="13.0", devices=2):
        self.forget_truth()
        out = self.path(f"out-{'-'.join(arguments)}-{cupti}")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MANY_THREADS, *arguments], devices=devices, env={"GPUSIM_CUPTI_VERSION": cupti})
        happened, captured = self.truth(), self.export(out)
        self.assertEqual(self.differences(happened, captured), [])
        self.assert_no_loss(self.report(out))
        return captured

    @hazard("1,000 threads come and go", sees="output and status unchanged",
            counted="everything is recorded, nothing lost")
    def test_a_thousand_threads_one_after_another(self):
        for cupti in ("13.0", "12.6"):
            with self.subTest(cupti=cupti):
                captured = self.record("short", "1000", cupti=cupti)
                calls = [r for r in captured if r["kind"] == "collective"]
                self.assertEqual(len(calls), 2000)
                thread_of = {r["correlation"]: r["tid"] for r in captured if r["kind"] == "launch"}
                threads = {}
                for call in calls:
                    threads.setdefault(call["count"], set()).add(thread_of[call["correlation"]])
                self.assertEqual([len(of_group) for of_group in threads.values()], [1] * 1000, "both calls of a group are of one thread")
                self.assertGreater(len(set.union(*threads.values())), 100)  # the system gives thread numbers out again

    @hazard("hundreds of threads launch at once", sees="output and status unchanged",
            counted="everything is recorded, nothing lost")
    def test_hundreds_of_threads_at_once(self):
        for threads in ("64", "150", "400"):
            with self.subTest(threads=threads):
                captured = self.record("long", threads, "60", devices=1)
                self.assertEqual(sum(r["kind"] == "memset" for r in captured), 60 * int(threads))

    @hazard("5,000 threads at once allocate, annotate and launch", sees="output and status unchanged",
            counted="everything is recorded, or counted as lost; memory levels are exact if no allocation was lost")
    def test_more_threads_than_there_is_room_for(self):
        threads = 5000
        out = self.path("out-crowd")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MANY_THREADS, "crowd", str(threads)], env=harness.PATIENT)
        captured, report = self.export(out), self.report(out)
        found = {kind: sum(r["kind"] == kind for r in captured) for kind in ("alloc", "free", "range", "launch", "memset")}
        self.assertEqual(found["memset"], threads)
        # On a busy machine the shared rings may overflow.
        losses = dict(report["trust"]["lost"])
        # The release of a lost allocation is recorded, without its size, and counted as unknown.
        unknown = losses.pop("allocation_unknown", 0)
        lost = sum(losses.values())
        self.assertLessEqual(set(losses), {"event_ring_full", "thread_slots_full"})
        self.assertLessEqual(unknown, lost)
        # A range of which only the end was lost is recorded, as one that was never closed.
        unclosed = sum(r["kind"] == "range" and bool(r.get("unclosed")) for r in captured)
        self.assertEqual(found["alloc"] + found["free"] + found["range"] + found["launch"] + lost - unclosed, 4 * threads)
        if lost == 0:
            self.assertEqual(report["ranks"][0]["memory"]["device"]["high_water_bytes"], 1024 * threads)


if __name__ == "__main__":
    harness.main()
