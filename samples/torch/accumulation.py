"""DistributedDataParallel over four microbatches a step, with the activations of each layer computed again in backward:

    torchrun --nproc-per-node 2 samples/torch/accumulation.py
"""
import contextlib

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from common import Block, finish, joined

STEPS = 10
MICROBATCHES = 4
BATCH, LENGTH, WIDTH, VOCABULARY = 4, 128, 256, 1000


class LanguageModel(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


with joined() as (rank, _):
    # All ranks have the same seed; the simulated node, whose NCCL moves no values, could not compare the parameters.
    model = DistributedDataParallel(LanguageModel().cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for _ in range(STEPS):
        for microbatch in range(MICROBATCHES):
            tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1)).cuda()
            last = microbatch == MICROBATCHES - 1
            with contextlib.nullcontext() if last else model.no_sync():
                logits = model(tokens[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
                (loss / MICROBATCHES).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    finish(STEPS, rank)
