"""DistributedDataParallel in which the last rank gets the longest sequences:

    torchrun --nproc-per-node 4 samples/torch/slow_rank.py
"""
import torch
from torch.nn.parallel import DistributedDataParallel

from common import finish, joined, transformer

STEPS = 20
BATCH, LENGTH, WIDTH = 32, 256, 1024

with joined() as (rank, ranks):
    model = DistributedDataParallel(transformer(4, WIDTH).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    length = 2 * LENGTH if rank == ranks - 1 else LENGTH
    for _ in range(STEPS):
        model(torch.randn(BATCH, length, WIDTH, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
