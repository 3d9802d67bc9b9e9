"""Ultralytics YOLO: shrink inside its own trainer; the file that comes out loads, predicts and exports like any other.

Ultralytics is licensed under the AGPL, so pcshrink itself never imports it: pip install ultralytics
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from ultralytics import YOLO
from ultralytics.models.yolo.detect import DetectionTrainer

import pcshrink as pcs


class ShrinkingTrainer(DetectionTrainer):
    shrinker: pcs.Shrinker
    total_steps: int = 60

    def get_model(self, *args: Any, **kwargs: Any) -> torch.nn.Module:
        model = super().get_model(*args, **kwargs)
        self.example = torch.zeros(1, 3, self.args.imgsz, self.args.imgsz)
        config = pcs.ShrinkConfig(ratio=0.4, total_steps=self.total_steps, lr=self.args.lr0)
        self.shrinker = pcs.attach_(model, self.example, config)
        # Only now: the average of the weights is a copy of the model, and must not copy the hook.
        self.add_callback("on_train_start", lambda trainer: trainer.model.register_forward_hook(trainer.add_penalty))
        return self.shrinker.model

    def add_penalty(self, model: torch.nn.Module, _: Any, output: Any) -> Any:
        if not model.training or not isinstance(output, tuple):
            return output  # an evaluation
        loss, items = output
        return loss + self.shrinker.penalty(), items

    def optimizer_step(self) -> None:
        super().optimizer_step()
        self.shrinker.step()


def main(data: Path, out: Path, *, model: str = "yolov8n.yaml", epochs: int = 60, **options: Any) -> YOLO:
    trainer = ShrinkingTrainer(overrides={"model": model, "data": str(data), "epochs": epochs, **options})
    trainer.train()
    plan = trainer.shrinker.plan(cut="selected")
    small = pcs.compact(trainer.ema.ema.float().eval(), plan, trainer.example, gates="fold")
    for parameter in small.parameters():
        parameter.requires_grad_(False)
    small.criterion = None  # of the training only
    torch.save({"model": small, "train_args": vars(trainer.args)}, out)
    return YOLO(str(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a data set file as Ultralytics wants it")
    parser.add_argument("--out", type=Path, default=Path("small.pt"))
    given = parser.parse_args()
    main(given.data, given.out)
