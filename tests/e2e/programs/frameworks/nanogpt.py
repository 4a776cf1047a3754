"""A loop as nanoGPT has it: an evaluation of some batches before the first step and every N steps, on the first rank or on all; the next batch is fetched between forward and
backward. With --shared-state it is as llm.c's: ranks share the optimizer's state, the model keeps causal masks, which DDP broadcasts before each forward pass, and a batch is fetched before it.
python or torchrun nanogpt.py [--evals N] [--eval-every N] [--all-ranks] [--accumulate N] [--shared-state]"""
import argparse
import os

import marks
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.before_attention(x)).chunk(3, -1))
        x = x + self.out(scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Model(nn.Module):
    def __init__(self, masks, width=64, layers=2):
        super().__init__()
        self.words, self.places = nn.Embedding(marks.WORDS, width), nn.Embedding(marks.LENGTH, width)
        self.blocks, self.norm, self.head = nn.ModuleList(Block(width) for _ in range(layers)), nn.LayerNorm(width), nn.Linear(width, marks.WORDS, bias=False)
        self.head.weight = self.words.weight
        if masks:
            for block in self.blocks:
                block.register_buffer("mask", torch.ones(256, 256).tril())

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def batch():
    tokens = torch.randint(marks.WORDS, (4, marks.LENGTH + 1))
    return tuple(part.contiguous().pin_memory().cuda(non_blocking=True) for part in (tokens[:, :-1], tokens[:, 1:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evals", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=0)
    parser.add_argument("--all-ranks", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--shared-state", action="store_true")
    parser.add_argument("--steps", type=int, default=24)
    options = parser.parse_args()
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.manual_seed(1 + rank)
    marks.note_optimizers()
    raw = model = Model(options.shared_state).cuda()
    is_distributed = "RANK" in os.environ
    if is_distributed:
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        model = DistributedDataParallel(raw, device_ids=[rank])
    if options.shared_state:
        optimizer = ZeroRedundancyOptimizer(raw.parameters(), torch.optim.AdamW, lr=1e-3, fused=True)
    else:
        optimizer = torch.optim.AdamW(raw.parameters(), lr=1e-3, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=False)

    def evaluate():
        raw.eval()
        with marks.evaluation(), torch.no_grad():
            for _ in range(options.evals):
                raw(*batch()).item()
        raw.train()

    tokens = batch()
    for step in range(options.steps):
        if options.evals and (rank == 0 or options.all_ranks) and (step == 0 or options.eval_every and step % options.eval_every == 0):
            evaluate()
        for micro in range(options.accumulate):
            if is_distributed:
                model.require_backward_grad_sync = micro == options.accumulate - 1
            if options.shared_state:
                tokens = batch()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(*tokens) / options.accumulate
            if not options.shared_state:
                tokens = batch()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0 and step % 10 == 0:
            loss.item()
    marks.finish()
    if is_distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
