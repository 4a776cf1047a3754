"""The program of `bench.sh --pytorch`: trains a small transformer on one GPU and prints what its loop took, as JSON.

Runs in an environment of scripts/pytorch-env.sh: bench_pytorch_loop.py STEPS none|cuda|all, the last being what torch.profiler records meanwhile.
"""
import contextlib
import glob
import json
import os
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


def taken_s():
    """Wall time, and CPU time of the program's threads, the simulated node's and the probe's, in seconds."""
    times = {"wall": time.perf_counter(), "program": 0, "node": 0, "probe": 0}
    for task in glob.glob("/proc/self/task/*"):
        with open(f"{task}/comm", encoding="utf-8") as name, open(f"{task}/schedstat", encoding="utf-8") as cpu:
            owner = {"gpusim": "node", "gpuprob": "probe"}.get(name.read()[:7].strip("-\n"), "program")
            times[owner] += int(cpu.read().split()[0]) / 1e9
    return times


train(WARMUP)
with profile(activities=RECORDED[recorded]) if recorded != "none" else contextlib.nullcontext():
    train(WARMUP)  # what the profiler does once is not a step's cost
    before = taken_s()
    train(steps)
    after = taken_s()
print(json.dumps({name: after[name] - before[name] for name in after}))
