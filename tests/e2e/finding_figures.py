"""What findings say, sentence by sentence, and what each figure in a sentence follows from.

`wrong(run, finding)` reads a finding's statement and evidence as templates of its id and recomputes every figure from the run's records (recorded_run.py). A finding
that is not in SENTENCES, a sentence that is no template, and with it a number that nobody accounts for, are wrong as well: a new finding is declared here.

A template is the sentence, with {name:kind} for each figure. What the name stands for stands beside it, or in FIGURES. A figure must be what the records give, to half of
its last digit.
"""
import re
import statistics

from finding_formulas import (Claim, KINDS, LOOKED_UP, balanced_bubble, blocked, bubble, bubble_cost, bus_bandwidth, calls, capacity, distance,
                             efficiency, end_ns, excess, exposed_transfers, gemm_share, group_lost, growth, high_water, in_use, issued, kept,
                             kept_per_step, kernel_elsewhere, kernels_per_step, last_call, last_data, latest, launched_since, layers_calls,
                             layers_exposed, left_widest, lengths_named, long_cost, longer_part, lost, lost_since, mean_of_late_steps, more_work,
                             most_blamed_share, names_of, numbers_in, of_late_launches, of_late_launches_since, of_step, overlap_cost, own_mean,
                             own_time, pageable, pytorch, recorded_ns, reductions, refused, samples_of, sends_per_step, short_share, since_then, size,
                             slower_since, slower_when_late, stage_lost, steady_ns, summed, syncs, tensor_levels, threads, transfers, usual, value_of,
                             waited, waiting, window)
from recorded_run import HOST_PARTS, mean


# Name: what it follows from. Names that some templates use otherwise are given there.
FIGURES = {
    "step_ns": lambda c: c.run.step_ns,
    "counted": lambda c: c.run.counted,
    "ranks": lambda c: len(c.run.ranks),
    "others": lambda c: len(c.run.ranks) - 1,
    "kernel": lambda c: {c.said["kernel"]} if c.run.kernel_means(c.said["kernel"]) else set(),
    "op": names_of("op"), "last_op": names_of("op"), "type": names_of("datatype"), "comm": lambda c: {name[:8] for name in names_of("comm")(c)},
}

EXPOSED = {"share": summed(lambda c: exposed_transfers(c) / c.run.step_ns), "exposed": summed(exposed_transfers), "transfers": summed(transfers),
           "compute": usual("compute_ns"), "efficiency": efficiency}
COSTS = "{share:share} of the {step_ns:time} step is exposed communication ({exposed:time})."
OVERLAP = ("A step has {transfers:time} of transfers and {compute:time} of compute; overlap efficiency is {efficiency:share} (100 %: compute hides all it could).")
BUCKETS = {f"size{n}": size(n) for n in range(1, 5)} | {f"calls{n}": calls(n) for n in range(1, 5)}
BUCKET_TEXTS = ["AllReduce calls per step: " + ", ".join(f"{{calls{n}:number}} of {{size{n}:bytes}}" for n in range(1, last + 1)) + "." for last in range(1, 5)]
HANG = {"waiting": waiting, "issued": lambda c: len(issued(c)), "comm_ranks": lambda c: len(c.run.ranks), "seq": lambda c: {row["seq"] for row in issued(c)},
        "elements": lambda c: {row["count"] for row in issued(c)}, "other_elements": lambda c: {row["count"] for row in issued(c) if row["rank"] == c.rank},
        "alike": lambda c: sum(row["count"] == c.number("elements") for row in issued(c)), "all_ranks": lambda c: c.run.ranks,
        "last_seq": lambda c: last_call(c)["seq"], "ago": lambda c: end_ns(c) - last_call(c)["end_ns"], "ago_issued": lambda c: end_ns(c) - last_call(c)["issue_ns"],
        "since": lambda c: len(launched_since(c)), "last_launch": lambda c: end_ns(c) - max(launched_since(c)),
        "waiters": lambda c: c.run.report["hangs"][0]["transfer"]["others_waiting"],
        "replay": lambda c: 1 + c.run.value("SELECT max(replay) FROM collective"), "graph_seq": lambda c: c.run.value("SELECT min(seq) FROM collective WHERE captured"),
        "captured": lambda c: c.run.value("SELECT max(bytes) FROM collective WHERE captured AND seq = 1"), "replays": lambda c: c.run.value(
            "SELECT max(replay) FROM collective WHERE rank = ?", c.rank),
        "last_replay": lambda c: end_ns(c) - c.run.value("SELECT max(issue_ns) FROM collective WHERE rank = ? AND replay", c.rank)}


def sentences(*templates, **figures):
    return [(template, figures) for template in templates]


def idle(part):
    return {"ns": usual(part), "share": lambda c: c.run.mean(part) / c.run.step_ns, "samples": samples_of(part.removesuffix("_ns"))}


def idle_for_launches():
    """Until short kernels are launched, and until they start then."""
    late, starts = idle("host_bound_ns"), idle("launch_gap_ns")
    return {**late, "ns": lambda c: late["ns"](c) + starts["ns"](c), "share": lambda c: late["share"](c) + starts["share"](c)}



WAITS = (
    sentences("The other {others:number} ranks wait for rank {rank:rank}, which lengthens the step by {lost:time} ({share:share}).",
              "The other rank waits for rank {rank:rank}, which lengthens the step by {lost:time} ({share:share}).",
              lost=lost, share=lambda c: c.number("lost") / c.run.step_ns)
    + sentences("The other {others:number} ranks have waited for rank {rank:rank} since step {since:step}, which lengthens each step since then by {lost:time};"
                " averaged over all {counted:number} steps, by {all:time} ({share:share}).",
                "The other rank has waited for rank {rank:rank} since step {since:step}, which lengthens each step since then by {lost:time};"
                " averaged over all {counted:number} steps, by {all:time} ({share:share}).",
                lost=lost_since, all=lost, share=lambda c: lost(c) / c.run.step_ns))
SLOWER = (
    sentences("Its kernels run {factor:factor} slower than the same kernels on the other ranks ({here:time} vs {elsewhere:time} for {kernel:name}); launch counts match.",
              factor=lambda c: c.run.slowdown(c.rank), here=own_mean("kernel"), elsewhere=kernel_elsewhere)
    + sentences("Since then it computes {more:time} longer per step, {factor:factor} the other ranks' time; launch counts match."
                " Averaged over all {counted:number} steps, {kernel:name} took {here:time}, elsewhere {elsewhere:time}.",
                more=since_then(excess("compute_ns")), factor=slower_since, here=own_mean("kernel"), elsewhere=kernel_elsewhere))
LAUNCHES = (
    sentences("Its GPU is idle {more:time} longer per step because its host launches late; its kernels run as fast as on the other ranks.", more=excess(*HOST_PARTS))
    + sentences("Since then, its GPU is idle {more:time} longer per step because its host launches late; its kernels run as fast as on the other ranks.",
                more=since_then(excess(*HOST_PARTS))))
EXPOSURE = sentences(COSTS, OVERLAP, *BUCKET_TEXTS, **EXPOSED, **BUCKETS)
LAYERS = sentences(
    "Calls per step: {calls:number} {op:words} over {comm_ranks:number} ranks inside layers (also in forward), {layers:time} exposed (waits included).",
    "Calls per step: {calls:number} {op:words} over {comm_ranks:number} ranks, {layers:time} exposed (waits included).",
    calls=layers_calls, layers=layers_exposed, comm_ranks=lambda c: {rows[0]["comm_ranks"] for rows in c.run.calls.values()})

# Id: (which figure is its cost, its sentences).
SENTENCES = {
    "healthy": (None, sentences(
        "Nothing stands out. {compute:share} of the step is compute, {exposed:share} exposed communication; compute differs by {differs:share} across ranks.",
        compute=lambda c: c.run.mean("compute_ns") / c.run.step_ns, exposed=lambda c: c.run.mean("exposed_comm_ns") / c.run.step_ns,
        differs=lambda c: max(c.run.means("compute_ns").values()) / min(c.run.means("compute_ns").values()) - 1)),
    "straggler-slow-gpu": ("lost", WAITS + SLOWER + sentences(
        "Rank {rank:rank} holds up the pipeline: its stage takes {more:time} longer per step than the others, which lengthens the step by {lost:time} ({share:share}).",
        more=excess("compute_ns"), lost=stage_lost, share=lambda c: stage_lost(c) / c.run.step_ns)),
    "straggler-late-launch": ("lost", [(template, {**figures, "lost": of_late_launches_since if "since" in template else of_late_launches, "all": of_late_launches,
                                                   "share": lambda c: tuple(ns / c.run.step_ns for ns in of_late_launches(c))}) for template, figures in WAITS] + LAUNCHES),
    "straggler-late-input": ("lost", WAITS + sentences("It waits {more:time} longer per step for its input.", more=excess("input_wait_ns"))),
    "straggler-more-work": ("lost", WAITS + sentences(
        *(f"{of_all}t has {{ratio:factor}} the work of the other ranks. {{kernel:name}} launches {{threads:factor}} the threads and takes {{here:time}} instead of"
          " {elsewhere:time}." for of_all in ("I", "Averaged over all {counted:number} steps, i")),
        ratio=more_work, threads=threads, here=own_mean("kernel"), elsewhere=kernel_elsewhere)),
    "straggler-slow-copies": ("lost", WAITS + sentences("Its copies take {more:time} longer per step than the others'.", more=excess("copy_ns"))),
    "straggler-intermittent": ("lost", sentences(
        *(f"The other ranks wait for rank {{rank:rank}} {when}; this lengthens these steps by {{longer:time}}, and the average step by {{lost:time}} ({{share:share}})."
          for when in ("for {length:number} of every {every:number} steps ({late:number} of {counted:number} steps, first in step {first:step})",
                       "every {every:number} steps ({late:number} of {counted:number} steps, first in step {first:step})",
                       "every {every:number} steps (steps {steps:steps}; {late:number} of {counted:number} steps)",
                       "intermittently (in {late:number} of {counted:number} steps)",
                       "intermittently (in {late:number} of {counted:number} steps: steps {steps:steps})",
                       "from step {first:step} to step {last:step} (in {late:number} of {counted:number} steps overall)")),
        length=lambda c: sum(step < c.late[0] + c.number("every") for step in c.late), every=distance, late=lambda c: len(c.late), first=lambda c: c.late[0], last=None,
        steps=lambda c: c.late, longer=mean_of_late_steps, lost=lost, share=lambda c: lost(c) / c.run.step_ns)
        + sentences("In these steps, it computes {more:time} longer ({factor:factor} the others' time).", more=excess("compute_ns"), factor=slower_when_late)
        + sentences("In these steps, it waits {more:time} longer for its input.", more=excess("input_wait_ns"))
        + sentences("In these steps, its GPU is idle {more:time} longer because of its host: {what:text} (100 % of {samples:number} samples);"
                    " its kernels run as fast as on the other ranks.",
                    more=excess(*HOST_PARTS), what=None, samples=lambda c: c.straggler["host_places"][0]["of_samples"])),
    "long-steps": ("lost", sentences(
        "{long:number} of {counted:number} steps take much longer than the typical {usual:time}: {named:text}. They lengthen the average step by {lost:time} ({share:share}).",
        long=lambda c: len(c.finding["about"]["steps"]), usual=lambda c: statistics.median(c.run.lengths.values()), named=lambda c: lengths_named(c),
        lost=long_cost, share=lambda c: long_cost(c) / (statistics.median(c.run.lengths.values()) + long_cost(c)))
        + sentences("No rank was later than the others; the delay affected all ranks.")
        + sentences("In them, on average, kernels compute {more:time} longer than in the median step.", more=longer_part("compute_ns"))
        + sentences("Latest: {latest:text}.", latest=latest)
        + sentences("The other ranks waited for rank {rank:rank} in both, {late:time} on average. The same rank would be last by chance in one of {runs:number} such runs.",
                    late=lambda c: mean(c.run.late_by(int(c.said["rank"]))[step] for step in c.finding["about"]["steps"]), runs=lambda c: len(c.run.ranks))),
    "two-speeds": ("lost", sentences(
        "Two groups of ranks run at different speeds: ranks {slower:ranks} need {slower_own:time} per step, ranks {faster:ranks} need {faster_own:time} and wait for them;"
        " this lengthens the step by {lost:time} ({share:share}).",
        slower=lambda c: c.finding["about"]["ranks"], slower_own=own_time("slower"), faster=lambda c: [rank for rank in c.run.ranks if rank not in c.finding["about"]["ranks"]],
        faster_own=own_time("faster"), lost=group_lost, share=lambda c: group_lost(c) / c.run.step_ns)
        + sentences("Compute takes the slower ranks {slow:time} per step, the others {fast:time}.",
                    slow=lambda c: mean(c.run.mean("compute_ns", rank=rank) for rank in c.finding["about"]["ranks"]),
                    fast=lambda c: mean(c.run.mean("compute_ns", rank=rank) for rank in c.run.ranks if rank not in c.finding["about"]["ranks"]))
        + sentences("Their hardware or software differs: {differing:text}.", differing=lambda c: "; ".join(c.run.report["conditions"]["differing"]))),
    "mixed-hardware": (None, sentences("The ranks run on different hardware or software.")
                       + sentences("{differing:text}.", differing=lambda c: "; ".join(c.run.report["conditions"]["differing"]))),
    "imbalance": ("lost", sentences(
        "Ranks wait for each other (no single rank is at fault), which lengthens the step by {lost:time} ({share:share}).",
        "Ranks wait for each other ({most:share} of it for rank {last:rank}), which lengthens the step by {lost:time} ({share:share}).",
        "The rank that arrives last changes from step to step; rank {last:rank} causes the largest share of the waiting, {most:share}.",
        lost=waited, share=lambda c: waited(c) / c.run.step_ns, most=most_blamed_share)),
    "low-mfu": (None, sentences("The step uses {mfu:share} of the GPUs' bf16 peak (MFU).", mfu=lambda c: c.run.report["utilisation"]["mfu"]) + sentences(
        "Step time: compute {compute:share}, exposed communication {exposed:share}, copies {copies:share}, idle {idle:share}."
        " Matrix products, convolutions and attention take {gemm:share} of kernel time.",
        compute=of_step("compute_ns"), exposed=of_step("exposed_comm_ns"), copies=of_step("copy_ns"), idle=of_step("idle_ns"), gemm=gemm_share)),
    "communication-bound": ("exposed", EXPOSURE + LAYERS),
    "poor-overlap": (overlap_cost, EXPOSURE + LAYERS + sentences(
        "Communication overlaps poorly with compute (efficiency {efficiency:share}): {exposed:time} of {transfers:time} of transfers per step are exposed.", **EXPOSED)),
    "bucket-too-large": ("exposed", EXPOSURE + sentences(
        "One bucket of {size1:bytes} holds {of_bytes:share} of the bytes reduced per step; its transfer cannot overlap the backward pass that fills it.",
        of_bytes=lambda c: size(1)(c) / reductions(c)[1], **BUCKETS)),
    "bucket-too-small": ("exposed", EXPOSURE + sentences(
        "Gradients are reduced in {calls:number} calls of {size:bytes} per step, and each pays the latency of a call.",
        "Together they transfer for {together:time} per step, at {rate:rate}.",
        calls=lambda c: reductions(c)[0], size=lambda c: reductions(c)[1] / reductions(c)[0], together=lambda c: reductions(c)[2],
        rate=lambda c: reductions(c)[1] / reductions(c)[2])),
    "slow-network": ("exposed", EXPOSURE + sentences(
        "The network is slow for all ranks: at most {best:rate} bus bandwidth, {of_peak:share} of {peak:rate} (NVLink of NVIDIA H100 80GB HBM3).",
        "Measured on transfers of 8.00 MiB and more, excluding waits.",
        best=bus_bandwidth, of_peak=lambda c: bus_bandwidth(c) / 450, peak=lambda c: 450)),
    "pipeline-bubble": (bubble_cost, sentences(
        "Pipeline bubble: stages wait for each other for {bubble:share} of the {step_ns:time} step.",
        "Pipeline bubble: stages wait for each other for {bubble:share} of the {step_ns:time} step; with the slow stage as fast as the others, it would be {balanced:share} of"
        " {balanced_step:time}.",
        "{stages:number} stages, {microbatches:number} microbatches per step: a 1F1B schedule leaves at least (p-1)/(m+p-1) = {least:share}.",
        "All stages compute equally long.",
        "Exposed communication within stages, {within:time} per step, is not included.",
        "Measured in the {before:number} steps before the hang.",
        bubble=bubble, balanced=balanced_bubble, balanced_step=lambda c: c.run.step_ns - c.run.report["stragglers"][0]["lost_ns_per_step"],
        stages=lambda c: c.run.report["communication"]["pipeline"]["stages"], microbatches=sends_per_step, within=summed(exposed_transfers),
        least=lambda c: (c.number("stages") - 1) / (c.number("microbatches") + c.number("stages") - 1), before=lambda c: c.run.counted)),
    "input-bound": ("ns", sentences(
        "The GPUs wait {ns:time} per step ({share:share} of the step) before their input comes.",
        "Nothing runs on the GPU and the host launches nothing, until a copy to the GPU begins the step, or in a range that is named after loading."
        " That the host loads data meanwhile is likely, and not recorded.", **idle("input_wait_ns"))),
    "launch-bound": ("ns", sentences(
        "The host launches too slowly: the GPUs run out of work for {ns:time} per step ({share:share} of the step).",
        "{kernels:number} kernels per step and rank compute for {each:time} each on average; {short:share} of the run's kernels are shorter than 10.0 us.",
        kernels=kernels_per_step, each=lambda c: c.run.mean("compute_ns") / kernels_per_step(c), short=short_share, **idle_for_launches())),
    "sync-in-loop": ("ns", sentences(
        "The host synchronises with the GPU within the step and then launches late: nothing runs for {ns:time} per step ({share:share} of the step).",
        "{syncs:number} synchronising calls and copies to the host per step and rank block the host for {blocked:time} per step.",
        syncs=syncs, blocked=blocked, **idle("sync_ns"))),
    "host-pause": ("ns", sentences(
        "The GPUs wait {ns:time} per step ({share:share} of the step) while the host launches nothing: {what:text} (100 % of {samples:number} samples).",
        "Nothing runs on the GPU while that call goes on.",
        "No synchronising call and no copy is around these pauses.", what=None, **idle("pause_ns"))),
    "pageable-copies": ("ns_alone", sentences(
        "{copies:number} copies per step and rank to the GPU go through pageable memory, {ns_alone:time} per step.",
        "They run at {rate:rate}; the bus supports 63.0 GB/s. Such a copy is staged, and the host waits for it.",
        copies=lambda c: len(pageable(c)) / len(c.run.records()), ns_alone=lambda c: sum(row["end_ns"] - row["start_ns"] for row in pageable(c)) / len(c.run.records()),
        rate=lambda c: sum(row["bytes"] for row in pageable(c)) / sum(row["end_ns"] - row["start_ns"] for row in pageable(c)))),
    "warmup-dominated": (None, sentences(
        "{share:share} of the run is not steady training: {warmup:number} warm-up step, startup, evaluation and shutdown.",
        "{share:share} of the run is not steady training: {warmup:number} warm-up steps, startup, evaluation and shutdown.",
        "{counted:number} steps after the warm-up take {steady:time} of {all:time}.",
        share=lambda c: 1 - steady_ns(c) / recorded_ns(c), warmup=lambda c: c.run.report["steps"]["warmup_count"], steady=steady_ns, all=recorded_ns,
        counted=lambda c: len(c.run.numbers) - c.run.report["steps"]["warmup_count"])),
    "memory-leak": (None, sentences(
        "Each of the {ranks:number} ranks holds {growth:bytes} more memory after every step; at that rate the first GPU is full in {full:number} steps ({left:time}).",
        "{kept:number} allocations of {each:bytes} made in forward of each step are never freed: {growth:bytes} per step.",
        "The lowest level of PyTorch's tensors between steps kept rising, to {held:bytes}; each step temporarily adds {within:bytes}.",
        growth=growth, full=lambda c: ((capacity(c) - tensor_levels(c)[0]) / growth(c), (capacity(c) - tensor_levels(c)[0] + window(c)) / growth(c)), left=lambda c: c.number("full") * c.run.step_ns, kept=kept_per_step,
        each=lambda c: growth(c) / kept_per_step(c), held=lambda c: (tensor_levels(c)[1] - window(c), tensor_levels(c)[1]),
        within=lambda c: (tensor_levels(c)[0] - tensor_levels(c)[1], tensor_levels(c)[0] - tensor_levels(c)[1] + window(c)))),
    "fragmentation": (None, sentences(
        "PyTorch's allocator on rank {rank:rank} reserves {ratio:factor} the peak of its tensors.",
        "Peak reserved {reserved:bytes}, peak allocated {allocated:bytes}: {lost_bytes:bytes} is lost to fragmentation.",
        ratio=lambda c: high_water(c) / pytorch("peak_allocated_bytes")(c), reserved=pytorch("peak_reserved_bytes"), allocated=pytorch("peak_allocated_bytes"),
        lost_bytes=lambda c: pytorch("peak_reserved_bytes")(c) - pytorch("peak_allocated_bytes")(c))),
    "out-of-memory": (None, sentences(
        "Rank {rank:rank} ran out of memory: requested {asked:bytes} (device) with {used:bytes} of {capacity:bytes} in use.",
        "1 request failed.", "In use at the time: device {used:bytes}.",
        "At most {free:bytes} was free, less what the context, loaded modules and other processes take.",
        "PyTorch reserved {used:bytes} for {tensors:bytes} of tensors.",
        asked=lambda c: refused(c)["bytes"], used=in_use, capacity=capacity, free=lambda c: capacity(c) - in_use(c), tensors=pytorch("allocated_bytes"))),
    "memory-pressure": (None, sentences(
        "Each of the {ranks:number} ranks came within {left:share} of its GPU's capacity: {used:bytes} of {capacity:bytes} on rank {on:rank}.",
        "High-water mark of driver allocations; the context, loaded modules and the probe's own buffers come on top.",
        left=left_widest, used=high_water, capacity=capacity)),
    "rank-cut-off": (None, sentences(
        "{cut:number} processes exited uncleanly; later records are missing.", "Ranks {who:ranks}, last data after {after:time}.",
        cut=lambda c: sum(rank["cut_off"] for rank in c.run.report["ranks"]), who=lambda c: [rank["rank"] for rank in c.run.report["ranks"] if rank["cut_off"]], after=last_data)),
    "capture-incomplete": (None, sentences(
        "The capture is incomplete.", "{without:number} of {calls:number} collective calls have no kernel and therefore no GPU time.",
        without=lambda c: c.run.value("SELECT count(*) FROM collective WHERE start_ns IS NULL"), calls=lambda c: c.run.value("SELECT count(*) FROM collective"))),
    "records-lost": (None, sentences(
        "{lost:number} records were lost, {share:share} of all; totals are low by about that much.", "By reason: buffer_pool_empty {lost:number}.",
        lost=lambda c: sum(c.run.report["trust"]["lost"].values()),
        share=lambda c: c.number("lost") / (c.number("lost") + c.run.report["trust"]["records"]))),
    "clock-stepped": (None, sentences(
        "The host's clock was stepped by {by:time} during the run.", "CLOCK_REALTIME moved against CLOCK_MONOTONIC between two batches.",
        by=lambda c: c.run.report["trust"]["clock_step_ns"])),
    "hang-missing-rank": (None, sentences(
        "{op:words} seq {seq:number} on communicator {comm:name} ({comm_ranks:number} ranks) has been waiting for {waiting:time}: rank {rank:rank} did not issue it.",
        "{op:words} seq {seq:number} by rank {from:rank} to rank {rank:rank} on communicator {comm:name} ({comm_ranks:number} ranks) has been waiting for {waiting:time}:"
        " rank {rank:rank} did not issue its Recv.",
        "Replay {replay:number} of the CUDA graph with {op:words} seq {graph_seq:number} on communicator {comm:name} ({comm_ranks:number} ranks) has been waiting for"
        " {waiting:time}: rank {rank:rank} did not launch it.",
        "{issued:number} ranks issued it ({op:words}, {elements:number} x {type:name}).",
        "{issued:number} ranks launched it (AllReduce of {captured:bytes} when captured).",
        "Rank {from:rank} issued it ({op:words}, {elements:number} x {type:name}).",
        "{waiters:number} other transfers wait for the same rank.",
        "Rank {rank:rank} did not: its last call was {last_op:words} seq {last_seq:number}, finished {ago:time} ago; since it issued that call it has launched work"
        " {since:number} times, last {last_launch:time} ago.",
        "Rank {rank:rank} did not: its last call was {last_op:words} seq {last_seq:number}, issued {ago_issued:time} ago and not known to have finished; it has launched nothing"
        " since.",
        "Rank {rank:rank} did not: it launched this graph {replays:number} times, last {last_replay:time} ago; its last call was {last_op:words} seq {last_seq:number}, captured into"
        " a CUDA graph {ago_issued:time} ago; since it issued that call it has launched work {since:number} times, last {last_launch:time} ago.",
        "Rank {a:rank} waits for rank {b:rank} in Send to rank {d:rank} on communicator {comm:name}.",
        **HANG)),
    "hang-mismatch": (None, sentences(
        "{op:words} seq {seq:number} on communicator {comm:name} ({comm_ranks:number} ranks) was issued differently by rank {rank:rank}; it has been waiting for {waiting:time}.",
        "{alike:number} ranks issued it ({op:words}, {elements:number} x {type:name}).",
        "Rank {rank:rank} issued {op:words}, {other_elements:number} x {type:name}.", **HANG)),
    "hang-all-issued": (None, sentences(
        "{op:words} seq {seq:number} on communicator {comm:name} ({comm_ranks:number} ranks) has been waiting for {waiting:time}: all {comm_ranks:number} ranks issued it, but it does"
        " not finish.",
        "{issued:number} ranks issued it ({op:words}, {elements:number} x {type:name}).",
        "Ranks {all_ranks:ranks}, each: its last call is {last_op:words} seq {last_seq:number}, issued {ago_issued:time} ago and not known to have finished; since it issued that call"
        " it has launched work {since:number} times, last {last_launch:time} ago.", **HANG)),
}


# --- reading

def pattern_of(template):
    names = set()

    def part(match):
        name, kind = match[1].split(":")
        if name in names:
            return f"(?P={name})"
        names.add(name)
        return f"(?P<{name}>{KINDS[kind]})"
    return re.compile("".join(part(re.match(r"\{(.*)\}", piece)) if piece.startswith("{") else re.escape(piece) for piece in re.split(r"(\{[^}]*\})", template)) + r"(?=\s|$)")


READ = {id_: [(pattern_of(template), dict(re.findall(r"\{(\w+):(\w+)\}", template)), figures) for template, figures in all_of] for id_, (_, all_of) in SENTENCES.items()}


def sentences_of(finding):
    """(what it says by name, kinds, figures) of each sentence of its text; the last one may be the text that nothing explains."""
    text = f"{finding['statement']} {finding['evidence']}".strip()
    while text:
        for pattern, kinds, figures in READ[finding["id"]]:
            match = pattern.match(text)
            if match:
                yield match.groupdict(), kinds, figures
                text = text[match.end():].lstrip()
                break
        else:
            yield text, None, None
            return


def _agrees(kind, said, expected):
    if callable(expected):
        return expected(said)
    if kind in ("steps", "ranks"):
        return numbers_in(said) == list(expected)
    if kind in ("text", "words", "name"):
        return said in expected if isinstance(expected, (set, frozenset)) else said == expected
    value, half = value_of(said)
    if isinstance(expected, (set, frozenset)):
        return value in expected
    low, high = expected if isinstance(expected, tuple) else (expected, expected)
    slack = 1.0001 * half + 1e-6 * abs(high)
    return low - slack <= value <= high + slack


def wrong(run, finding):
    """In words; empty: every figure follows from the records."""
    id_ = finding["id"]
    if id_ not in SENTENCES:
        return [f"{id_} is not declared in {__file__}: {finding['statement']}"]
    out = []
    everything = {}
    for said, kinds, figures in sentences_of(finding):
        if kinds is None:
            out.append(f"{id_}: no template has this: {said}")
            break
        claim = Claim(run, finding, said)
        everything.update(said)
        for name, kind in kinds.items():
            if kind == "step" and int(said[name]) not in run.numbers:
                out.append(f"{id_}: there is no step {said[name]}")
            if kind == "rank" and int(said[name]) not in run.ranks + [rank["rank"] for rank in run.report["ranks"]]:
                out.append(f"{id_}: there is no rank {said[name]}")
            formula = figures.get(name, FIGURES.get(name, None if kind in LOOKED_UP else KeyError))
            if formula is KeyError:
                out.append(f"{id_}: nothing says what {name} ({said[name]}) is")
            elif formula is not None:
                expected = formula(claim)
                if not _agrees(kind, said[name], expected):
                    out.append(f"{id_}: {name} is {said[name]}, and the records say {expected}")
    return out + _cost(run, finding, everything)


def _cost(run, finding, said):
    """Its cost is the figure that its text gives."""
    of, _ = SENTENCES[finding["id"]]
    cost = finding["cost_ns_per_step"]
    if (of is None) != (cost is None):
        return [f"{finding['id']}: its cost is {cost}"]
    if of is None:
        return []
    if callable(of):
        expected = of(Claim(run, finding, said))
        low, high = expected if isinstance(expected, tuple) else (expected, expected)
        return [] if 0.995 * low <= cost <= 1.005 * high else [f"{finding['id']}: its cost is {cost}, and the records say {expected}"]
    return [] if of in said and _agrees("time", said[of], cost) else [f"{finding['id']}: its cost is {cost}, and its text says {said.get(of)}"]
