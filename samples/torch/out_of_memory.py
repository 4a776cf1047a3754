"""Keeps the output of every step, as `losses.append(loss)` does with its whole graph, until the GPU's memory is full:

    python samples/torch/out_of_memory.py
"""
import torch
from torch import nn

BATCH, WIDTH = 4096, 1024

model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
outputs = []
while True:
    inputs = torch.randn(BATCH, WIDTH, device="cuda")
    outputs.append(model(inputs))
    outputs[-1].square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
