"""Every call by which memory is obtained or released, held against the simulated node's own ledger to the byte."""
import os
import re
from collections import defaultdict

import harness
import memory_functions
import truth
from harness import BUILD, GPUPROBE
from hazards import hazard

MEMORY_CALLS = os.path.join(BUILD, "tests", "e2e", "memory_calls")
MEMORY_THREADS = os.path.join(BUILD, "tests", "e2e", "memory_threads")
MEMORY_REFUSED = os.path.join(BUILD, "tests", "e2e", "memory_refused")
MEMORY_SHARING = os.path.join(BUILD, "tests", "e2e", "memory_sharing")
KINDS = {"device": "device", "pinned": "host_pinned", "managed": "managed", "pool": "pool", "array": "array", "vmm": "vmm", "graph": "graph"}


class Memory(harness.EndToEndTest):

    def record(self, *arguments, env=None, memory_gib="1", devices=1):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_CALLS, *arguments], devices=devices, env={"GPUSIM_MEMORY_GIB": memory_gib, **(env or {})})
        self.assert_nothing_runs()
        happened = self.truth()
        self.assertEqual(self.differences(happened, self.export(out)), [])
        report = self.report(out)
        self.assert_no_loss(report)
        return happened, report, out

    def check_high_water(self, happened, memory, exact=True):
        """`exact`: the level was highest while nothing else happened, so that the report must be sure of it."""
        for kind, name in KINDS.items():
            if name not in memory:
                self.assertNotIn(kind, {r["memory"] for r in happened})
                continue
            with self.subTest(kind=kind):
                allocations = [r for r in happened if r["memory"] == kind and r["kind"] == "alloc"]
                mark, error = memory[name]["high_water_bytes"], memory[name]["high_water_error_bytes"]
                if exact:
                    self.assertEqual((mark, error), (truth.high_water_marks(happened, kind).get(-1, 0), 0))
                else:
                    self.assertLessEqual(abs(mark - truth.high_water_marks(happened, kind).get(-1, 0)), error)
                self.assertEqual(memory[name]["allocations"], sum(not r.get("failed") for r in allocations))
                self.assertEqual(memory[name]["failed"], sum(bool(r.get("failed")) for r in allocations))
                self.assertEqual(memory[name]["live_bytes"], 0)

    def test_every_call(self):
        happened, report, _ = self.record()
        happened = [r for r in happened if r["kind"] in ("alloc", "free")]
        self.assertEqual({r["memory"] for r in happened if r["kind"] == "alloc"}, set(KINDS))
        self.check_high_water(happened, report["ranks"][0]["memory"])

    def test_refused(self):
        happened, report, _ = self.record("refused")
        happened = [r for r in happened if r["kind"] in ("alloc", "free")]
        self.assertEqual(sorted(r["memory"] for r in happened if r.get("failed")), ["array", "device", "managed", "pool", "vmm"])
        self.check_high_water(happened, report["ranks"][0]["memory"])

    def test_what_was_live_at_the_high_water_mark(self):
        happened, report, _ = self.record("refused")
        memory = report["ranks"][0]["memory"]
        for kind, name in KINDS.items():
            allocated = [r["bytes"] for r in happened if r["kind"] == "alloc" and r["memory"] == kind and not r.get("failed")]
            with self.subTest(kind=kind):
                self.assertEqual([held["bytes"] for held in memory.get(name, {"largest": []})["largest"]], sorted(allocated, reverse=True)[:5])
        gib = 1 << 30
        self.assertEqual(memory["device"]["largest"], [{"bytes": gib // 2, "path": "setup"}, {"bytes": 4096, "path": "step/activations"}])
        self.assertEqual((memory["device"]["high_water_range"], memory["device"]["high_water_path"]), ("activations", "step/activations"))
        self.assertEqual(memory["pool"]["largest"], [{"bytes": gib // 8, "path": "setup/weights"}])
        total = report["ranks"][0]["device_memory"]
        self.assertEqual([(entry["device"], entry["capacity_bytes"], entry["high_water_bytes"], entry["live_bytes"]) for entry in total],
                         [(0, gib, gib // 2 + gib // 8 + gib // 16 + 4096, 0)])
        self.assertEqual(total[0]["at_high_water"], {"device": gib // 2 + 4096, "pool": gib // 8, "managed": gib // 16})

    def test_out_of_memory_says_what_was_asked_and_what_was_there(self):
        happened, report, out = self.record("refused")
        refused = sorted((r for r in happened if r["kind"] == "alloc" and r.get("failed")), key=lambda r: r["time_ns"])
        events = report["ranks"][0]["out_of_memory"]
        self.assertEqual([(e["memory"], e["asked_bytes"], e["device"]) for e in events], [(KINDS[r["memory"]], r["bytes"], r["device"]) for r in refused])
        gib = 1 << 30
        for event in events:
            self.assertEqual(event["path"], "step/activations")
            self.assertEqual(event["live_bytes"], {"device": gib // 2, "pool": gib // 8, "managed": gib // 16})
            self.assertEqual((event["capacity_bytes"], event["device_live_bytes"]), (gib, gib // 2 + gib // 8))
            self.assertEqual(event["free_at_most_bytes"], gib - gib // 2 - gib // 8)
        finding, = (f for f in report["findings"] if f["id"] == "out-of-memory")
        self.assertEqual(finding["statement"], "Process %d ran out of memory: requested 1.00 GiB (array) with 640 MiB of 1.00 GiB in use, in range step/activations."
                         % report["ranks"][0]["pid"])
        shown = " ".join(self.run_well([GPUPROBE, "report", out]).stdout.decode().split())
        self.assertIn("ran out of memory: requested", shown)

    @hazard("every call that obtains memory is refused", sees="CUDA's own error",
            counted="each refusal is reported with what was asked for and what was free")
    def test_whatever_is_refused_is_told_with_what_was_there(self):
        """Every call that obtains memory, of both APIs, where there is too little: what was asked, what was live, what was free at most."""
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_REFUSED], env={"GPUSIM_MEMORY_GIB": "1", "GPUSIM_FAULT": "pinned_mib=1"})
        happened, report = self.truth(), self.report(out)
        self.assert_no_loss(report)
        self.assertEqual(self.differences(happened, self.export(out)), [])
        happened = [r for r in happened if r["kind"] in ("alloc", "free")]
        self.check_high_water(happened, report["ranks"][0]["memory"])
        gib, live, expected = 1 << 30, defaultdict(int), []
        for record in sorted(happened, key=lambda r: r["time_ns"]):
            if record.get("failed"):
                on_host = record["memory"] == "pinned"
                there = live["device"] + live["pool"]
                expected.append((KINDS[record["memory"]], record["bytes"], {KINDS[kind]: size for kind, size in live.items() if size},
                                 None if on_host else gib, None if on_host else gib - there))
            else:
                live[record["memory"]] += record["bytes"] if record["kind"] == "alloc" else -record["bytes"]
        found = [(e["memory"], e["asked_bytes"], e["live_bytes"], e["capacity_bytes"], e["free_at_most_bytes"]) for e in report["ranks"][0]["out_of_memory"]]
        self.assertEqual(found, expected)
        with open(os.path.join(harness.SOURCE, "tests", "e2e", "programs", "memory_refused.cc"), encoding="utf-8") as program:
            calls = re.findall(r"EXPECT\((?:Twin<.*?>\(\")?(\w+)", program.read(), re.DOTALL)
        # The calls on pools are made of each of three, cuMemCreate in two places.
        self.assertEqual(len(expected), len(calls) + 2 * sum("FromPool" in call for call in calls) + 1)

    def test_the_host_runs_out_of_page_locked_memory(self):
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_REFUSED, "host"], env={"GPUSIM_FAULT": "pinned_mib=1"})
        report = self.report(out)
        finding, = (f for f in report["findings"] if f["id"] == "out-of-memory")
        self.assertEqual(finding["statement"], "Process %d ran out of pinned host memory: requested 1.00 MiB with 256 KiB in use." % report["ranks"][0]["pid"])
        self.assertNotIn("was free", finding["evidence"])
        event, = report["ranks"][0]["out_of_memory"]
        self.assertEqual((event["memory"], event["asked_bytes"], event["live_bytes"], event["capacity_bytes"]), ("host_pinned", 1 << 20, {"host_pinned": 1 << 18}, None))

    def test_every_function_that_sounds_like_memory(self):
        """Each one in the toolkit's headers is called while a ledger looks, or is known to be none of memory."""
        names = memory_functions.named_like_memory(BUILD)
        self.assertGreater(len(names), 200)
        called = set()
        for arguments in ((MEMORY_CALLS,), (MEMORY_CALLS, "devices"), (MEMORY_SHARING,)):
            self.forget_truth()
            out = self.path(f"calls-{len(called)}")
            self.run_well([GPUPROBE, "run", "--out", out, "--", *arguments], devices=2, env={"GPUSIM_CALLS": "1"})
            happened = self.truth()
            self.assertEqual(self.differences(happened, self.export(out)), [])
            self.assert_no_loss(self.report(out))
            called |= {memory_functions.without_version(r["name"]) for r in happened if r["kind"] == "call"}
        self.assertEqual(sorted(name for name in names - called if memory_functions.reason_of(name) is None), [])
        self.assertEqual(memory_functions.stale_patterns(names), [])

    def test_pools_are_as_the_driver_counts_them(self):
        """Used and reserved, now and at most, of every CUPTI's layout. What a pool gives back while the host waits, CUPTI tells with its next operation."""
        for version in ("11.8", "12.0", "12.6", "13.0"):
            with self.subTest(version=version):
                self.forget_truth()
                out = self.path(f"pools-{version}")
                self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_CALLS, "pools"], env={"GPUSIM_CUPTI_VERSION": version})
                report = self.report(out)
                self.assert_no_loss(report)
                pools = {}
                for line in sorted((r for r in self.truth() if r["kind"] == "pool"), key=lambda r: r["time_ns"]):
                    pools.setdefault(line["pool"], []).append(line)
                self.assertEqual(len(pools), 3)
                found = {pool["used_high_water_bytes"]: pool for pool in report["ranks"][0]["memory"]["pools"]}
                self.assertEqual(len(found), 3)
                for lines in pools.values():
                    told = [line for line in lines if line["event"] != "wait"]
                    used, reserved = (max(told, key=lambda line: line[field]) for field in ("used_bytes", "reserved_bytes"))
                    pool = found[used["used_bytes"]]
                    self.assertEqual((pool["used_bytes"], pool["reserved_bytes"], pool["at_ns"]),
                                     (told[-1]["used_bytes"], told[-1]["reserved_bytes"], told[-1]["time_ns"]))
                    self.assertEqual((pool["used_high_water_at_ns"], pool["reserved_high_water_bytes"], pool["reserved_high_water_at_ns"]),
                                     (used["time_ns"], reserved["reserved_bytes"], reserved["time_ns"]))
                    self.assertEqual(pool["trims"], sum(line["event"] == "trim" for line in lines))
                    self.assertEqual(pool["destroyed"], any(line["event"] == "destroy" for line in lines))
                shown = " ".join(self.run_well([GPUPROBE, "report", out]).stdout.decode().split())
                self.assertIn("largest memory pool: rank", shown)

    def test_memory_is_on_the_device_where_it_is(self):
        happened, report, _ = self.record("devices", devices=2)
        happened = [r for r in happened if r["kind"] in ("alloc", "free")]
        memory = report["ranks"][0]["memory"]
        self.check_high_water(happened, memory)
        of_device = {entry["device"]: entry["high_water_bytes"] for entry in report["ranks"][0]["device_memory"]}
        for device in (0, 1):
            live = peak = 0
            for record in sorted((r for r in happened if r["device"] == device and r["memory"] != "pinned"), key=lambda r: r["time_ns"]):
                live += record["bytes"] if record["kind"] == "alloc" else -record["bytes"]
                peak = max(peak, live)
            self.assertEqual((of_device[device], live), (peak, 0), device)

    def test_twenty_thousand_pieces_of_physical_memory(self):
        happened, report, _ = self.record("handles", memory_gib="80")
        happened = [r for r in happened if r["kind"] in ("alloc", "free")]
        self.check_high_water(happened, report["ranks"][0]["memory"])
        self.assertEqual(report["ranks"][0]["memory"]["vmm"]["high_water_bytes"], 20_000 * (2 << 20))

    def by_address(self, records):
        """What became of each address, in its order. Threads have no other order in common."""
        lives = defaultdict(list)
        for record in sorted((r for r in records if r["kind"] in ("alloc", "free")), key=lambda r: r["time_ns"]):
            lives[record["memory"], record["address"]].append((record["kind"], record["bytes"], record["device"]))
        return lives

    def test_threads_that_share_addresses(self):
        for threads, rounds in ((2, 300), (8, 60), (24, 20)):
            with self.subTest(threads=threads):
                self.forget_truth()
                out = self.path(f"threads-{threads}")
                self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_THREADS, str(threads), str(rounds)])
                happened = [r for r in self.truth() if r["kind"] in ("alloc", "free")]
                report = self.report(out)
                self.assert_no_loss(report)
                expected, found = self.by_address(happened), self.by_address(self.export(out))
                self.assertEqual(set(expected), set(found))
                for address, lives in expected.items():
                    self.assertEqual(found[address], lives, address)
                memory = report["ranks"][0]["memory"]
                self.check_high_water(happened, memory)
                total, = report["ranks"][0]["device_memory"]
                self.assertEqual(total["high_water_bytes"], sum(memory[name]["high_water_bytes"] for name in ("device", "pool", "vmm")))

    def test_threads_that_race_to_the_highest_level(self):
        """The mark may be off by what the calls of other threads obtain or release meanwhile, and by no more than the report says."""
        unsure = 0
        for threads in (1, 2, 6, 16):
            for smallest in ("0", "60000"):
                with self.subTest(threads=threads, smallest=smallest):
                    self.forget_truth()
                    out = self.path(f"race-{threads}-{smallest}")
                    self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_THREADS, str(threads), "1000", "race"],
                                  env={"GPUPROBE_MIN_ALLOCATION_BYTES": smallest})
                    happened = [r for r in self.truth() if r["kind"] in ("alloc", "free")]
                    report = self.report(out)
                    self.assert_no_loss(report)
                    memory = report["ranks"][0]["memory"]
                    self.check_high_water(happened, memory, exact=threads == 1)
                    total, = report["ranks"][0]["device_memory"]
                    mark = truth.high_water_marks([dict(r, memory="all") for r in happened if r["memory"] != "pinned"], "all")[-1]
                    self.assertLessEqual(abs(total["high_water_bytes"] - mark), total["high_water_error_bytes"])
                    errors = [memory[name]["high_water_error_bytes"] for name in ("device", "pool", "host_pinned")] + [total["high_water_error_bytes"]]
                    # A thread has one call at a time, of at most 101,000 bytes; of calls without records it is not known which were at the same time.
                    most = (threads - 1) * 101_000 if smallest == "0" else 3 * threads * 101_000
                    self.assertLessEqual(max(errors), most if threads > 1 else 0)
                    unsure += sum(errors)
                    text = " ".join(self.run_well([GPUPROBE, "report", out]).stdout.decode().split())
                    self.assertEqual(bool(re.search(r"\+- [^(]*\((device|pool) .*(device|pool) .*, at", text)), total["high_water_error_bytes"] != 0, text)
        self.assertGreater(unsure, 0)

    def test_memory_of_other_processes(self):
        """What is imported is its exporter's: neither obtained here nor, when it goes, released. By every way, in both processes, however they are loaded."""
        for way in ("preload", "inject"):
            with self.subTest(way=way):
                self.forget_truth()
                collector = harness.Collector(self)
                load = {"LD_PRELOAD": harness.LIBRARY} if way == "preload" else {"CUDA_INJECTION64_PATH": harness.LIBRARY}
                self.run_well([MEMORY_SHARING], env={**load, **collector.env()})
                collector.stop()
                happened, report = self.truth(), self.report(collector.out)
                self.assert_no_loss(report)
                self.assertEqual(self.differences(happened, self.export(collector.out)), [])
                self.assertEqual(len(report["ranks"]), 2)
                mib, peaks = 1 << 20, []
                for rank in report["ranks"]:
                    own = [r for r in happened if r["kind"] in ("alloc", "free") and r["pid"] == rank["pid"]]
                    self.check_high_water(own, rank["memory"])
                    peaks.append({name: rank["memory"][name]["high_water_bytes"] for name in KINDS.values()
                                  if rank["memory"].get(name, {}).get("high_water_bytes")})
                self.assertIn({"device": 11 * mib, "pool": 7 * mib}, peaks)
                self.assertIn({"device": 5 * mib + 12, "pool": 2 * mib + 4, "vmm": 4 * mib}, peaks)

    def test_small_allocations_are_counted_only(self):
        smallest = 100_000
        out = self.path("run-directory")
        self.run_well([GPUPROBE, "run", "--out", out, "--", MEMORY_CALLS, "small"], env={"GPUPROBE_MIN_ALLOCATION_BYTES": str(smallest)})
        happened = [r for r in self.truth() if r["kind"] in ("alloc", "free")]
        report = self.report(out)
        self.assert_no_loss(report)
        captured = self.export(out)
        self.assertEqual(truth.allocation_differences([r for r in happened if r["bytes"] >= smallest], [r for r in captured if r["kind"] in ("alloc", "free")]), [])
        self.assertLess(sum(r["kind"] == "small_allocations" for r in captured), 60)
        memory = report["ranks"][0]["memory"]
        self.check_high_water(happened, memory)
        for kind, name in KINDS.items():
            if name in memory:
                small = [r for r in happened if r["memory"] == kind and r["kind"] == "alloc" and r["bytes"] < smallest]
                self.assertEqual((memory[name]["small"], memory[name]["frees"]), (len(small), sum(r["memory"] == kind and r["kind"] == "free" for r in happened)))
        self.assertEqual(memory["device"]["high_water_range"], "highest")
        total, = report["ranks"][0]["device_memory"]
        self.assertEqual(total["high_water_bytes"], truth.high_water_marks(happened, "device")[-1])

    @hazard("one allocation among many is refused", sees="CUDA's own error, then ends as without the probe",
            counted="memory levels stay exact")
    def test_one_allocation_of_many_is_refused(self):
        """Wherever the refusal falls, the program ends as it would, and the ledger holds."""
        for number in (0, 2, 9):
            with self.subTest(number=number):
                out = self.path(f"refused-{number}")
                self.forget_truth()
                env = {"GPUSIM_MEMORY_GIB": "1", "GPUSIM_FAULT": f"oom={number}"}
                finished = self.run_program([GPUPROBE, "run", "--out", out, "--", MEMORY_CALLS], env=env)
                self.assertEqual(finished.returncode, 1, str(finished))
                happened = self.truth()
                self.assertEqual(sum(bool(r.get("failed")) for r in happened), 1)
                self.assertEqual(self.differences(happened, self.export(out)), [])

    def test_pytorch_allocator(self):
        """What tensors had and what was held for them, by both ways of loading."""
        program = os.path.join(BUILD, "tests", "e2e", "allocator")
        libraries = f"{harness.SIM_LIB}:{os.path.join(BUILD, 'tests', 'injector', 'capture', 'memory')}"
        for way in ("preload", "inject"):
            with self.subTest(way=way):
                collector = harness.Collector(self)
                load = {"LD_PRELOAD": harness.LIBRARY} if way == "preload" else {"CUDA_INJECTION64_PATH": harness.LIBRARY}
                finished = self.run_well([program], sim_lib=libraries, env={"GPUSIM_MEMORY_GIB": "1", **load, **collector.env()})
                collector.stop()
                out = collector.out
                allocated, reserved, peak_allocated, peak_reserved = map(int, finished.stdout.split())
                found, = self.report(out)["ranks"][0]["memory"]["pytorch"]
                self.assertEqual(found, {
                    "device": 0, "allocated_bytes": allocated, "reserved_bytes": reserved, "peak_allocated_bytes": peak_allocated,
                    "peak_reserved_bytes": peak_reserved, "fragmentation_bytes": peak_reserved - peak_allocated, "refusals": 1,
                    "last_refused_bytes": 1 << 40, "last_refused_path": "too much", "last_refused_allocated_bytes": allocated,
                    "last_refused_reserved_bytes": reserved, "by_step": None, "lifetimes": None, "trend": None})
                # 50 times 20 are handed out and taken back, and one is kept.
                told = self.export(out)
                handed, taken = ([r["bytes"] for r in told if r["kind"] == kind] for kind in ("tensor", "tensor_free"))
                self.assertEqual((len(handed), len(taken)), (1001, 1000))
                self.assertEqual(sum(handed) - sum(taken), allocated)

    def test_what_nccl_allocates_for_itself_is_its_own(self):
        """Device memory that communicators allocate is reported apart from the program's own, which the program prints."""
        out = self.path("run-directory")
        finished = self.run_well([GPUPROBE, "run", "--out", out, "--", harness.LAUNCH_RANKS, "2", harness.DDP_TRAIN, "--steps", "12", "--layers", "6", "--width", "256",
                                  "--bucket-mib", "0.5"], devices=2, env={"GPUSIM_NCCL_BUFFERS_MIB": "9"})
        told = re.search(r"holds ([\d.]+) MiB of weights, ([\d.]+) of gradients, ([\d.]+) of Adam's state, ([\d.]+) of other data", finished.stdout.decode())
        expected = dict(zip(("weights", "gradients", "optimizer state (Adam)", "other, allocated before the first step"), map(float, told.groups())))
        expected["NCCL's buffers"] = 9.0
        for rank in self.report(out)["ranks"]:
            held = {h["what"]: h["bytes"] / (1 << 20) for h in rank["device_memory"][0]["lifetimes"]["holdings"]}
            for what, mib in expected.items():
                self.assertAlmostEqual(held[what], mib, delta=0.05 * mib + 0.01, msg=(what, held))
        own = [r for r in self.export(out) if r["kind"] in ("alloc", "free") and r.get("by_nccl")]
        self.assertEqual({(r["kind"], r["bytes"]) for r in own}, {("alloc", 9 << 20), ("free", 9 << 20)})
        self.assertEqual(self.differences(self.truth(), self.export(out)), [])


if __name__ == "__main__":
    harness.main()
