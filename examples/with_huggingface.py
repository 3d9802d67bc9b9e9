"""Hugging Face Trainer: attach, and add one callback."""

from __future__ import annotations

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

import pcshrink as pcs
from pcshrink.data.digits import load_digits
from pcshrink.integrations.transformers import ShrinkCallback


def main(steps: int = 60) -> nn.Module:
    torch.manual_seed(0)
    images, labels, *_ = load_digits()
    data = [{"pixel_values": x.float() / 128 - 1, "labels": y} for x, y in zip(images, labels, strict=True)]
    model = ViTForImageClassification(ViTConfig(
        image_size=16, patch_size=4, num_channels=1, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, num_labels=10,
    ))  # fmt: skip
    example = {"pixel_values": data[0]["pixel_values"][None]}
    shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(ratio=0.5, total_steps=steps, lr=0.05))
    optimizer = torch.optim.SGD(shrinker.param_groups(weight_decay=1e-4), lr=0.05, momentum=0.9)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=32, report_to=[], use_cpu=True
        )
        settings = settings.set_save("no").set_logging("no")
        callbacks = [ShrinkCallback(shrinker)]
        Trainer(model, settings, train_dataset=data, optimizers=(optimizer, None), callbacks=callbacks).train()
        small = pcs.compact(model.eval(), shrinker.plan(cut="selected"), example)
        Trainer(small, settings, train_dataset=data).train()  # the settling phase, at a falling learning rate
    print(f"{model.num_parameters():,} -> {small.num_parameters():,} parameters")
    return small


if __name__ == "__main__":
    main()
