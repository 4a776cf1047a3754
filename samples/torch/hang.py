"""The last rank leaves the training loop early, as one whose share of the data is smaller does, and the others wait for it:

    torchrun --nproc-per-node 4 samples/torch/hang.py
"""
import time

import torch
from torch.nn.parallel import DistributedDataParallel

from common import joined, transformer

STEPS = 12
BATCH, LENGTH, WIDTH = 4, 64, 256

with joined() as (rank, ranks):
    model = DistributedDataParallel(transformer(2, WIDTH).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for _ in range(STEPS - 1 if rank == ranks - 1 else STEPS):
        model(torch.randn(BATCH, LENGTH, WIDTH).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == ranks - 1:
        print(f"rank {rank}: no more data", flush=True)
        time.sleep(3600)  # its evaluation
    torch.cuda.synchronize()
