"""Values that Python decides by, as they come from the node: each is compared with what the CPU says, and what is different is printed. With torchrun, object collectives and
DistributedDataParallel's check as well."""
import operator
import os

import torch
import torch.distributed as dist
from torch import nn


def same(name, found, expected):
    if found != expected:
        print(f"{name}: {found}, not {expected}", flush=True)


def kernels():
    a, b = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([2, 7, 1, 1, 8])
    x, y = a.cuda(), b.cuda()
    for dtype in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8, torch.float32, torch.float64, torch.bool):
        same(f"fill {dtype}", torch.full((5,), 1, dtype=dtype, device="cuda").tolist(), torch.full((5,), 1, dtype=dtype).tolist())
    for name in ("gt", "lt", "ge", "le", "eq", "ne", "and_", "or_", "xor", "add", "sub", "mul"):
        function = getattr(operator, name)
        same(name, function(x, y).tolist(), function(a, b).tolist())
        same(f"{name} of a number", function(x, 3).tolist(), function(a, 3).tolist())
        same(f"a number {name}", function(3, x).tolist(), function(3, a).tolist())
    for name in ("sum", "max", "min"):
        same(name, getattr(x, name)().item(), getattr(a, name)().item())
    same("count", (x > 2).sum().item(), 3)
    same("all", [(x > 0).all().item(), (x > 1).all().item(), x.all().item()], [True, False, True])
    same("any", [(x > 4).any().item(), (x > 5).any().item()], [True, False])
    same("not", [(~(x > 2)).tolist(), torch.logical_not(x > 2).tolist(), (~x).tolist()], [(~(a > 2)).tolist(), (~(a > 2)).tolist(), (~a).tolist()])
    same("both", [((x > 1) & (y > 1)).tolist(), torch.logical_and(x > 1, y > 1).tolist(), torch.logical_or(x > 1, y > 1).tolist(), (x & ~(y > 1)).tolist()],
         [((a > 1) & (b > 1)).tolist(), ((a > 1) & (b > 1)).tolist(), ((a > 1) | (b > 1)).tolist(), (a & ~(b > 1)).tolist()])
    same("types", [x.float().tolist(), (x > 2).long().tolist(), torch.tensor([1.5, -2.5]).cuda().int().tolist()], [a.float().tolist(), (a > 2).long().tolist(), [1, -2]])
    same("concatenation", torch.cat([x, y, x]).tolist(), torch.cat([a, b, a]).tolist())
    matrix = torch.tensor([[1, 2, 3], [4, 5, 6]])
    same("rows", matrix.cuda().sum(1).tolist(), [6, 15])
    same("columns", matrix.cuda().sum(0).tolist(), [5, 7, 9])
    same("the largest of a list", int(max([x[i:i + 1] for i in range(5)]).item()), 5)


def attention():
    query = torch.zeros(1, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    same("attention", tuple(query.grad.shape), (1, 4, 64, 32))


def ranks():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank, count = dist.get_rank(), dist.get_world_size()
    objects = [{"a": 1}, "b" * 1000] if rank == 0 else [None, None]
    dist.broadcast_object_list(objects)
    same("broadcast_object_list", objects, [{"a": 1}, "b" * 1000])
    gathered = [None] * count
    dist.all_gather_object(gathered, "c" * (10 * rank + 1))
    same("all_gather_object", gathered, ["c" * (10 * other + 1) for other in range(count)])
    part = [None]
    dist.scatter_object_list(part, list(range(count)) if rank == 0 else None)
    same("scatter_object_list", part, [rank])
    total = torch.tensor([rank + 1.0]).cuda()
    dist.all_reduce(total)
    same("all_reduce", total.item(), sum(range(1, count + 1)))
    nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda())
    try:
        nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(4, 4) for _ in range(rank + 1))).cuda())
        print("ranks with other parameters are accepted")
    except RuntimeError as error:
        same("other parameters", "params" in str(error), True)
    dist.destroy_process_group()


if __name__ == "__main__":
    kernels()
    attention()
    if "RANK" in os.environ:
        ranks()
    os.write(1, b"compared\n")  # in one piece: torchrun starts ranks unbuffered
