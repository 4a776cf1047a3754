"""Figures that cannot be right, whatever the program did: more than the step, more than the peak, more than all, a wait longer than the run.

`impossible(report)` lists them for a report.json. A test of any kind may call it; those of scenarios, recordings and strangers' programs do.
"""
import re

# Means and sums of rounded parts, and clocks of two sources.
TOLERANCE = 1.02
SLACK_NS = 50_000
# Shares of something: no more than all of it. `mfu` and `hfu` depend on what the user says of the model.
SHARES = re.compile(r"(^|_)(share|bubble|efficiency|confidence|coverage|loss|fraction|r2)$|^(waits_for_cpu|throttled|memory_stall|uninterruptible)$")
NO_SHARES = {"mfu", "hfu", "peak_share"}
UNITS_NS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}
# Their text compares with something else than a whole: an option that cannot be true, how far profiling slows a program.
OTHER_PERCENTAGES = {"options-mistaken", "costly-capture", "graph-nodes"}
SIGNED = {"clock-stepped", "device-clock"}  # by how much a clock was moved
FINITE = 1e18
UNLIMITED = "release_threshold_bytes"  # of a pool that keeps all it has


def _walk(value, path=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _walk(item, f"{path}[{i}]")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


def _shares(report):
    for path, value in _walk(report):
        key = re.sub(r"\[\d+\]$", "", path).rsplit(".", 1)[-1]
        if SHARES.search(key) and key not in NO_SHARES and not -0.02 <= value <= TOLERANCE:
            yield f"{path} is {value}"
        if key == "peak_share" and value > 1.1 and report["communication"].get("link_peak_source") != "--link-peak":
            yield f"{path} is {value}: above the link's peak"
        if abs(value) > FINITE and key != UNLIMITED and not key.endswith("_ns"):
            yield f"{path} is {value}"


def _steps(name, steps):
    """Parts are parts of the step, and statistics are in order."""
    if not steps or not steps.get("time_ns"):
        return
    mean = steps["time_ns"]["mean"]
    parts = [steps[key]["mean"] for key in ("compute_ns", "exposed_comm_ns", "copy_ns", "idle_ns")]
    if abs(sum(parts) - mean) > max(SLACK_NS, (TOLERANCE - 1) * mean):
        yield f"{name}: the parts {parts} do not add up to {mean}"
    causes = steps.get("idle") or {}
    if sum(cause["mean"] for cause in causes.values()) > TOLERANCE * steps["idle_ns"]["mean"] + SLACK_NS:
        yield f"{name}: idle causes exceed the idle time {steps['idle_ns']['mean']}"
    for key, summary in steps.items():
        if isinstance(summary, dict) and {"min", "p50", "p99", "max"} <= summary.keys() and summary["count"] > 0:
            if not summary["min"] <= summary["p50"] <= summary["p99"] <= summary["max"]:
                yield f"{name}.{key}: {summary}"


def _findings(report):
    steps = report["steps"]
    step_ns = steps["time_ns"]["mean"] if steps else None
    longest_ns = steps["time_ns"]["max"] if steps else None
    for finding in report["findings"]:
        text = f"{finding['statement']} {finding['evidence']}"
        cost = finding["cost_ns_per_step"]
        if cost is not None:
            most = longest_ns if finding["about"]["first_step"] is not None else step_ns
            if step_ns is None or not 0 <= cost <= TOLERANCE * most + SLACK_NS:
                yield f"{finding['id']} costs {cost} of a step of {step_ns}: {text}"
        if finding["id"] not in OTHER_PERCENTAGES:
            for percent in re.findall(r"([\d.,]+) %", text):
                if float(percent.replace(",", "")) > 100 * TOLERANCE:
                    yield f"{finding['id']} says {percent} %: {text}"
        for number, unit in re.findall(r"([\d.]+) (ns|us|ms|s) per step", text):
            if step_ns and float(number) * UNITS_NS[unit] > TOLERANCE * longest_ns + SLACK_NS:
                yield f"{finding['id']} says {number} {unit} per step of {step_ns}: {text}"
        if finding["id"] not in SIGNED and re.search(r"\b(nan|inf)\b|-\d+(\.\d+)? (%|ns|us|ms|s)\b", text):
            yield f"{finding['id']}: {text}"


def _waits(report):
    duration_ns = report["conditions"]["duration_ns"]
    for hang in report["hangs"]:
        if hang["waiting_ns"] > TOLERANCE * duration_ns + 2e9:
            yield f"a hang of {hang['waiting_ns']} in a run of {duration_ns}"
        if hang["steps"] is not None and report["steps"] and hang["steps"] > report["steps"]["count"]:
            yield f"a hang after {hang['steps']} of {report['steps']['count']} steps"
        if hang["issued"] > hang["comm_ranks"] > 0 or len(hang["ranks"]) + hang["ranks_left_out"] > max(hang["comm_ranks"], len(report["ranks"])):
            yield f"more ranks than there are: {hang}"
    for past in report["past_hangs"]:
        if past["until_ns"] - past["since_ns"] > TOLERANCE * duration_ns + 2e9:
            yield f"a hang from {past['since_ns']} to {past['until_ns']} in a run of {duration_ns}"
    for rank in report["ranks"]:
        if rank.get("duration_ns") and rank["wait"]["waited_ns"] > TOLERANCE * rank["duration_ns"] + SLACK_NS:
            yield f"rank {rank['rank']} waited {rank['wait']['waited_ns']} in {rank['duration_ns']}"
        caused, own = rank["wait"]["caused_per_step_ns"], rank["steps"]
        if caused and own and caused > TOLERANCE * own["time_ns"]["mean"] + SLACK_NS:
            yield f"rank {rank['rank']} makes others wait {caused} in a step of {own['time_ns']['mean']}"


def _memory(report):
    for rank in report["ranks"]:
        for device in rank.get("device_memory") or []:
            if device["capacity_bytes"] and device["high_water_bytes"] > device["capacity_bytes"]:
                yield f"rank {rank['rank']}: {device['high_water_bytes']} of {device['capacity_bytes']} bytes"
            lifetimes = device["lifetimes"]
            if lifetimes and sum(h["bytes"] for h in lifetimes["holdings"]) > lifetimes["peak_bytes"]:
                yield f"rank {rank['rank']}: {lifetimes}"


def impossible(report):
    """In words; empty: every figure may be right."""
    return [*_shares(report), *_steps("steps", report["steps"]), *(line for rank in report["ranks"] for line in _steps(f"rank {rank['rank']}", rank["steps"])),
            *_findings(report), *_waits(report), *_memory(report)]
