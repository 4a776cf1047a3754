"""A transformer whose parameters are sharded over all ranks (FSDP2):

    torchrun --nproc-per-node 4 samples/torch/fsdp.py
"""
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from common import finish, joined, transformer

STEPS = 12
BATCH, LENGTH, WIDTH = 8, 128, 512

with joined() as (rank, _):
    model = transformer(4, WIDTH).cuda()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for _ in range(STEPS):
        inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda()
        loss = model(inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
