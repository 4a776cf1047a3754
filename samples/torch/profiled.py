"""A training loop with torch.profiler inside; prints how often each kernel and copy ran on the GPU while it recorded."""
from collections import Counter

import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())


def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(32, 256).cuda()).square().mean().backward()
        optimizer.step()
    torch.cuda.synchronize()


train(2)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as profiler:
    train(4)
train(2)

on_gpu = Counter(event.name for event in profiler.events() if event.device_type == DeviceType.CUDA and not event.is_user_annotation)
for name, count in sorted(on_gpu.items()):
    print(f"{count:4} {name}")
