"""Training loops as users write them, without annotations. With --marks, NVTX ranges whose names say nothing surround each turn of the loop and its parts,
so that a test knows what was forward, backward and optimizer, and the probe still has to infer it. With --profile, torch.profiler records the loop and its parts
are in record_function, under their own names.

    torchrun --nproc-per-node 2 phases.py --loop plain|clipped|zeroed|accumulated|checkpointed|mixed|sgd|fused|alone|resident --steps 12

Of these, alone and resident train on one GPU without DDP; resident has its tokens there from the start, so that the GPU never waits for the host.
"""
import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH = 1000, 128
NAMES = {"a": "forward", "b": "backward", "c": "optimizer"}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.recompute = recompute
        self.words, self.blocks, self.head = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(4)), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def optimizer_of(loop, model):
    if loop == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True if loop == "fused" else None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", default="plain")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--profile", metavar="TRACE", help="where torch.profiler's trace goes")
    options = parser.parse_args()

    @contextlib.contextmanager
    def part(name):
        if options.marks:
            torch.cuda.nvtx.range_push(name)
        with record_function(NAMES[name]) if options.profile and name in NAMES else contextlib.nullcontext():
            yield
        if options.marks:
            torch.cuda.nvtx.range_pop()

    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    model = Model(options.loop == "checkpointed").cuda()
    alone = options.loop in ("alone", "resident")
    if not alone:
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        # The simulated node's collectives move no values, so ranks cannot compare their parameters.
        model = DistributedDataParallel(model, device_ids=[rank], init_sync=False)
    optimizer = optimizer_of(options.loop, model)
    turns = 4 if options.loop == "accumulated" else 1
    kept = torch.randint(WORDS, (8, 65)).cuda() if options.loop == "resident" else None

    def turn_of_loop():
        with part("turn"):
            if options.loop == "zeroed":
                optimizer.zero_grad(set_to_none=False)
            for turn in range(turns):
                tokens = torch.randint(WORDS, (8, 65)).cuda() if kept is None else kept
                last = turn == turns - 1
                with contextlib.nullcontext() if last or alone else model.no_sync():
                    with part("a"), torch.autocast("cuda", torch.bfloat16, enabled=options.loop == "mixed"):
                        scores = model(tokens[:, :-1])
                        loss = cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten()) / turns
                    with part("b"):
                        loss.backward()
            with part("c"):
                if options.loop == "clipped":
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if options.loop != "zeroed":
                optimizer.zero_grad()

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) if options.profile else contextlib.nullcontext() as profiler:
        for _ in range(options.steps):
            turn_of_loop()
        torch.cuda.synchronize()
    if options.profile:
        profiler.export_chrome_trace(options.profile)
    print(f"rank {rank}: {options.steps} steps")
    if not alone:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
