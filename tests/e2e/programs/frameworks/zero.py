"""A loop with DeepSpeed. torchrun zero.py --stage 1|2|3 [--accumulate N] [--evals N]"""
import argparse

import deepspeed
import marks
import torch
from deepspeed.runtime.zero import stage3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--evals", type=int, default=0)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    torch.manual_seed(1)
    # Stage 3 keeps small weights whole, by default all of these. It writes its arguments out, values and all. Which of them are finite is counted by kernels that compute nothing on the node.
    torch.Tensor.__repr__ = object.__repr__
    # The node's gradients are what happens to be in memory: DeepSpeed's checks of them would skip steps, on some ranks.
    stage3.is_invalid_grad_norm = lambda norm: False
    deepspeed.init_distributed("nccl")
    model = marks.llama()
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        config={"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": options.accumulate, "bf16": {"enabled": True, "check_grad_overflow": False}, "gradient_clipping": 1.0,
                "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": options.stage, "stage3_param_persistence_threshold": 0}, "steps_per_print": 1000})
    batches = torch.utils.data.DataLoader(marks.Tokens(4 * options.steps * options.accumulate), batch_size=4)
    if options.evals:
        engine.eval()
        with marks.evaluation(), torch.no_grad():
            for batch, _ in zip(batches, range(options.evals)):
                engine(**{name: value.cuda() for name, value in batch.items()})
        engine.train()
    for batch in batches:
        engine.backward(engine(**{name: value.cuda() for name, value in batch.items()}).loss)
        marks.note_backward_end()
        is_last = engine.is_gradient_accumulation_boundary()
        engine.step()
        if is_last:
            marks.note_step()
    marks.finish()
    engine.destroy()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
