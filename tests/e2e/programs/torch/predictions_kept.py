"""Trains, then evaluates and keeps each prediction on the GPU until there is no room: prints what training held at most, in bytes."""
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    model(torch.zeros(256, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
print(torch.cuda.max_memory_allocated(), flush=True)
kept = []
with torch.no_grad():
    while True:
        kept.append(torch.zeros(16 << 20, device="cuda") + model(torch.zeros(256, 512, device="cuda")).mean())
