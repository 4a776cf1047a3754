#!/usr/bin/env python3
"""A small PyTorch training loop whose work can be counted: eager, compiled, or replayed from a CUDA graph. Its last line is one JSON object.

With --profile torch.profiler counts kernels and copies of the measured steps; without it only step times and PyTorch's own memory marks are printed.
"""
import argparse
import json
import time

import torch


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("eager", "compiled", "graphs"), default="eager")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sessions", type=int, default=1, help="of torch.profiler, which share the measured steps")
    return parser.parse_args()


def make_step(options):
    torch.manual_seed(1)
    layers = []
    for _ in range(options.layers):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=options.mode == "graphs")
    host = torch.randn(options.batch, options.width).pin_memory()
    batch = torch.empty_like(host, device="cuda")
    forward = torch.compile(model) if options.mode == "compiled" else model

    def train():
        loss = forward(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=options.mode != "graphs")

    work = train
    if options.mode == "graphs":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                train()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            train()
        work = graph.replay

    def step():
        with torch.cuda.nvtx.range("step"):
            batch.copy_(host, non_blocking=True)
            work()
        torch.cuda.synchronize()

    return step


def run(step, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return times


def counted(step, count, sessions):
    """Step times, and what torch.profiler saw on the device in all sessions together."""
    from torch.profiler import ProfilerActivity, profile
    times, counts = [], {"kernels": 0, "copies": 0}
    for session in range(sessions):
        with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
            times += run(step, count * (session + 1) // sessions - count * session // sessions)
        count_work(profiler.events(), counts)
    return times, counts


def count_work(events, counts):
    """Annotations of the host, such as Optimizer.step#AdamW.step, appear on the GPU's track too. Their names do not tell: compiled kernels have
    the names of host events as well."""
    for event in events:
        if "CUDA" not in str(event.device_type) or event.is_user_annotation:
            continue
        if event.name.startswith("Memcpy"):
            counts["copies"] += 1
        elif not event.name.startswith("Memset"):
            counts["kernels"] += 1


def main():
    options = parse_options()
    step = make_step(options)
    run(step, options.warm_up)
    times, counts = counted(step, options.steps, options.sessions) if options.profile else (run(step, options.steps), {})
    print(json.dumps({"mode": options.mode, "steps": options.steps, "step_s": times, **counts,
                      "peak_allocated_bytes": torch.cuda.max_memory_allocated(), "peak_reserved_bytes": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
