"""A training loop whose operators are annotated by PyTorch itself (emit_nvtx):

    python samples/torch/operators.py
"""
import torch

from common import finish, transformer

STEPS = 40
BATCH, LENGTH, WIDTH = 8, 128, 256

model = transformer(2, WIDTH).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with torch.autograd.profiler.emit_nvtx():
    for _ in range(STEPS):
        inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
finish(STEPS)
