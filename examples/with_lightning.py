"""PyTorch Lightning: the penalty belongs into ``training_step``; a callback cannot add to the loss."""

from __future__ import annotations

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import pcshrink as pcs
from pcshrink.data.digits import load_digits
from pcshrink.models import build


class Shrinking(L.LightningModule):
    def __init__(self, model: nn.Module, example: Tensor, steps: int) -> None:
        super().__init__()
        self.model = model
        # A plain object, so Lightning does not take it for a module; the gates are part of the model.
        self.shrinker = pcs.attach_(model, example, pcs.ShrinkConfig(total_steps=steps))
        pcs.set_budget(self.shrinker, example, madds=0.5)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.model(images), labels) + self.shrinker.penalty()

    def on_train_batch_end(self, *_: object) -> None:
        self.shrinker.step()  # after optimizer.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.shrinker.param_groups(weight_decay=5e-4), lr=0.1, momentum=0.9)

    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        checkpoint["shrinker"] = self.shrinker.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, object]) -> None:
        self.shrinker.load_state_dict(checkpoint["shrinker"])


def main(epochs: int = 6) -> tuple[nn.Module, float]:
    L.seed_everything(0, verbose=False)
    images, labels, test_images, test_labels = load_digits()
    images, test_images = (t.float() / 128 - 1 for t in (images, test_images))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True, drop_last=True)
    task = Shrinking(build("digitsnet"), images[:2], steps=epochs * len(loader))
    trainer = L.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(task, loader)
    small = pcs.compact(task.model, task.shrinker.plan(), images[:2]).eval()
    with torch.no_grad():
        error = float((small(test_images).argmax(1) != test_labels).float().mean())
    print(f"{pcs.profile(small, images[:1]).madds / 1e6:.2f} M madds, test error {100 * error:.1f} %")
    return small, error


if __name__ == "__main__":
    main()
