"""Hugging Face's Trainer. torchrun trainer.py [--accumulate N] [--eval-every N] [--fsdp]"""
import argparse
import tempfile

import marks
import torch
from transformers import Trainer, TrainingArguments


class Evaluated(Trainer):
    def evaluate(self, *arguments, **options):
        with marks.evaluation():
            return super().evaluate(*arguments, **options)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--eval-every", type=int)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    marks.note_optimizers()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, per_device_eval_batch_size=4, max_steps=options.steps, logging_steps=5,
                                      gradient_accumulation_steps=options.accumulate, report_to=[], save_strategy="no", disable_tqdm=True,
                                      eval_strategy="steps" if options.eval_every else "no", eval_steps=options.eval_every, bf16=True)
        Evaluated(model=marks.llama(), args=arguments, train_dataset=marks.Tokens(64 * options.accumulate), eval_dataset=marks.Tokens(48)).train()
    marks.finish()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
