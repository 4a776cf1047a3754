"""Transformers whose work the ranks share, with the small collectives that trainers make beside it:

    torchrun --nproc-per-node 2 shares.py KIND     (4 ranks for hsdp and grid)

ddp       DDP; the lengths of all ranks' batches are gathered before forward, and what they predict after each fifth step
fsdp      FSDP2; the gradients are clipped by their norm, and the loss is averaged over the ranks before backward
hsdp      FSDP2 within pairs, with replicas between them; clipped as well
grid      tensor parallelism within pairs, FSDP2 between them
zero      DDP with ZeroRedundancyOptimizer
flat      bf16 gradients are reduced in two flat parts; each rank updates fp32 copies of its share, and all gather the weights
"""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from common import finish, joined, transformer

STEPS, BATCH, LENGTH, WIDTH = 20, 8, 64, 256
KIND = sys.argv[1]


def shard(model, mesh):
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class FlatUpdate:
    """Optimizer state that is sharded by hand, over two parts of the model."""

    def __init__(self, model, rank, ranks):
        self.parts = []
        weights = list(model.parameters())
        for part in (weights[:len(weights) // 2], weights[len(weights) // 2:]):
            sizes = [weight.numel() for weight in part]
            flat = torch.zeros(sum(sizes) + -sum(sizes) % ranks, dtype=torch.bfloat16, device="cuda")
            master = nn.Parameter(flat.chunk(ranks)[rank].float())
            self.parts.append((list(zip(part, flat[:sum(sizes)].split(sizes))), flat, flat.chunk(ranks)[rank], master))
        self.optimizer = torch.optim.AdamW([master for *_, master in self.parts])

    def step(self):
        for places, flat, share, master in self.parts:
            for weight, place in places:
                place.copy_(weight.grad.flatten())
            dist.all_reduce(flat)
            master.grad = share.float()
        self.optimizer.step()
        for places, flat, _, master in self.parts:
            dist.all_gather_into_tensor(flat, master.data.bfloat16())
            for weight, place in places:
                weight.data.copy_(place.view_as(weight))
                weight.grad = None


with joined() as (rank, ranks):
    model = transformer(4, WIDTH).cuda()
    if KIND in ("ddp", "zero"):
        model = DistributedDataParallel(model)
    elif KIND == "fsdp":
        model = shard(model, init_device_mesh("cuda", (ranks,)))
    elif KIND == "hsdp":
        model = shard(model, init_device_mesh("cuda", (2, ranks // 2), mesh_dim_names=("replicate", "shard")))
    elif KIND == "grid":
        mesh = init_device_mesh("cuda", (ranks // 2, 2), mesh_dim_names=("data", "tensor"))
        for block in model:
            block.heads //= 2
            parallelize_module(block, mesh["tensor"], {
                "query": ColwiseParallel(), "key": ColwiseParallel(), "value": ColwiseParallel(), "out": RowwiseParallel(),
                "up": ColwiseParallel(), "down": RowwiseParallel()})
        model = shard(model, mesh["data"])
    elif KIND == "flat":
        model = model.bfloat16()
    if KIND == "zero":
        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3)
    elif KIND == "flat":
        optimizer = FlatUpdate(model, rank, ranks)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=KIND != "grid")
    lengths = torch.zeros(ranks, dtype=torch.int64, device="cuda")
    predicted = torch.zeros(ranks * BATCH * LENGTH, WIDTH, device="cuda")

    for step in range(STEPS):
        batch = torch.randn(BATCH, LENGTH, WIDTH).cuda()
        if KIND == "ddp":
            dist.all_gather_into_tensor(lengths, torch.ones(1, dtype=torch.int64, device="cuda"))
        output = model(batch.bfloat16() if KIND == "flat" else batch)
        loss = output.float().square().mean()
        if KIND == "fsdp":
            dist.all_reduce(loss.detach())
        loss.backward()
        if KIND in ("fsdp", "hsdp"):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if KIND != "flat":
            optimizer.zero_grad()
        if KIND == "ddp" and step % 5 == 4:
            dist.all_gather_into_tensor(predicted, output.detach().flatten(0, 1))
    finish(STEPS, rank)
