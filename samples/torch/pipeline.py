"""A transformer with a few layers on each rank, which work on microbatches in turn (1F1B):

    torchrun --nproc-per-node 4 samples/torch/pipeline.py
"""
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from common import finish, joined, transformer

STEPS = 12
MICROBATCHES = 4
BATCH, LENGTH, WIDTH = 16, 128, 512

with joined() as (rank, ranks):
    device = torch.device("cuda", torch.cuda.current_device())
    layers = transformer(2, WIDTH).to(device)
    # With examples of what they exchange, the stages need not tell each other first.
    example = torch.zeros(BATCH // MICROBATCHES, LENGTH, WIDTH, device=device, requires_grad=True)
    stage = PipelineStage(layers, rank, ranks, device, input_args=(example,), output_args=(example,))
    schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)

    for _ in range(STEPS):
        batch = torch.randn(BATCH, LENGTH, WIDTH).to(device) if rank in (0, ranks - 1) else None
        if rank == 0:
            schedule.step(batch)
        elif rank == ranks - 1:
            schedule.step(target=batch, losses=[])
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
