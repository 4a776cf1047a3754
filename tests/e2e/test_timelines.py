"""`gpuprobe trace`: the timeline holds what the export holds, nests, never overlaps, and its arrows join; in both formats.

tests/e2e/perfetto.py decodes Perfetto's format by itself. test_timeline_tools.py has other people's readers.
"""
import gzip
import json
import os
import re
import shutil
from collections import Counter, defaultdict

import harness
import perfetto
from documented import commands_of
from harness import DDP_TRAIN, GPUPROBE, LAUNCH_RANKS, PATIENT, SMALL_TRAINING, SOURCE

REAL = os.path.join(SOURCE, "tests", "data", "real")
WORK = {"kernel": "kernel", "nccl_kernel": "kernel", "memcpy": "memcpy", "memset": "memset", "graph": "graph_run"}


class Timelines(harness.EndToEndTest):

    def simulate(self, scenario, *arguments):
        out = self.path(f"{scenario}-{len(os.listdir(self.folder))}")
        self.run_well([GPUPROBE, "simulate", "--scenario", scenario, "--out", out, *arguments])
        return out

    def training(self):
        """Real processes on the simulated node: threads, ranges, collectives, allocations."""
        out = self.path("run")
        self.run_well([GPUPROBE, "run", "--out", out, "--", LAUNCH_RANKS, "2", DDP_TRAIN, *SMALL_TRAINING], devices=2, env=PATIENT)
        return out

    def trace(self, run, *arguments):
        path = self.path(f"trace-{len(os.listdir(self.folder))}.pftrace")
        self.run_well([GPUPROBE, "trace", run, "-o", path, *arguments])
        return perfetto.read(path)

    def chrome(self, run, *arguments):
        """The parsed files of --format chrome, by name."""
        folder = self.path(f"chrome-{len(os.listdir(self.folder))}")
        self.run_well([GPUPROBE, "trace", run, "-o", folder, "--format", "chrome", *arguments])
        files = {}
        for name in sorted(os.listdir(folder)):
            with gzip.open(os.path.join(folder, name), "rt", encoding="utf-8") as file:
                files[name] = json.load(file)
        return files

    def assert_well_formed(self, trace):
        for track in trace.tracks.values():
            flat = track.thread is None and track.name is not None and not track.name.startswith("ranges") and "GPU" in track.name
            open_ends = []
            for piece in sorted(track.slices, key=lambda s: (s.start, s.depth)):
                self.assertGreaterEqual(piece.duration, 0)
                while open_ends and open_ends[-1] <= piece.start:
                    open_ends.pop()
                if open_ends:
                    self.assertFalse(flat, f"{piece.name} overlaps on {track.name}")
                    self.assertLessEqual(piece.end, open_ends[-1], f"{piece.name} ends after what it is in, on {track.name}")
                open_ends.append(piece.end)
            times = [time for time, _ in track.values]
            self.assertEqual(times, sorted(times))
        begun = Counter(flow for event in trace.slices + trace.moments for flow in event.begins)
        ended = Counter(flow for event in trace.slices + trace.moments for flow in event.ends)
        self.assertEqual(begun, ended, "each arrow leads from one event to one")
        self.assertLessEqual(set(begun.values()), {1})
        at = {flow: event.start for event in trace.slices + trace.moments for flow in event.begins}
        for piece in trace.slices:
            for flow in piece.ends:
                self.assertLessEqual(at[flow], piece.start, "arrows lead forward")

    def assert_holds_the_export(self, trace, run, moved=False):
        """Kind by kind and rank by rank the same records; `moved`: by another clock."""
        def times(start, end):
            return () if moved else (start, end)
        exported = defaultdict(Counter)
        for r in self.export(run):
            who, kind = f"rank {r['rank']}" if r["rank"] >= 0 else f"pid {r['pid']}", r["kind"]
            if kind in ("kernel", "memcpy", "memset", "graph_run"):
                exported[kind][(who, r["device"], r["stream"], r["correlation"], *times(r["start_ns"], r["end_ns"]))] += 1
            elif kind == "collective" and "replay" not in r and r["source"] != "kernel_name":
                exported[kind][(who, "nccl" + r["op"], r["seq"], r["bytes"], *times(r["issue_ns"], ""))] += 1
            elif kind == "range":
                exported["mark" if r["range"] == "mark" else kind][(who, r["name"], *times(r["start_ns"], r["end_ns"]))] += 1
            elif kind == "sync":
                exported[kind][(who, r["stream"], *times(r["start_ns"], r["end_ns"]))] += 1
            elif kind == "launch":
                exported[kind][(who, r["correlation"], *times(r["time_ns"], ""))] += 1
        shown = defaultdict(Counter)
        for s in trace.slices + trace.moments:
            who, args = trace.process_of(s.track), s.args
            if s.category in WORK:
                shown[WORK[s.category]][(who, args["device"], args["stream"], args["correlation"], *times(s.start, s.end))] += 1
            elif s.category == "nccl_call":
                shown["collective"][(who, s.name, args["sequence"], args["bytes"], *times(s.start, ""))] += 1
            elif s.category in ("range", "mark"):
                shown[s.category][(who, s.name, *times(s.start, s.end))] += 1
            elif s.category == "wait":
                shown["sync"][(who, args["wait_on_stream"], *times(s.start, s.end))] += 1
            elif s.category == "launch":
                shown["launch"][(who, args["correlation"], *times(s.start, ""))] += 1
        for kind in exported.keys() | shown.keys():
            with self.subTest(kind=kind):
                self.assertEqual((shown[kind] - exported[kind], exported[kind] - shown[kind]), (Counter(), Counter()))

    def test_training_on_the_simulated_node(self):
        run = self.training()
        trace = self.trace(run)
        self.assertGreater(trace.compressed, 0)
        self.assert_well_formed(trace)
        self.assert_holds_the_export(trace, run)
        self.assert_counters(trace, run)
        self.assert_calls_lead_to_their_kernels(trace, run)
        self.assert_steps(trace, run)

    def assert_counters(self, trace, run):
        """The highest levels are the report's high-water marks; delays and occupancy are what they say."""
        report = self.report(run)
        for rank in report["ranks"]:
            levels = {t.name: [value for _, value in t.values] for uuid, t in trace.tracks.items()
                      if t.is_counter and trace.process_of(uuid) == f"rank {rank['rank']}"}
            for kind, name in (("device", f"GPU {rank['device']} memory device"), ("host_pinned", "memory pinned")):
                peak = rank["memory"][kind]["high_water_bytes"]
                self.assertEqual(max(levels.get(name, [0])), peak, f"{kind} of rank {rank['rank']}: {sorted(levels)}")
            delays = levels[f"GPU {rank['device']} launch delay"]
            self.assertGreaterEqual(min(delays), 0)
            of_kernels = [s.args["launch delay (ns)"] for s in trace.slices if s.category in ("kernel", "nccl_kernel") and "launch delay (ns)" in s.args
                          and trace.process_of(s.track) == f"rank {rank['rank']}"]
            self.assertEqual(max(of_kernels), rank["kernels"]["launch_delay_ns"]["max"])
            self.assertGreaterEqual(max(delays), max(of_kernels), "copies wait, too")
            occupancy = [values for name, values in levels.items() if "SM occupancy" in name]
            self.assertTrue(occupancy)
            self.assertTrue(all(0 <= value <= 100 for values in occupancy for value in values))
            self.assertTrue(all(values[-1] == 0 for values in occupancy), "nothing runs at the end")

    def assert_calls_lead_to_their_kernels(self, trace, run):
        collectives = [r for r in self.export(run) if r["kind"] == "collective" and "start_ns" in r]
        kernel_of = {flow: s for s in trace.slices for flow in s.ends}
        calls = {(trace.process_of(s.track), s.args["communicator"], s.args["sequence"]): s for s in trace.slices if s.category == "nccl_call"}
        self.assertTrue(collectives)
        for r in collectives:
            call = calls[f"rank {r['rank']}", r["comm"], r["seq"]]
            kernel, = [kernel_of[flow] for flow in call.begins]
            self.assertEqual((kernel.start, kernel.args["correlation"]), (r["start_ns"], r["correlation"]))
            if r["op"] == "AllReduce":
                self.assertEqual(kernel.args["Collective name"], "allreduce")
                self.assertEqual((kernel.args["Process Group Name"], kernel.args["Group size"]), (r["comm"], r["comm_ranks"]))
                self.assertEqual(kernel.args["Process Group Ranks"], "[0, 1]")

    def assert_steps(self, trace, run):
        finished = self.run_well([GPUPROBE, "report", run, "--json", "--steps"])
        for rank in json.loads(finished.stdout)["ranks"]:
            shown = [(s.args["step"], s.start, s.end, s.args["compute (ns)"]) for s in trace.slices
                     if s.category == "step" and trace.process_of(s.track) == f"rank {rank['rank']}"]
            self.assertEqual(shown, [(r["index"], r["start_ns"], r["end_ns"], r["compute_ns"]) for r in rank["steps"]["records"]])

    def test_real_recordings(self):
        for name in sorted(os.listdir(REAL)):
            if not os.path.isdir(os.path.join(REAL, name)):
                continue
            with self.subTest(recording=name):
                run = self.path("real-" + name)
                shutil.copytree(os.path.join(REAL, name), run)
                trace = self.trace(run)
                self.assert_well_formed(trace)
                self.assert_holds_the_export(trace, run)

    def test_clocks_are_aligned(self):
        """Two hosts whose clocks differ, and one is set while the job runs: all ranks leave an all-reduce together."""
        for scenario in ("clock-stepped", "clock-set-back"):
            with self.subTest(scenario=scenario):
                run = self.simulate(scenario)
                trace = self.trace(run)
                self.assert_holds_the_export(trace, run, moved=True)
                ends = defaultdict(list)
                for s in trace.slices:
                    if s.category == "nccl_kernel" and s.args.get("Collective name") == "allreduce":
                        ends[s.args["Process Group Name"], s.args["Seq"]].append(s.end)
                apart = sorted(max(times) - min(times) for times in ends.values() if len(times) > 1)
                self.assertGreater(len(apart), 50)
                self.assertLess(apart[len(apart) * 9 // 10], 100_000, "90 % of them within 100 us")

    def page_slices(self, run):
        """By rank: start, end, name, kind and sequence number of the kernels and copies that report.html shows, on the reference rank's clock.
        A slice that is cut off at the edge of its window has no times to compare."""
        with open(os.path.join(run, "report.html"), encoding="utf-8") as file:
            documents = dict(re.findall(r'<script type="application/json" id="(report|page)-data">(.*?)</script>', file.read(), re.DOTALL))
        report, page = json.loads(documents["report"]), json.loads(documents["page"])
        for timeline in page["timelines"]:
            # As timelines.cc has it: a fiftieth of the step is shown before and after it.
            margin = timeline["length_ns"] // 50
            for rank in timeline["ranks"]:
                slices = rank["slices"]
                for track, start, length, name, kind, count, seq in zip(*(slices[key] for key in ("track", "start_ns", "length_ns", "name", "kind", "count", "seq"))):
                    if rank["tracks"][track]["ranges"] or count > 1 or start <= -margin + 1 or start + length >= timeline["length_ns"] + margin - 1:
                        continue
                    yield (f"rank {report['ranks'][rank['row']]['rank']}", timeline["step"], timeline["start_ns"] + start, length, page["names"][name], kind, seq)

    def test_the_page_agrees_with_the_timeline(self):
        """About when kernels ran, also after a clock was set, and about the calls that they carry, also where a graph is replayed."""
        for scenario, ranks in (("clock-set-back", 4), ("clock-stepped", 4), ("graph-replay", 2)):
            with self.subTest(scenario=scenario):
                run = self.simulate(scenario, "--ranks", str(ranks), "--ranks-per-host", "2", "--steps", "30", "--layers", "4")
                trace = self.trace(run)
                ran = defaultdict(list)  # by rank and duration: what it carries, and when
                for s in trace.slices:
                    if s.category in ("kernel", "nccl_kernel"):
                        ran[trace.process_of(s.track), s.duration].append(s)
                shown = [each for each in self.page_slices(run) if each[5] in (0, 1) and each[4] != "memset"]
                self.assertEqual(len({each[0] for each in shown}), ranks)
                self.assertGreater(len([each for each in shown if each[5] == 1]), 20)
                for rank, step, start, length, name, kind, seq in shown:
                    same = [s for s in ran[rank, length] if s.start == start]
                    self.assertEqual(len(same), 1, f"{rank}, step {step}: {name} at {start}")
                    self.assertEqual(same[0].category == "nccl_kernel", kind == 1)
                    if kind == 1:
                        args = same[0].args
                        self.assertRegex(name, r"^[A-Za-z]+ [0-9.]+ [KMG]?i?B on [0-9a-f]+$")
                        op, comm = name.split(" ")[0], name.split(" ")[-1]
                        self.assertEqual((op.lower(), seq, comm), (args["Collective name"], args["Seq"], args["Process Group Name"][:len(comm)]))
                    else:
                        self.assertEqual(name, same[0].name)

    def test_steps_ranks_and_findings_choose_a_part(self):
        run = self.simulate("straggler-kernels", "--ranks", "4", "--steps", "30", "--slow-rank", "2")
        whole = self.trace(run)
        part = self.trace(run, "--steps", "10:12", "--ranks", "0,2-3")
        self.assertEqual({part.process_of(s.track) for s in part.slices}, {"rank 0", "rank 2", "rank 3"})
        self.assertLessEqual({10, 11}, {s.args["step"] for s in part.slices if s.category == "step"})
        steps = [s for s in whole.slices if s.category == "step" and s.args["step"] in (10, 11) and whole.process_of(s.track) != "rank 1"]
        begin, end = min(s.start for s in steps), max(s.end for s in steps)
        kernels = Counter((whole.process_of(s.track), s.start, s.name) for s in whole.slices
                          if s.category in WORK and s.start < end and s.end > begin and whole.process_of(s.track) != "rank 1")
        self.assertEqual(Counter((part.process_of(s.track), s.start, s.name) for s in part.slices if s.category in WORK), kernels)
        finding = self.report(run)["findings"][0]["id"]
        around = self.trace(run, "--around", finding)
        shown = {s.args["step"] for s in around.slices if s.category == "step"}
        self.assertTrue(0 < len(shown) <= 5, shown)

    def test_size_limit_holds(self):
        run = self.simulate("healthy", "--ranks", "4", "--steps", "400", "--layers", "40")
        path = self.path("small.pftrace")
        finished = self.run_well([GPUPROBE, "trace", run, "-o", path, "--max-size", "1MiB"])
        self.assertIn("limit of 1.00 MiB was reached", finished.stderr.decode())
        self.assertLessEqual(os.path.getsize(path), 1 << 20)
        trace = perfetto.read(path)
        self.assertEqual({trace.process_of(s.track) for s in trace.slices}, {f"rank {rank}" for rank in range(4)}, "each has its share")
        folder = self.path("small")
        self.run_well([GPUPROBE, "trace", run, "-o", folder, "--format", "chrome", "--max-size", "1MiB"])
        self.assertLessEqual(sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)), 1 << 20)

    def test_chrome_form(self):
        run = self.training()
        exported = self.export(run)
        files = self.chrome(run)
        self.assertEqual(sorted(files), ["rank-0.json.gz", "rank-1.json.gz"])
        for rank, trace in enumerate(files.values()):
            self.assertEqual(trace["distributedInfo"], {"backend": "nccl", "rank": rank, "world_size": 2})
            events = trace["traceEvents"]
            of = defaultdict(list)
            for event in events:
                if event["ph"] == "X":
                    self.assertLessEqual({"ts", "dur", "cat", "name", "pid", "tid"}, event.keys())
                    of[event["cat"]].append(event)
            counts = Counter(r["kind"] for r in exported if r["rank"] == rank)
            self.assertEqual([len(of[cat]) for cat in ("kernel", "gpu_memcpy", "gpu_memset", "cpu_op")],
                             [counts["kernel"], counts["memcpy"], counts["memset"], counts["collective"]])
            base = trace["baseTimeNanoseconds"]
            kernels = {(base + round(e["ts"] * 1000), round(e["dur"] * 1000), e["tid"], e["args"]["correlation"]) for e in of["kernel"]}
            self.assertEqual(kernels, {(r["start_ns"], r["end_ns"] - r["start_ns"], r["stream"], r["correlation"])
                                       for r in exported if r["rank"] == rank and r["kind"] == "kernel"})
            launched = {e["args"]["correlation"] for e in of["cuda_runtime"] if e["name"].startswith(("cudaLaunch", "cudaMemcpy", "cudaMemset"))}
            self.assertLessEqual({e["args"]["correlation"] for e in of["kernel"] + of["gpu_memcpy"] + of["gpu_memset"]}, launched)
            steps = [e["name"] for e in of["user_annotation"] if e["name"].startswith("ProfilerStep#")]
            self.assertTrue(steps and all(re.fullmatch(r"ProfilerStep#\d+", name) for name in steps))
            allreduce = [e["args"] for e in of["kernel"] if e["args"].get("Collective name") == "allreduce"]
            self.assertTrue(allreduce)
            for args in allreduce:
                self.assertEqual((args["dtype"], args["In msg nelems"], args["Group size"], args["Rank"]),
                                 ("Float", args["Out msg nelems"], 2, rank))
            for phase, count in (("s", 1), ("f", 1)):
                ids = Counter(e["id"] for e in events if e["ph"] == phase and e["cat"] == "ac2g")
                self.assertEqual(set(ids.values()), {count})
        # The text by which tools find the rank.
        folder = self.path(next(name for name in sorted(os.listdir(self.folder)) if name.startswith("chrome-")))
        with gzip.open(os.path.join(folder, "rank-1.json.gz"), "rt") as file:
            self.assertRegex(file.read(4096), r'"rank":\s+1')

    def assert_holds_the_samples(self, slices, samples):
        """Each sample is in one slice of its thread, which has its place; slices of a track do not overlap."""
        self.assertTrue(samples)
        self.assertEqual(sum(args["samples"] for _, _, _, args in slices), len(samples))
        for (_, end, _, _), (start, _, _, _) in zip(slices, slices[1:]):
            self.assertLessEqual(end, start)
        for r in samples:
            at = [(name, args) for start, end, name, args in slices if start <= r["since_ns"] and r["time_ns"] <= end]
            self.assertEqual(len(at), 1, r)
            name, args = at[0]
            self.assertEqual(name, r["call"] or r["function"] or r["system_call"])
            stack = json.loads(args["stack"]) if isinstance(args["stack"], str) else args["stack"]
            self.assertEqual(stack[0], f"{r['function']} ({r['file']}:{r['line']})")
            self.assertIn(f"{r['own_function']} ({r['own_file']}:{r['own_line']})", stack)
            self.assertEqual((args.get("call", ""), args.get("system call", ""), args.get("file", "")), (r["call"], r["system_call"], r["about"]))
            self.assertEqual(args["state"], r["state"])

    def test_samples_of_the_host_are_a_track(self):
        for scenario in ("checkpoint", "host-pause"):
            with self.subTest(scenario):
                run = self.simulate(scenario, "--steps", "30")
                samples = defaultdict(list)
                for r in self.export(run):
                    if r["kind"] == "host_sample":
                        samples[f"rank {r['rank']}"].append(r)
                trace = self.trace(run)
                self.assert_well_formed(trace)
                shown = defaultdict(list)
                for s in sorted(trace.slices, key=lambda s: s.start):
                    if s.category == "host_sample":
                        self.assertTrue(trace.tracks[s.track].name.startswith("samples of "))
                        shown[trace.process_of(s.track)].append((s.start, s.end, s.name, s.args))
                self.assertEqual(shown.keys(), samples.keys())
                for who in samples:
                    self.assertLess(len(shown[who]), len(samples[who]), "samples in one place are one slice")
                    self.assert_holds_the_samples(shown[who], samples[who])
                for name, file in self.chrome(run).items():
                    base = file["baseTimeNanoseconds"]
                    events = [e for e in file["traceEvents"] if e.get("cat") == "host_sample"]
                    who = name.removesuffix(".json.gz").replace("-", " ")
                    if who not in samples:
                        self.assertEqual(events, [])
                        continue
                    self.assertEqual(len({e["tid"] for e in events}), 1)
                    slices = [(base + round(e["ts"] * 1000), base + round((e["ts"] + e["dur"]) * 1000), e["name"], e["args"]) for e in events]
                    self.assert_holds_the_samples(slices, samples[who])

    def test_documented_commands_run(self):
        """Those of docs/timelines.md, on a run that has what they ask for."""
        self.run_well([GPUPROBE, "simulate", "--scenario", "straggler-kernels", "--out", os.path.join(self.cwd, "my-run")])
        commands = commands_of("timelines.md")
        self.assertGreaterEqual(len(commands), 6)
        for arguments in commands:
            with self.subTest(" ".join(arguments)):
                self.run_well([GPUPROBE, *arguments])
                self.assertTrue(os.path.exists(os.path.join(self.cwd, arguments[arguments.index("-o") + 1])))


class Refusals(harness.EndToEndTest):

    def refused(self, *arguments, says, code=2):
        finished = self.run_program([GPUPROBE, "trace", *arguments])
        self.assertEqual((finished.returncode, finished.stdout), (code, b""), str(finished))
        self.assertIn(says, finished.stderr.decode())

    def test_what_is_refused(self):
        run, out = self.path("run"), self.path("out.pftrace")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--out", run, "--ranks", "2", "--steps", "8"])
        self.refused(run, says="--out")
        self.refused(run, "-o", out, "--format", "json", says='got "json"')
        self.refused(run, "-o", out, "--steps", "9:3", says='got "9:3"')
        self.refused(run, "-o", out, "--ranks", "a", says='got "a"')
        self.refused(run, "-o", out, "--max-size", "1", says="--max-size")
        self.refused(run, "-o", out, "--steps", "1:2", "--around", "healthy", says="--around")
        self.refused(run, "-o", out, "--steps", "100:110", says="this run has steps 0 to 7", code=1)
        self.refused(run, "-o", out, "--ranks", "2", says="no rank 2", code=1)
        self.refused(run, "-o", out, "--around", "memory-leak", says='no finding "memory-leak"; it has: healthy', code=1)
        self.assertFalse(os.path.exists(out), "nothing is written where nothing was asked for rightly")
        self.refused(run, "-o", "/dev/null/x", says="/dev/null/x", code=1)
        self.refused(run, "-o", "/dev/null/x", "--format", "chrome", says="/dev/null/x", code=1)
        self.refused(run, "-o", "/dev/full", says="No space left on device", code=1)
        self.refused(self.cwd, "-o", out, says="not a run directory", code=1)

    def test_damage_costs_what_comes_after_it(self):
        run, out = self.path("run"), self.path("out.pftrace")
        self.run_well([GPUPROBE, "simulate", "--scenario", "healthy", "--out", run, "--ranks", "2", "--steps", "200"])
        log = os.path.join(run, "rank-1.gpr")
        os.truncate(log, os.path.getsize(log) * 2 // 3)
        finished = self.run_well([GPUPROBE, "trace", run, "-o", out])
        self.assertIn("rank-1.gpr is damaged", finished.stderr.decode().replace(": ", " "))
        trace = perfetto.read(out)
        kernels = Counter(trace.process_of(s.track) for s in trace.slices if s.category == "kernel")
        self.assertTrue(0 < kernels["rank 1"] < kernels["rank 0"], kernels)


if __name__ == "__main__":
    harness.main()
