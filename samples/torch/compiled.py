"""A training loop whose model torch.compile turns into fused kernels:

    python samples/torch/compiled.py
"""
import torch

from common import finish, transformer

STEPS = 60
BATCH, LENGTH, WIDTH = 8, 128, 256

model = torch.compile(transformer(4, WIDTH).cuda())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(STEPS):
    inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
finish(STEPS)
