"""PyTorch Lightning: attach, and add one callback; the task itself knows nothing of shrinking."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pcshrink as pcs
from pcshrink.data.digits import load_digits
from pcshrink.integrations.lightning import ShrinkCallback
from pcshrink.models import build


class Task(L.LightningModule):
    def __init__(self, model: nn.Module, *, settles: bool = False) -> None:
        super().__init__()
        self.model, self.settles = model, settles

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.model(images), labels)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        if not self.settles:
            return optimizer  # constant while channels are pushed
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs or 1)]


def trainer(epochs: int, *callbacks: L.Callback) -> L.Trainer:
    return L.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
    )  # fmt: skip


def main(epochs: int = 8) -> tuple[nn.Module, float]:
    L.seed_everything(0, verbose=False)
    images, labels, test_images, test_labels = load_digits()
    images, test_images = (t.float() / 128 - 1 for t in (images, test_images))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, drop_last=True)
    task = Task(build("digitsnet"))
    shrinker = pcs.attach_(task.model, images[:2], pcs.ShrinkConfig(total_steps=epochs * len(loader)))
    pcs.set_budget(shrinker, images[:2], madds=0.5)
    trainer(epochs, ShrinkCallback(shrinker)).fit(task, loader)
    small = pcs.compact(task.model, shrinker.plan(), images[:2])
    trainer(epochs).fit(Task(small.train(), settles=True), loader)  # never leave this phase out
    small.eval()
    with torch.no_grad():
        error = float((small(test_images).argmax(1) != test_labels).float().mean())
    print(f"{pcs.profile(small, images[:1]).madds / 1e6:.2f} M madds, test error {100 * error:.1f} %")
    return small, error


if __name__ == "__main__":
    main()
