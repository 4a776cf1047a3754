"""Shared by the samples in this folder: a small transformer, joining the other ranks, and the last line that each rank prints."""
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        query, key, value = (project(x).unflatten(-1, (-1, x.shape[-1] // self.heads)).transpose(1, 2) for project in (self.query, self.key, self.value))
        scores = (query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5).softmax(-1)
        return self.out((scores @ value).transpose(1, 2).flatten(2))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.down(nn.functional.gelu(self.up(self.mlp_norm(x))))


def transformer(layers=4, width=256):
    return nn.Sequential(*(Block(width) for _ in range(layers)))


@contextlib.contextmanager
def joined():
    """The ranks that torchrun started, on a GPU each."""
    torch.manual_seed(1)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    yield dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()


def finish(steps, rank=0):
    torch.cuda.synchronize()
    print(f"rank {rank}: {steps} steps", flush=True)
