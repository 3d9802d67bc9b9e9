"""What bad inputs are tried on: a small network, an artifact of it, a folder of images, a run."""

from __future__ import annotations

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.models import create

SEEN = Preprocessing(input_size=(1, 8, 8), mean=(0.3,), std=(0.3,), classes=tuple("0123456789"))


class Place:
    """A folder of things to misuse; what takes time is made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fresh(self) -> Path:
        """A new, empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def paths(self) -> dict[str, str]:
        """By the names that command lines use."""
        return {
            "saved": str(self.saved), "images": str(self.images), "new": str(self.fresh() / "out"),
            "onnx": str(self.onnx), "bare": str(self.bare), "file": str(self.text), "picture": str(self.picture),
            "empty": str(self.fresh()), "flat": str(self.images / "train"), "run": str(self.run),
            "weights": str(self.weights), "larger": str(self.larger),
        }  # fmt: skip

    @property
    def example(self) -> Tensor:
        return torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def net(self) -> nn.Module:
        torch.manual_seed(0)
        return create("digitsnet", widths=[4, 4, 8])

    def shrinker(self, **settings: Any) -> pcs.Shrinker:
        return pcs.attach_(self.net(), self.example, pcs.ShrinkConfig(prove=False, **settings))

    @functools.cached_property
    def attached(self) -> pcs.Shrinker:
        """For what only asks."""
        return self.shrinker()

    @functools.cached_property
    def plan(self) -> pcs.PrunePlan:
        return self.attached.plan({g.name: torch.arange(g.channels) % 2 == 0 for g in self.attached.groups})

    @functools.cached_property
    def saved(self) -> Path:
        small = pcs.compact(self.attached.model, self.plan, self.example, gates="fold")
        return pcs.save(
            self.fresh() / "saved", small, self.plan, "pcshrink:digitsnet",
            builder_args={"widths": [4, 4, 8]}, preprocessing=SEEN,
        )  # fmt: skip

    @functools.cached_property
    def larger(self) -> Path:
        """For larger images."""
        return pcs.save(self.fresh() / "larger", self.net(), None, input_shape=(1, 16, 16))

    @functools.cached_property
    def bare(self) -> Path:
        """Without a builder."""
        return pcs.save(self.fresh() / "bare", self.net(), None)

    def copy(self, name: str = "saved") -> Path:
        """A copy of the artifact, to be damaged."""
        return Path(shutil.copytree(getattr(self, name), self.fresh() / "copy"))

    @functools.cached_property
    def onnx(self) -> Path:
        target = self.fresh() / "model.onnx"
        pcs.export_onnx(pcs.load(self.saved), self.example, target, exporters=("legacy",))
        return target

    @functools.cached_property
    def images(self) -> Path:
        root = self.fresh() / "images"
        self.draw(root)
        return root

    def draw(self, root: Path, splits: tuple[str, ...] = ("train", "val"), count: int = 4) -> Path:
        """Write pictures of noise in two classes."""
        for number, split in enumerate(splits):
            for label, name in enumerate(("cat", "dog")):
                folder = root / split / name
                folder.mkdir(parents=True)
                for index in range(count):
                    noise = np.random.default_rng([number, label, index]).integers(0, 256, (20, 24, 3), dtype=np.uint8)
                    Image.fromarray(noise).save(folder / f"{index}.png")
        return root

    @functools.cached_property
    def weights(self) -> Path:
        """Of a ResNet-20 for two classes."""
        path = self.fresh() / "weights.pt"
        torch.save(create("resnet20", num_classes=2).state_dict(), path)
        return path

    @functools.cached_property
    def picture(self) -> Path:
        return self.images / "val" / "cat" / "0.png"

    @functools.cached_property
    def text(self) -> Path:
        path = self.fresh() / "notes.txt"
        path.write_text("just a text\n")
        return path

    @functools.cached_property
    def run(self) -> Path:
        """What a finished run leaves, without the training."""
        from pcshrink.train.recipe.read import dump_recipe, load_recipe

        folder = self.fresh() / "run"
        shutil.copytree(self.saved, folder / "model")
        (folder / "recipe.yaml").write_text(dump_recipe(load_recipe("digits")))
        return folder
