"""What the programs of this folder share: tiny data, and marks. A program notes when the first forward pass of each optimizer step began, when the step ended, its passes, and what was
evaluation, prints how often, and writes the times into the folder $MARKS, so that a test can hold a report against them. The probe sees none of this."""
import contextlib
import json
import os
import time

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

WORDS, LENGTH = 256, 32
begins, steps, evaluations = [], [], []
parts = []  # of steps: [begin, end, "forward", "backward" or "optimizer"]; forward lasts until backward() is called


def rank():
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def note_forward(module, _):
    if not module.training or not torch.is_grad_enabled() or parts and parts[-1][1] is None:
        return
    parts.append([time.time_ns(), None, "forward"])
    if len(begins) == len(steps):
        begins.append(parts[-1][0])


def note_step(*_):
    """After an optimizer that has another one within, twice."""
    if len(begins) == len(steps):
        steps.pop()
        parts.pop()
    steps.append(time.time_ns())
    parts.append([parts[-1][1], steps[-1], "optimizer"])


def note_backward_end():
    """Again after what a framework does with the gradients."""
    parts[-1][1] = time.time_ns()


def backward(*arguments, pytorchs=torch.autograd.backward, **options):
    parts[-1][1] = time.time_ns()
    parts.append([parts[-1][1], None, "backward"])
    pytorchs(*arguments, **options)
    note_backward_end()


register_module_forward_pre_hook(note_forward)
torch.autograd.backward = backward


def note_optimizers():
    """Each call of an optimizer of PyTorch is a step."""
    register_optimizer_step_post_hook(note_step)


@contextlib.contextmanager
def evaluation():
    begun = time.time_ns()
    yield
    torch.cuda.synchronize()
    evaluations.append([begun, time.time_ns()])


class Tokens(torch.utils.data.Dataset):
    """Sequences of random tokens."""

    def __init__(self, count):
        self.tokens = torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def llama(layers=2):
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, hidden_size=64, intermediate_size=128, num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=4,
                                        max_position_embeddings=128, pad_token_id=0, eos_token_id=None))


def finish():
    torch.cuda.synchronize()
    with open(os.path.join(os.environ["MARKS"], f"{rank()}.json"), "w", encoding="utf-8") as file:
        json.dump({"begins": begins, "steps": steps, "parts": parts, "evaluations": evaluations, "allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}, file)
    print(f"rank {rank()}: {len(steps)} steps, {len(evaluations)} evaluations", flush=True)
