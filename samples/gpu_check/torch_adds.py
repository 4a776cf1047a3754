#!/usr/bin/env python3
"""x.add_(1) on a tiny tensor, over and over: what a launch costs where PyTorch's host code is the limit. Its last line is one JSON object."""
import argparse
import json
import time

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=20_000, help="in a repetition")
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    x = torch.zeros(16, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    launch_us = []
    for _ in range(options.repetitions):
        begin = time.perf_counter()
        for _ in range(options.launches):
            x.add_(1)
        launch_us.append((time.perf_counter() - begin) / options.launches * 1e6)
        torch.cuda.synchronize()
    launch_us.sort()
    print(json.dumps({"best_us": launch_us[0], "median_us": launch_us[len(launch_us) // 2], "worst_us": launch_us[-1]}))


if __name__ == "__main__":
    main()
