"""The program of `bench.sh --pytorch` and `--ladder`: trains a small transformer on one GPU and prints what its loop took, as JSON.

Runs in an environment of scripts/pytorch-env.sh: bench_pytorch_loop.py STEPS none|cuda|all, the last being what torch.profiler records meanwhile.
"""
import contextlib
import glob
import json
import os
import re
import sys
import time

import torch
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "samples", "torch"))
from common import transformer  # noqa: E402

WARMUP = 20
RECORDED = {"cuda": [ProfilerActivity.CUDA], "all": [ProfilerActivity.CPU, ProfilerActivity.CUDA]}

steps, recorded = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(1)
model = transformer().cuda()
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(4, 64, 256).cuda()


def train(steps):
    for _ in range(steps):
        loss = (model(inputs) - inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.cuda.synchronize()


def taken():
    """Wall time, and CPU time and context switches of the program's threads, the simulated node's and the probe's."""
    times = {"wall": time.perf_counter(), **{owner: {"cpu": 0, "waits": 0, "preempted": 0} for owner in ("program", "node", "probe")}}
    for task in glob.glob("/proc/self/task/*"):
        texts = {}
        for file in ("comm", "schedstat", "status"):
            with open(f"{task}/{file}", encoding="utf-8") as lines:
                texts[file] = lines.read()
        owner = times[{"gpusim": "node", "gpuprob": "probe"}.get(texts["comm"][:7].strip("-\n"), "program")]
        owner["cpu"] += int(texts["schedstat"].split()[0]) / 1e9
        owner["waits"] += int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", texts["status"], re.M)[1])
        owner["preempted"] += int(re.search(r"^nonvoluntary_ctxt_switches:\s+(\d+)", texts["status"], re.M)[1])
    return times


def difference(after, before):
    return {name: difference(after[name], before[name]) for name in after} if isinstance(after, dict) else after - before


train(WARMUP)
with profile(activities=RECORDED[recorded]) if recorded != "none" else contextlib.nullcontext():
    train(WARMUP)  # what the profiler does once is not a step's cost
    before = taken()
    train(steps)
    after = taken()
print(json.dumps(difference(after, before)))
