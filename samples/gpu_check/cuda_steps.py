"""The steps of gpu-check that run CUDA programs of the installed tree; none needs more than a driver, the CUDA runtime and NCCL."""
import ctypes
import json
import os
import shutil
from collections import Counter, defaultdict

from checker import Failed, Skipped, last_json

VECTOR_ADD_KERNELS = 10
VECTOR_BYTES = 4 << 20
KEEP_TRACE_BYTES = 4 << 20
# Two ranks on one GPU: NCCL takes them for two hosts, since it refuses the same device twice on one.
AS_TWO_HOSTS = ["bash", "-c", 'export NCCL_HOSTID=rank$RANK NCCL_SOCKET_IFNAME=lo NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0'
                '; exec "$0" "$@"']


def conditions(checker):
    driver = ctypes.CDLL("libcuda.so.1")
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        raise Failed("no usable driver or device")
    driver.cuDriverGetVersion(ctypes.byref(version))
    name = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(name, 128, 0)
    checker.results["conditions"].update(driver_version=version.value, devices=count.value, device=name.value.decode(),
                                         simulated=hasattr(driver, "gpusim_version"), probe=checker.call([checker.gpuprobe, "--help"]).splitlines()[0])


def assumed(checker):
    """What the simulated node assumes of CUPTI: what the probe's own tests cannot prove, and which step here settles it."""
    with open(checker.sample("gpu_check", "assumptions.json"), encoding="utf-8") as file:
        checker.results["assumed"] = json.load(file)


def vector_add(checker, loading):
    run = checker.record([checker.sample("vector_add")], loading=loading)
    kernels = run.of_kind("kernel")
    checker.expect("kernels", len(kernels), VECTOR_ADD_KERNELS)
    checker.expect_nothing_lost(run)
    checker.expect_launched(run)
    checker.expect("copies", sorted([c["direction"], c["bytes"]] for c in run.of_kind("memcpy")),
                   [["d2h", VECTOR_BYTES], ["h2d", VECTOR_BYTES], ["h2d", VECTOR_BYTES]])
    checker.expect("memsets", [m["bytes"] for m in run.of_kind("memset")], [VECTOR_BYTES])
    for kind in ("alloc", "free"):
        checker.expect(f"bytes of each {kind}", [[a["memory"], a["bytes"]] for a in run.of_kind(kind)], [["device", VECTOR_BYTES]] * 3)
    waits = [sync["end_ns"] for sync in run.of_kind("sync")]
    checker.expect_that(bool(waits) and max(waits) >= max(k["end_ns"] for k in kernels), "the last wait ends", waits[-1:], "after the last kernel")
    ids = [kernel["correlation"] for kernel in kernels]
    checker.fact("kernels_have_correlation_ids_with_callbacks_only", bool(ids) and all(ids) and len(set(ids)) == len(ids))


def large_graph(checker, nodes, replays, few_replays):
    """A graph of many nodes: what a replay takes, whether all nodes are recorded, and whether device memory stays constant; the same with graphs
    recorded as a whole."""
    program = checker.sample("gpu_check", "graph_replays")
    bare = last_json(checker.call([program, str(nodes), str(few_replays)]))
    whole = checker.record([program, str(nodes), str(few_replays)], {"GPUPROBE_KINDS": "kernels,graphs"})
    checker.expect("runs of graphs recorded as a whole", len(whole.of_kind("graph_run")), few_replays)
    checker.expect_nothing_lost(whole, ", graphs as a whole")
    run = checker.record([program, str(nodes), str(replays)], records=False)
    said = run.said
    checker.expect("kernels", run.kernels, said["kernels"])
    checker.expect_nothing_lost(run)
    checker.expect("invalid times", run.report["trust"]["invalid_times"], 0)
    shrunk = said["free_bytes"][0] - min(said["free_bytes"])
    checker.expect_that(shrunk <= 64 << 20, "device memory that the replays used up", shrunk, "at most 64 MiB")
    checker.cost(f"replay of {nodes} nodes", {"bare": seconds_of(bare["replay_us"]), "every node": seconds_of(said["replay_us"]),
                                             "graphs whole": seconds_of(whole.said["replay_us"])})


def seconds_of(microseconds):
    return [value / 1e6 for value in microseconds]


def second_tool(checker, style):
    """A tool inside the program sees what it sees without the probe, and the probe all the rest besides."""
    program = checker.need("gpu_check", "guest_tool", without="CUPTI")
    alone = last_json(checker.call([program, style]))
    run = checker.record([program, style])
    checker.expect("kernels that the tool saw, alone", alone["kernels"], alone["traced"])
    checker.expect("what the tool saw beside the probe", run.said, alone)
    for key in ("wrong_times", "foreign_buffers", "refused_calls"):
        checker.expect(f"the tool's {key.replace('_', ' ')}", run.said[key], 0)
    checker.expect("kernels that the probe recorded", len(run.of_kind("kernel")), run.said["launched"])
    checker.expect_nothing_lost(run)
    checker.expect_launched(run)


def cupti_trace(checker):
    """What CUPTI says of one of each call, without the probe."""
    tool = checker.need("gpu_check", "libcupti_trace.so", without="CUPTI")
    path = os.path.join(checker.scratch, "cupti_trace.log")
    said = last_json(checker.call([checker.sample("gpu_check", "one_of_each")], {"CUDA_INJECTION64_PATH": tool, "CUPTI_TRACE": path}))
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [[*line.split(" ", 3)[1:], ""][:3] for line in file.read().splitlines()]  # thread, what, details
    if os.path.getsize(path) <= KEEP_TRACE_BYTES:
        shutil.copy(path, os.path.join(checker.out, "cupti_trace.log"))
    records = Counter(details.split()[0] for _, what, details in lines if what == "RECORD")
    for kind, key in (("kernel", "kernels"), ("memcpy", "copies"), ("memset", "memsets")):
        checker.expect(f"{kind} records", records[kind], said[key])
    checker.expect("the trace goes beyond the last flush", any(what == "END" for _, what, _ in lines), True)
    for name, answer in trace_facts(lines).items():
        checker.fact(name, answer)


def trace_facts(lines):
    """lines: thread, what, details. Answers that the probe's design rests on."""
    waits, shared_ids = defaultdict(set), set()
    within = {}  # thread -> (function, correlation) of the runtime call that it is in
    for thread, what, details in lines:
        words = details.split()
        if what == "RT":
            within[thread] = (words[1], words[3]) if words[0] == "ENTER" else None
        elif what == "DRV" and words[0] == "ENTER" and within.get(thread):
            function, correlation = within[thread]
            if "Synchronize" in function:
                waits[function].add(words[1])
            shared_ids.add(words[3] == correlation)
    resources = [details.split() for _, what, details in lines if what == "RESOURCE"]
    fields = [{"event": words[0], **dict(word.split("=") for word in words[1:])} for words in resources]
    told = {f["node"] for f in fields if f["event"] in ("GRAPHNODE_CREATED", "GRAPHNODE_CLONED")}
    of_records = {word for _, what, details in lines if what == "RECORD" for word in details.split() if word.startswith("node=")} - {"node=0"}
    where = [what + " " + details.split()[0] if details else what for _, what, details in lines]
    return {
        "cupti_version": next((details for _, what, details in lines if what == "VERSION"), None),
        "runtime_and_driver_calls_share_correlation_ids": shared_ids == {True},
        "driver_calls_of_waits": {function: sorted(calls) for function, calls in sorted(waits.items())},
        "buffer_requested_before_the_driver_is_up": "RESOURCE CU_INIT_FINISHED" in where
                                                    and "BUFFER requested" in where[:where.index("RESOURCE CU_INIT_FINISHED")],
        "ids_of_new_streams_can_be_asked": all(f["results"] == "0,0" for f in fields if f["event"] == "STREAM_CREATED"),
        "graph_node_types_by_event": {event: sorted({int(f["type"]) for f in fields if f["event"] == event})
                                      for event in ("GRAPHNODE_CREATE_STARTING", "GRAPHNODE_CREATED", "GRAPHNODE_CLONED")},
        "recorded_graph_nodes_that_were_never_told": len({word.removeprefix("node=") for word in of_records} - told),
    }


def many_launches(checker, launches, leave):
    """Each launch is recorded, or counted as lost where the program ends without waiting (leave)."""
    command = [checker.sample("gpu_check", "launch_loop"), str(launches), "1", *(["leave"] if leave else [])]
    run = checker.record(command, records=False)
    checker.expect("kernels recorded + lost", run.kernels + run.lost, run.said["kernels"])
    if leave:
        checker.fact("kernels_lost_at_exit", run.lost)
    else:
        checker.expect_nothing_lost(run)


def gpu_health(checker, launches, repetitions):
    """What the collector asks NVML, and what nvidia-smi says of the same GPU. The run must take some seconds."""
    run = checker.record([checker.sample("gpu_check", "launch_loop"), str(launches), str(repetitions)], records=False)
    health = run.report["ranks"][0].get("gpu_health")
    checker.fact("gpu_health", health)
    if health is None or health["busy_s"] < 1:
        raise Skipped("there is no NVML, or the run was too short for two looks")
    checker.expect_that(0 < health["clock_mhz"] <= health["max_clock_mhz"], "clock, MHz", health["clock_mhz"], f"at most {health['max_clock_mhz']}")
    checker.expect_that(0 < health["power_w"] <= 1.1 * health["power_limit_w"], "power, W", health["power_w"], f"at most {health['power_limit_w']}")
    checker.expect("errors", health["error_count"], 0)
    if shutil.which("nvidia-smi"):
        said = checker.call(["nvidia-smi", "--id=0", "--query-gpu=clocks.max.sm,enforced.power.limit,pcie.link.width.max", "--format=csv,noheader,nounits"])
        checker.expect("highest clock, power limit and PCIe lanes as nvidia-smi has them",
                       [health["max_clock_mhz"], health["power_limit_w"], health["max_pcie_lanes"]], [float(value) for value in said.split(",")])


def one_of_each(checker, program):
    if program == "one_of_each_static" and checker.simulated:
        raise Skipped("built with the static CUDA runtime, which needs a real driver")
    run = checker.record([checker.need("gpu_check", program, without="the static CUDA runtime")])
    for kind, key in (("kernel", "kernels"), ("memcpy", "copies"), ("memset", "memsets")):
        checker.expect(f"{kind} records", len(run.of_kind(kind)), run.said[key])
    allocations = Counter(a["memory"] for a in run.of_kind("alloc"))
    for memory, count in (("device", 2), ("pinned", 1), ("managed", 1), ("pool", 1)):
        checker.expect(f"allocations, {memory}", allocations[memory], count)
    checker.expect_nothing_lost(run)
    checker.expect_launched(run)
    checker.expect("timing source", run.report["trust"]["timing_source"], "cupti_activity")


# What is recorded from rung to rung: ranges, then kind by kind what the device does, what programs call, and what threads are in.
RUNGS = ("kernels", "copies", "memsets", "syncs", "memory", "nccl", "nvtx")
LADDER = {"nvtx only": "nvtx", "kernels only": "kernels", **{f"+ {kind}": ",".join(RUNGS[:i + 1]) for i, kind in enumerate(RUNGS) if i}, "+ driver": None,
          "everything": None}
# A tool that throws away what it asks of CUPTI: kernels, or every kind that the probe asks for, also with a flush twice a second. What such a tool adds to a launch is
# CUPTI's own.
ALONE = {"CUPTI alone": None, "CUPTI alone, every kind": "kinds", "CUPTI alone, flushed": "kinds,flush"}


def ladder(checker, of, command, seconds_of_said, kernels_at_least, rounds=2):
    """What the command says it took bare, under a tool of CUPTI that throws everything away, and under the probe with more and more to record; in
    rounds, so that a drift of the machine hits all alike."""
    alone = os.path.join(checker.tree, "samples", "gpu_check", "libcupti_alone.so")
    seconds = {"bare": [], **({rung: [] for rung in ALONE} if os.path.exists(alone) else {}), **{rung: [] for rung in LADDER}}
    for _ in range(rounds):
        for rung, runs in seconds.items():
            if rung in LADDER:
                said = recorded_rung(checker, command, kernels_at_least, rung)
            else:
                asked = {"CUPTI_ALONE": ALONE[rung]} if ALONE.get(rung) else {}
                said = last_json(checker.call(command, {"CUDA_INJECTION64_PATH": alone, **asked} if rung in ALONE else None))
            runs.append(seconds_of_said(said))
    checker.cost(of, seconds)


def recorded_rung(checker, command, kernels_at_least, rung):
    kinds = LADDER[rung]
    run = checker.record(command, {"GPUPROBE_HOST_SAMPLES": "1" if rung == "everything" else "0",
                                   **({"GPUPROBE_KINDS": kinds} if kinds else {})}, records=False)
    checker.expect_nothing_lost(run, f", {rung}")
    if kinds == "nvtx":
        checker.expect(f"kernels, {rung}", run.kernels, 0)
    else:
        checker.expect_that(run.kernels >= kernels_at_least, f"kernels, {rung}", run.kernels, f"at least {kernels_at_least}")
    if rung == "everything":
        cost = run.report["trust"]["cost"]
        checker.fact(f"reported_cost_of_{checker.name.replace(' ', '_')}", {k: cost[k] for k in ("own_fraction", "expected_cupti_least", "expected_cupti_most")})
    return run.said


def median_launch(said):
    return said["median_us"] / 1e6


def launch_cost(checker, launches, repetitions):
    ladder(checker, "launch of an empty kernel", [checker.sample("gpu_check", "launch_loop"), str(launches), str(repetitions)], median_launch, launches * repetitions)


def ranks_command(checker, program, arguments):
    wrap = AS_TWO_HOSTS if checker.results["conditions"].get("devices", 0) < 2 else []
    return [checker.sample("launch_ranks.sh"), "2", *wrap, checker.need(program, without="NCCL"), *arguments]


def two_ranks(checker, program, arguments, loading):
    run = checker.record(ranks_command(checker, program, arguments), {"DDP_SHARE_DEVICE": "1"}, loading)
    checker.expect("ranks", len(run.report["ranks"]), 2)
    checker.expect_nothing_lost(run)
    calls = run.of_kind("collective")
    checker.expect_that(bool(calls), "collectives", len(calls), "some")
    # A communicator of one rank launches nothing.
    timed = [call for call in calls if call["comm_ranks"] > 1]
    checker.expect("collectives without GPU time", sum(call.get("end_ns", 0) <= call.get("start_ns", 0) for call in timed), 0)
    by_rank = {rank: Counter((c["op"], c["comm"], c["seq"]) for c in timed if c["rank"] == rank and c["op"] not in ("Send", "Recv")) for rank in (0, 1)}
    checker.expect("collectives that the ranks do not number alike", sum(((by_rank[0] - by_rank[1]) + (by_rank[1] - by_rank[0])).values()), 0)


def child_graphs(checker):
    """A captured AllReduce that a graph holds twice. Before 13.4 CUPTI does not say which nodes of the executable graph were made of it: its replays are known by their kernels."""
    rounds = 3
    run = checker.record(ranks_command(checker, "nccl_calls", ["--child-graphs", f"--rounds={rounds}", "--count=4096"]), {"DDP_SHARE_DEVICE": "1"})
    calls = [call for call in run.of_kind("collective") if not call.get("captured")]
    replays = [call for call in calls if call.get("replay")]
    followed = int(run.report["conditions"]["cupti"]) >= 130400
    checker.expect("calls in replays", len(replays), 2 * 2 * rounds if followed else 0)
    checker.expect("calls known by their kernel only", sum(call["source"] == "kernel_name" for call in calls), 0 if followed else 2 * 2 * rounds)
    checker.expect_nothing_lost(run)
    checker.fact("calls_in_child_graphs_are_followed", len(replays) == 2 * 2 * rounds)
