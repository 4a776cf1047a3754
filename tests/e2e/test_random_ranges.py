"""Random NVTX calls on several threads, held against what the program wrote down of itself.

A handful of seeds in the test suite; `RANDOM_SEEDS=100-200` runs others.
"""
import json
import os
import random
from collections import defaultdict

import harness
from harness import BUILD, GPUPROBE, LIBRARY

RANDOM_RANGES = os.path.join(BUILD, "tests", "e2e", "random_ranges")
CATEGORIES = {"": {1: "first"}, None: {2: "second", 3: "dritte \u00e9"}}
MOST_BYTES = 256  # of a name
CLOCK_NS = 200_000  # the program asks the kernel, the injector reads the processor's counter


def chosen_seeds(default):
    if "RANDOM_SEEDS" not in os.environ:
        return default
    first, _, last = os.environ["RANDOM_SEEDS"].partition("-")
    return range(int(first), int(last or first) + 1)


def text_of(hexadecimal):
    """As it is shown: cut at a whole character, and what is no text is replaced."""
    text = bytes.fromhex(hexadecimal)
    end = MOST_BYTES
    while len(text) > MOST_BYTES and MOST_BYTES - end < 3 and text[end] & 0xc0 == 0x80:
        end -= 1
    if len(text) > MOST_BYTES and text[end] & 0xc0 == 0x80:
        end = MOST_BYTES
    return text[:end].decode(errors="replace")


def payload_of(text):
    if not text:
        return None
    if text.startswith("d"):
        return float(text[1:])
    return int(text)


class RandomRanges(harness.EndToEndTest):

    def run_program_once(self, seed, way):
        draw = random.Random(seed)
        threads, steps, told = draw.choice([1, 2, 4, 8]), draw.choice([60, 200, 500]), self.path(f"told-{seed}.json")
        env = {"GPUPROBE_FLUSH_MS": str(draw.choice([10, 50, 500]))}
        command = [RANDOM_RANGES, str(seed), str(threads), str(steps), told]
        if way == "run":
            out = self.path(f"run-{seed}")
            self.run_well([GPUPROBE, "run", "--out", out, "--", *command], env={**env, **harness.PATIENT})
        else:
            collector = harness.Collector(self)
            load = {"LD_PRELOAD": LIBRARY} if way == "preload" else {"CUDA_INJECTION64_PATH": LIBRARY, "NVTX_INJECTION64_PATH": LIBRARY}
            try:
                self.run_well(command, env={**env, **load, **collector.env()})
            finally:
                collector.stop()
            out = collector.out
        with open(told, encoding="utf-8") as file:
            said = json.load(file)
        self.run_well(command, env=env)
        return out, said

    def check_thread(self, told, ranges, launches):
        self.assertEqual(len(ranges), len(told["ranges"]))
        ids = [r["id"] for r in ranges]
        place_of = {id_: place for place, id_ in enumerate(ids)}
        for found, expected in zip(ranges, told["ranges"]):
            domain = text_of(expected["domain"])
            opened_after, opened_before, closed_after, closed_before = expected["times"]
            category = expected["category"]
            self.assertEqual(
                (found["range"], found["name"], found["domain"], place_of.get(found["parent"], -1), found.get("category", 0), found.get("color", 0),
                 found.get("category_name"), bool(found.get("unclosed"))),
                (expected["kind"], text_of(expected["name"]), domain, expected["parent"], category, expected["color"],
                 CATEGORIES.get(domain, CATEGORIES[None]).get(category), closed_before == 0))
            self.assertEqual(found.get("payload"), payload_of(expected["payload"]), expected)
            self.assertTrue(opened_after - CLOCK_NS <= found["start_ns"] <= opened_before + CLOCK_NS, (found, expected))
            if closed_before:
                self.assertTrue(closed_after - CLOCK_NS <= found["end_ns"] <= closed_before + CLOCK_NS, (found, expected))
        for size, place in told["launches"]:
            if place >= 0:  # else another thread's may be reported
                self.assertEqual(launches[size].get("range"), ids[place], size)

    def check(self, seed, way):
        out, told = self.run_program_once(seed, way)
        report, captured = self.report(out), self.export(out)
        self.assert_no_loss(report)
        by_thread = defaultdict(list)
        for record in sorted((r for r in captured if r["kind"] == "range"), key=lambda r: r["id"]):
            by_thread[record["tid"]].append(record)
        sizes = {r["correlation"]: r["bytes"] for r in captured if r["kind"] == "memset"}
        launches = {sizes[r["correlation"]]: r for r in captured if r["kind"] == "launch" and r["correlation"] in sizes}
        for thread in told["threads"]:
            if len([t for t in told["threads"] if t["tid"] == thread["tid"]]) > 1:
                self.skipTest("the kernel gave a thread's number to another one")
            self.check_thread(thread, by_thread.pop(thread["tid"], []), launches)
        self.assertEqual(dict(by_thread), {})
        unclosed = sum(not r["times"][3] for thread in told["threads"] for r in thread["ranges"])
        self.assertEqual([report["trust"][key] for key in ("range_pops_without_push", "range_ends_without_start", "ranges_unclosed")],
                         [told["pops"], told["ends"], unclosed])
        self.assert_nothing_runs()

    def test_ranges_are_the_program_s(self):
        for seed in chosen_seeds(range(1, 11)):
            way = ("run", "preload", "inject")[seed % 3]
            with self.subTest(seed=seed, way=way):
                self.check(seed, way)


if __name__ == "__main__":
    harness.main()
