#!/usr/bin/env python3
"""Data-parallel training with PyTorch, for real machines:

    gpuprobe run -- torchrun --nproc-per-node 8 samples/torch_ddp.py

A stack of transformer encoder layers on random tokens. It says what it computed, so that a run under the probe can be compared with one without.
"""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class LanguageModel(torch.nn.Module):
    def __init__(self, vocabulary, width, layers, heads):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, tokens):
        return self.head(self.encoder(self.embedding(tokens)))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8, help="sequences a rank and step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--bucket-mib", type=int, default=25)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--nvtx", type=int, choices=(0, 1), default=1)
    return parser.parse_args()


def train(options):
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.manual_seed(rank)

    model = LanguageModel(options.vocabulary, options.width, options.layers, options.heads).cuda()
    model = DistributedDataParallel(model, device_ids=[local_rank], bucket_cap_mb=options.bucket_mib)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    # The next token is a fixed function of this one, so there is something to learn.
    host_tokens = [torch.randint(options.vocabulary, (options.batch, options.length)).pin_memory() for _ in range(8)]

    def marked(name):
        return torch.cuda.nvtx.range(name) if options.nvtx else torch.autograd.profiler.record_function(name)

    first_loss = last_loss = None
    for step in range(1, options.steps + 1):
        with marked("step"):
            with marked("input"):
                tokens = host_tokens[step % len(host_tokens)].cuda(non_blocking=True)
                wanted = (tokens * 7 + 3) % options.vocabulary
            with marked("forward"), torch.autocast("cuda", dtype=torch.bfloat16):
                logits = model(tokens)
                loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
            with marked("backward"):
                loss.backward()
            with marked("optimizer"):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        if step == 1 or step % options.log_every == 0 or step == options.steps:
            last_loss = loss.item()
            first_loss = last_loss if first_loss is None else first_loss
            if rank == 0:
                print(f"step {step:4d}  loss {last_loss:.4f}  peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB", flush=True)

    checksum = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    everyone = [torch.zeros_like(checksum) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, checksum)
    if not all(torch.equal(everyone[0], other) for other in everyone):
        raise SystemExit(f"rank {rank}: the ranks' weights differ: {[value.item() for value in everyone]}")
    if rank == 0:
        print(f"loss {first_loss:.4f} -> {last_loss:.4f}, weights checksum {everyone[0].item():.9g} on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    train(parse_options())
