"""Training on two ranks after a module was unloaded, as torch.compile unloads the variants that lost. A CUPTI before 13.4 Update 1 gives NCCL's all-reduce, which is made in the place
of an unloaded kernel, that kernel's name. Rank 0's host comes late to every all-reduce.

    torchrun --nproc-per-node 2 stale_names.py STEPS
"""
import ctypes
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

GONE = "triton_per_fused_native_layer_norm_0"
PTX = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {GONE}()\n{{\n  ret;\n}}\n"


def use_and_unload():
    driver, module, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
    torch.cuda.current_stream().synchronize()
    for call, *arguments in (("cuModuleLoadData", ctypes.byref(module), PTX.encode()), ("cuModuleGetFunction", ctypes.byref(function), module, GONE.encode()),
                             ("cuLaunchKernel", function, 1, 1, 1, 32, 1, 1, 0, None, None, None), ("cuCtxSynchronize",), ("cuModuleUnload", module),
                             ("cuModuleLoadData", ctypes.byref(module), PTX.encode())):
        assert getattr(driver, call)(*arguments) == 0, call


def main():
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    model = nn.Sequential(nn.Embedding(1000, 128), nn.LayerNorm(128), nn.Linear(128, 1000)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens, flat = torch.randint(1000, (16, 64)).cuda(), torch.zeros(1 << 18, device="cuda")

    def forward_and_backward():
        cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()

    forward_and_backward()
    use_and_unload()
    dist.all_reduce(flat)
    for _ in range(int(sys.argv[1])):
        forward_and_backward()
        torch.cuda.synchronize()
        if rank == 0:
            time.sleep(0.02)
        dist.all_reduce(flat)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
