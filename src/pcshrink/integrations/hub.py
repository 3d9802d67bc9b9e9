"""Compact networks on the Hugging Face hub: ``save_pretrained``, ``push_to_hub`` and ``from_pretrained``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from torch import nn

from pcshrink.artifact import load, read
from pcshrink.artifact.builders import is_known
from pcshrink.artifact.record import Artifact
from pcshrink.errors import CheckpointError

FILES = ("pcshrink.json", "model.safetensors")
BESIDE = "model*.onnx"


class HubNetwork(nn.Module, ModelHubMixin, library_name="pcshrink", tags=["pcshrink", "structured-pruning"]):
    """A saved network as the hub's mixin wants it.

    Args:
        folder: A finished run, or the folder of a saved model.
        model: A fresh full-size network, where the folder does not say how to make one.
        trust_builder: Run code of the user's own that the folder names.

    Raises:
        CheckpointError: There is no saved network in the folder.

    Example:
        ``HubNetwork("runs/faster").push_to_hub("me/faster")``; elsewhere ``HubNetwork.from_pretrained("me/faster")``.
    """

    def __init__(self, folder: str | Path, model: nn.Module | None = None, *, trust_builder: bool = False) -> None:
        super().__init__()
        folder = Path(folder)
        self.folder = folder / "model" if (folder / "model" / FILES[0]).is_file() else folder
        self.network = load(self.folder, model=model, trust_builder=trust_builder).eval()
        self._hub_mixin_config = (
            None  # else the mixin writes these arguments, a path of this machine, beside the network
        )

    def forward(self, *args: object, **kwargs: object) -> Any:
        """What the network computes."""
        return self.network(*args, **kwargs)

    @property
    def saved(self) -> Artifact:
        """What was saved with the network: its plan, its figures, what it wants to see."""
        return read(self.folder)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Copy the files as they are; what is in memory may have been changed, and is not what was measured."""
        beside = [path for home in (self.folder, self.folder.parent) for path in home.glob(BESIDE)]
        for source in [*(self.folder / name for name in FILES), *beside]:
            if source.parent.resolve() != Path(save_directory).resolve():
                shutil.copy2(source, Path(save_directory) / source.name)

    def generate_model_card(self, *args: object, **kwargs: object) -> ModelCard:
        """What the hub shows: what the network is, what was measured, how to load it."""
        return ModelCard(model_card(self.saved))

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        model: nn.Module | None = None,
        trust_builder: bool = False,
        **download: Any,
    ) -> HubNetwork:
        """A network from the hub or from a folder.

        The mixin's own would take arguments from a file beside the network, and so let a stranger say that his code
        is to be trusted; here only the caller can.

        Args:
            pretrained_model_name_or_path: A repository of the hub, or a folder.
            model: A fresh full-size network, where the network does not say how to make one.
            trust_builder: Run code that the network names.
            **download: For ``huggingface_hub.snapshot_download``: revision, token, cache_dir, ...

        Raises:
            CheckpointError: There is no network of pcshrink.
        """
        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            name = str(pretrained_model_name_or_path)
            folder = Path(snapshot_download(name, allow_patterns=list(FILES), **download))
        if not (folder / FILES[0]).is_file():
            message = f"{pretrained_model_name_or_path} holds no network of pcshrink: {FILES[0]} is missing"
            raise CheckpointError(message)
        return cls(folder, model, trust_builder=trust_builder)


def model_card(saved: Artifact) -> str:
    """The card of a saved network, with the figures that were measured."""
    made = f"`{saved.builder}`" if saved.builder else "a network of its author's own"
    lines = [
        "---", "library_name: pcshrink", "tags: [pcshrink, structured-pruning]", "---", "",
        f"# {made}, made smaller by channel pruning", "",
        "An ordinary dense network with fewer channels: no masks, no special runtime.", "",
    ]  # fmt: skip
    table = _table(saved.metrics or {})
    if table:
        lines += ["## Measured", "", *table, ""]
    if saved.preprocessing is not None:
        seen = saved.preprocessing
        size = " x ".join(map(str, seen.input_size))
        colours = f"mean {list(seen.mean)}, std {list(seen.std)}"
        fitted = f"shorter side resized to {seen.resize}" if seen.resize else "stretched to this size"
        lines += [f"Images: {size}, {colours}, {fitted}.", ""]
    trust = "" if saved.builder is None or is_known(saved.builder) else ", trust_builder=True"
    lines += [
        "## Use", "", "```python", "from pcshrink.integrations.hub import HubNetwork", "",
        f'network = HubNetwork.from_pretrained("this/repository"{trust})', "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _table(metrics: Any) -> list[str]:
    """Dense and compact side by side."""
    dense, compact = metrics.get("dense") or {}, metrics.get("compact") or {}
    units = {"error": "{:.2f} %", "params": "{:,}", "madds": "{:,}", "latency_ms": "{:.2f} ms"}
    names = {"latency_ms": _latency_name(compact)}
    rows = [
        f"| {names.get(name, name)} | {text.format(dense[name])} | {text.format(compact[name])} |"
        for name, text in units.items()
        if dense.get(name) is not None and compact.get(name) is not None
    ]
    return ["| | dense | compact |", "|---|---|---|", *rows] if rows else []


def _latency_name(figures: Any) -> str:
    """A time says little without where it was taken."""
    if "latency_runtime" not in figures:
        return "latency"
    threads = figures["latency_threads"]
    return (
        f"latency ({figures['latency_runtime']}, batch {figures['latency_batch']}, "
        f"{threads} thread{'' if threads == 1 else 's'})"
    )
