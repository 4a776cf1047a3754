"""Hugging Face's generate(), a prompt after the other: each token after a prompt's first is a step. python generate.py"""
import argparse
import functools
import time

import marks
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(1)
    model = marks.llama().cuda().to(torch.bfloat16).eval()

    def note(begun, _, __, inputs, *___):
        if inputs["input_ids"].shape[1] == 1:
            begun.append(time.time_ns())
    model.register_forward_pre_hook(functools.partial(note, marks.begins), with_kwargs=True)
    model.register_forward_hook(functools.partial(note, marks.steps), with_kwargs=True)
    for _ in range(options.prompts):
        prompt = torch.randint(1, marks.WORDS, (2, 16)).cuda()
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=options.tokens, do_sample=False)
        print(tuple(out.shape))
    marks.finish()


if __name__ == "__main__":
    main()
