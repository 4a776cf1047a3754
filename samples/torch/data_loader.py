"""Training from a DataLoader whose worker processes prepare batches more slowly than the GPU uses them:

    python samples/torch/data_loader.py
"""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from common import finish

STEPS = 40
WORKERS = 2
BATCH, WIDTH = 16, 256


class Images(Dataset):
    """Takes a few milliseconds for each item, as decoding a picture does."""

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((WIDTH,), float(index)), index % 10


if __name__ == "__main__":
    model = nn.Sequential(nn.Linear(WIDTH, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    seen = 0
    for images, labels in DataLoader(Images(), batch_size=BATCH, num_workers=WORKERS, pin_memory=True):
        loss = nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(images)
    print(f"{seen} images")
    finish(STEPS)
