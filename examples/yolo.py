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

    def build_optimizer(self, model: torch.nn.Module, *args: Any, iterations: float, **kwargs: Any) -> Any:
        # Only here the number of optimizer steps is known; the average of the weights is made later, gates and all.
        self.example = torch.zeros(1, 3, self.args.imgsz, self.args.imgsz, device=self.device)
        config = pcs.ShrinkConfig(ratio=0.4, total_steps=int(iterations), lr=self.args.lr0)
        self.shrinker = pcs.attach_(model, self.example, config)
        # And the hook after the average is made, which must not copy it.
        self.add_callback("on_train_start", lambda trainer: trainer.model.register_forward_hook(trainer.add_penalty))
        return super().build_optimizer(model, *args, iterations=iterations, **kwargs)

    def add_penalty(self, model: torch.nn.Module, _: Any, output: Any) -> Any:
        if not model.training or not isinstance(output, tuple):
            return output  # an evaluation
        loss, items = output
        return loss + self.shrinker.penalty(), items

    def optimizer_step(self) -> None:
        super().optimizer_step()
        self.shrinker.step()


def main(
    data: Path, out: Path, *, model: str = "yolov8n.yaml", epochs: int = 60, settle: int = 30, **options: Any
) -> YOLO:
    # The optimizer by name: left to itself Ultralytics takes another learning rate than it is told.
    common = {"optimizer": "SGD", "data": str(data), "model": model, **options}
    trainer = ShrinkingTrainer(overrides={**common, "epochs": epochs})
    trainer.train()
    plan = trainer.shrinker.plan(cut="selected")
    small = pcs.compact(trainer.ema.ema.float().eval(), plan, trainer.example, gates="fold")
    small.criterion = None  # of the training only
    settling = DetectionTrainer(overrides={**common, "epochs": settle})
    settling.model = small.requires_grad_(True)
    settling.train()
    torch.save({"model": settling.ema.ema.requires_grad_(False), "train_args": vars(trainer.args)}, out)
    return YOLO(str(out))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a data set file as Ultralytics wants it")
    parser.add_argument("--out", type=Path, default=Path("small.pt"))
    parser.add_argument("--model", default="yolov8n.yaml", help="or a file of weights, such as yolov8n.pt")
    parser.add_argument("--epochs", type=int, default=60, help="in which it shrinks")
    parser.add_argument("--settle", type=int, default=30, help="epochs in which what is left settles")
    parser.add_argument("--imgsz", type=int, default=640)
    main(**vars(parser.parse_args()))
