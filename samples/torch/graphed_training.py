"""A training loop whose model runs as CUDA graphs, forward and backward (make_graphed_callables):

    python samples/torch/graphed_training.py
"""
import torch

from common import finish, transformer

STEPS = 20
BATCH, LENGTH, WIDTH = 8, 128, 256

example = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", requires_grad=True)
model = torch.cuda.make_graphed_callables(transformer(4, WIDTH).cuda(), (example,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(STEPS):
    inputs = torch.randn(BATCH, LENGTH, WIDTH).cuda().requires_grad_()
    loss = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
finish(STEPS)
