"""A module under Lightning. python lit.py --devices N [--strategy ddp|fsdp] [--accumulate N]"""
import argparse
import warnings

import lightning
import marks
import torch
from torch import nn


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.words, self.layers, self.head = nn.Embedding(marks.WORDS, 64), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, marks.WORDS)

    def loss(self, batch):
        scores = self.head(self.layers(self.words(batch["input_ids"])))
        return nn.functional.cross_entropy(scores.flatten(0, 1), batch["labels"].flatten())

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Evaluations(lightning.Callback):
    def on_validation_start(self, *_):
        self.block = marks.evaluation()
        self.block.__enter__()

    def on_validation_end(self, *_):
        self.block.__exit__(None, None, None)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--steps", type=int, default=16)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    marks.note_optimizers()
    lightning.seed_everything(1, verbose=False)
    train = torch.utils.data.DataLoader(marks.Tokens(4 * options.devices * options.steps * options.accumulate), batch_size=4)
    held = torch.utils.data.DataLoader(marks.Tokens(12 * options.devices), batch_size=4)
    trainer = lightning.Trainer(accelerator="gpu", devices=options.devices, strategy=options.strategy, max_steps=options.steps, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, val_check_interval=5 * options.accumulate, check_val_every_n_epoch=None,
                                accumulate_grad_batches=options.accumulate, num_sanity_val_steps=2, callbacks=[Evaluations()])
    trainer.fit(Module(), train, held)
    marks.finish()


if __name__ == "__main__":
    main()
