"""A loop with Hugging Face's accelerate. torchrun accelerated.py [--accumulate N] [--lora] [--eval-every N]"""
import argparse

import marks
import torch
from accelerate import Accelerator
from torch import nn


class LowRank(nn.Module):
    """A frozen linear layer, and the product of two small ones that are trained, as PEFT has them."""

    def __init__(self, base, width=4):
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(base.in_features, width, bias=False), nn.Linear(width, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(x))


def adapt(model):
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LowRank(getattr(layer.self_attn, name)))
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--eval-every", type=int)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    marks.note_optimizers()
    torch.manual_seed(1)
    accelerator = Accelerator(gradient_accumulation_steps=options.accumulate)
    model = adapt(marks.llama()) if options.lora else marks.llama()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    loader = torch.utils.data.DataLoader(marks.Tokens(4 * accelerator.num_processes * options.steps * options.accumulate), batch_size=4)
    held = torch.utils.data.DataLoader(marks.Tokens(12 * accelerator.num_processes), batch_size=4)
    model, optimizer, loader, held = accelerator.prepare(model, optimizer, loader, held)

    def evaluate():
        model.eval()
        with marks.evaluation(), torch.no_grad():
            for batch in held:
                accelerator.gather_for_metrics(model(**batch).loss.reshape(1))
        model.train()

    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        if options.eval_every and accelerator.sync_gradients and len(marks.steps) % options.eval_every == 0:
            evaluate()
    marks.finish()
    accelerator.end_training()


if __name__ == "__main__":
    main()
