"""How to get an optional library, as a command that works for this very installation."""

from __future__ import annotations

import json
import shlex
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

NAME = "pcshrink"
# Which extra brings which library, by the name it is imported as.
EXTRAS = {
    "train": ("torchvision", "timm", "lightning_fabric", "tensorboard", "PIL"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("openvino",),
    "report": ("matplotlib", "jinja2"),
    "loggers": ("wandb", "mlflow"),
    "hub": ("huggingface_hub", "transformers"),
}


def install_hint(module: str) -> str:
    """The command that installs a library which pcshrink can use and which is missing.

    Args:
        module: What was to be imported; for example "onnxruntime" or "torchvision.transforms".

    Example:
        >>> install_hint("ninja")
        '`pip install ninja`'
    """
    library = module.partition(".")[0]
    extra = next((extra for extra, libraries in EXTRAS.items() if library in libraries), None)
    if extra is None:
        return f"`pip install {library}`"
    return _from_origin(extra, _origin())


def _from_origin(extra: str, origin: dict[str, Any] | None) -> str:
    """The command for an extra, given where pcshrink was installed from (PEP 610); None: it was not installed."""
    if origin is None:
        return f"`pip install '.[{extra}]'` in the clone of {NAME}"
    url = str(origin.get("url", ""))
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"`pip install {editable}'.[{extra}]'` in {_folder(url)}"
    wanted = f"{NAME}[{extra}]"
    if "vcs_info" in origin:
        wanted += f" @ {origin['vcs_info'].get('vcs', 'git')}+{url}"
    elif url:
        wanted += f" @ {url}"
    return f"`pip install '{wanted}'`"


def _folder(url: str) -> str:
    from urllib.request import url2pathname  # half a web browser comes with it

    return shlex.quote(url2pathname(urlsplit(url).path))


def _origin() -> dict[str, Any] | None:
    """What the installer noted about the origin: empty for a package from an index."""
    try:
        text = metadata.distribution(NAME).read_text("direct_url.json")
        noted = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return None
    return noted if isinstance(noted, dict) else {}
