"""A transformer whose attention heads and MLPs are divided among the ranks (tensor parallelism):

    torchrun --nproc-per-node 4 samples/torch/tensor_parallel.py
"""
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from common import finish, joined, transformer

STEPS = 12
BATCH, LENGTH, WIDTH = 8, 128, 512

with joined() as (rank, ranks):
    mesh = init_device_mesh("cuda", (ranks,), mesh_dim_names=("tp",))
    model = transformer(4, WIDTH).cuda()
    for block in model:
        block.heads //= ranks
        parallelize_module(block, mesh, {
            "query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel(),
            "up": ColwiseParallel(), "down": RowwiseParallel()})
    # One parameter at a time: norms are whole tensors and linear layers are DTensors, which a fused update cannot mix.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)

    for _ in range(STEPS):
        inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
