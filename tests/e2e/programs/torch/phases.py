"""Training loops as users write them, without annotations. With --marks, NVTX ranges whose names say nothing surround each turn of the loop and its parts,
so that a test knows what was forward, backward and optimizer, and the probe still has to infer it. With --profile, torch.profiler records the loop and its parts
are in record_function, under their own names.

    torchrun --nproc-per-node 2 phases.py --loop plain|clipped|zeroed|accumulated|checkpointed|mixed|sgd|fused|alone|resident|squares|zero1|sharded --steps 12

Of these, alone, resident and squares train on one GPU without DDP; resident has its tokens there from the start, so that the GPU never waits for the host, and squares has a
loss without a name. zero1 is DeepSpeed's optimizer (bf16 parameters, gradients averaged in buckets, each rank updates its part of a flat float32 copy), and sharded is
torchtitan's loop (FSDP2, gradients' norm, a loss that is averaged over the ranks). With --single, autograd runs backward on the calling thread.
"""
import argparse
import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
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


class ZeroOne:
    """What DeepSpeed's stage 1 does: hooks copy each gradient into a bucket, full buckets are reduced and averaged while backward goes on, the last one after it. step() takes the norm of
    this rank's part, updates its float32 copy, and gathers the parameters from all ranks."""

    def __init__(self, model, bucket=1 << 17):
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        elements = sum(p.numel() for p in self.parameters)
        self.flat = torch.zeros(-(-elements // self.ranks) * self.ranks, dtype=torch.bfloat16, device="cuda")
        at = 0
        for p in self.parameters:
            self.flat[at:at + p.numel()].copy_(p.data.view(-1))
            p.data = self.flat[at:at + p.numel()].view(p.shape)
            at += p.numel()
        self.size = self.flat.numel() // self.ranks
        self.part = self.flat[self.rank * self.size:(self.rank + 1) * self.size]
        self.master = self.part.float().requires_grad_()
        self.optimizer = torch.optim.AdamW([self.master], lr=1e-3, fused=True)
        self.bucket = torch.zeros(bucket, dtype=torch.bfloat16, device="cuda")
        self.filled, self.waiting, self.averaged = 0, [], {}
        for p in self.parameters:
            p.register_post_accumulate_grad_hook(self.take)

    def take(self, parameter):
        if self.filled + parameter.numel() > self.bucket.numel():
            self.reduce()
        if parameter.numel() > self.bucket.numel():
            self.averaged[parameter] = parameter.grad.view(-1)
            dist.all_reduce(parameter.grad)
            return
        self.bucket[self.filled:self.filled + parameter.numel()].copy_(parameter.grad.view(-1))
        self.waiting.append((parameter, self.filled))
        self.filled += parameter.numel()

    def reduce(self):
        if not self.waiting:
            return
        used = self.bucket[:self.filled]
        used.div_(self.ranks)
        dist.all_reduce(used)
        for parameter, at in self.waiting:
            self.averaged[parameter] = parameter.grad.view(-1).copy_(used[at:at + parameter.numel()])
        self.filled, self.waiting = 0, []

    def backward(self, loss):
        loss.backward()
        self.reduce()

    def step(self):
        flat = torch.cat([self.averaged[p] for p in self.parameters])
        flat = torch.nn.functional.pad(flat, (0, self.flat.numel() - flat.numel()))
        own = flat[self.rank * self.size:(self.rank + 1) * self.size].float()
        norm = own.double().norm(2)
        dist.all_reduce(norm)
        own.mul_(1 / (norm + 1e-6).clamp(min=1.0))
        self.master.grad = own
        self.optimizer.step()
        self.part.copy_(self.master.detach())
        dist.all_gather_into_tensor(self.flat, self.part.clone())

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None
        self.master.grad = None
        self.averaged = {}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", default="plain")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--marks", action="store_true")
    parser.add_argument("--single", action="store_true")
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

    if options.single:
        torch.autograd.set_multithreading_enabled(False)
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(rank)
    torch.manual_seed(1)
    model = Model(options.loop == "checkpointed").cuda()
    alone = options.loop in ("alone", "resident", "squares")
    if not alone:
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    if options.loop == "sharded":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    elif options.loop == "zero1":
        model = model.bfloat16()
    elif not alone:
        model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = ZeroOne(model) if options.loop == "zero1" else optimizer_of(options.loop, model)
    turns = 4 if options.loop == "accumulated" else 1
    kept = torch.randint(WORDS, (8, 65)).cuda() if options.loop == "resident" else None

    def turn_of_loop():
        with part("turn"):
            if options.loop == "zeroed":
                optimizer.zero_grad(set_to_none=False)
            for turn in range(turns):
                tokens = torch.randint(WORDS, (8, 65)).cuda() if kept is None else kept
                last = turn == turns - 1
                with contextlib.nullcontext() if last or alone or not hasattr(model, "no_sync") else model.no_sync():
                    with part("a"), torch.autocast("cuda", torch.bfloat16, enabled=options.loop == "mixed"):
                        scores = model(tokens[:, :-1])
                        loss = scores.square().mean() if options.loop == "squares" else cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten()) / turns
                    with part("b"):
                        optimizer.backward(loss) if options.loop == "zero1" else loss.backward()
            with part("c"):
                if options.loop in ("clipped", "sharded"):
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            if options.loop != "zeroed":
                optimizer.zero_grad()
            if options.loop == "sharded":
                mean = loss.detach().clone()
                dist.all_reduce(mean)
                mean.item()

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
