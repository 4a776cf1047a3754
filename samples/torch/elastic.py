"""Training that goes on from its last checkpoint after a rank has died, which the last rank does once:

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --standalone --nproc-per-node 2 --max-restarts 1 samples/torch/elastic.py CHECKPOINT [--kill]

Without the variable both attempts share one store, and a rank that is started again may read the NCCL id of the attempt that died.
"""
import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from common import finish, joined, transformer

STEPS = 20
BATCH, LENGTH, WIDTH = 4, 64, 256

parser = argparse.ArgumentParser()
parser.add_argument("checkpoint")
parser.add_argument("--kill", action="store_true", help="die by SIGKILL instead of an exception")
options = parser.parse_args()

with joined() as (rank, ranks):
    model = DistributedDataParallel(transformer(2, WIDTH).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(options.checkpoint):
        first = torch.load(options.checkpoint)["step"]
        print(f"rank {rank}: goes on from step {first}", flush=True)

    for step in range(first, STEPS):
        model(torch.randn(BATCH, LENGTH, WIDTH).cuda()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == STEPS // 2:
            if rank == 0:
                torch.save({"step": step + 1, "model": model.module.state_dict()}, options.checkpoint)
            dist.barrier()
            torch.cuda.synchronize()
            if rank == ranks - 1:
                if options.kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("rank dies")
    finish(STEPS - first, rank)
