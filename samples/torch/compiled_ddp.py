"""Distributed data parallel around a model that torch.compile turns into fused kernels, cut at the gradients' buckets:

    torchrun --nproc-per-node 2 samples/torch/compiled_ddp.py
"""
import torch
from torch.nn.parallel import DistributedDataParallel

from common import finish, joined, transformer

STEPS = 100
BATCH, LENGTH, WIDTH = 8, 128, 256

with joined() as (rank, _):
    model = torch.compile(DistributedDataParallel(transformer(2, WIDTH).cuda()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for _ in range(STEPS):
        inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
