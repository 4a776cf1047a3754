"""A training loop in one process, which somebody attaches to: `attached_loop.py STEPS`. Ends with status 3. Nothing that it prints depends on what the GPU computes."""
import sys
import time

import torch

steps = int(sys.argv[1])
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def train():
    x = torch.ones(16, 64, device="cuda")
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)


train()
print("ready", file=sys.stderr, flush=True)
for _ in range(steps):
    train()
torch.cuda.synchronize()
print(f"{steps} steps, {sum(p.numel() for p in model.parameters())} parameters")
sys.exit(3)
