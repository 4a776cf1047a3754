"""A training loop that times its own parts: timed_loop.py workers|waits STEPS

workers: small convolutions, batches from two worker processes, copied from pageable memory. The host is behind all the time.
waits: large layers, a loss that is read in each step, a batch made and a line logged in the main process. The GPU is ahead.
The last line is JSON: milliseconds of each part of a step, and of the step, on average after 20 steps.
"""
import contextlib
import json
import sys
import time

import torch
from torch import nn

KIND, STEPS = sys.argv[1], int(sys.argv[2])
spent = {}


@contextlib.contextmanager
def timed(part):
    begin = time.perf_counter()
    yield
    spent.setdefault(part, []).append(time.perf_counter() - begin)


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 64 * (STEPS + 1)

    def __getitem__(self, index):
        return torch.randn(3, 64, 64), index % 10


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def tokenize(words):
    total = 0
    for word in range(words):
        total += word * 7 % 13
    return total


def load(batches):
    if batches is not None:
        return next(batches)
    tokenize(45_000)
    return torch.randn(64, 4096)


def log(value):
    return json.dumps({str(i): value for i in range(1200)})


def main():
    torch.manual_seed(0)
    if KIND == "workers":
        net = convolutions().cuda()
        optimizer = torch.optim.Adam(net.parameters())
        batches = iter(torch.utils.data.DataLoader(Images(), batch_size=64, num_workers=2))
    else:
        net = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(10))).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
        batches = None
    for _ in range(STEPS):
        with timed("load"):
            batch = load(batches)
        with timed("to"):
            batch = (batch[0].cuda(), batch[1].cuda()) if batches is not None else batch.cuda()
        with timed("forward"):
            if batches is not None:
                loss = nn.functional.cross_entropy(net(batch[0]), batch[1])
            else:
                loss = net(batch.repeat(64, 1)).square().mean()
        with timed("backward"):
            loss.backward()
        with timed("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if batches is None:
            with timed("item"):
                value = loss.item()
            with timed("log"):
                log(value)
    torch.cuda.synchronize()
    parts = {part: 1e3 * sum(times[20:]) / len(times[20:]) for part, times in spent.items()}
    print(json.dumps({**parts, "step": sum(parts.values())}), flush=True)


if __name__ == "__main__":
    main()
