"""Image classifiers of the library transformers, by their name on the hub or by a local folder."""

from __future__ import annotations

import importlib
from typing import Any

from torch import Tensor, nn

from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import ConfigError

PREFIX = "transformers"
# PIL's numbers, which the library stores.
_MODES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}


class ImageClassifier(nn.Module):
    """A classifier of transformers that takes images and gives scores, as all others do.

    Args:
        network: The library's own.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        config: Any = network.config
        size = getattr(config, "image_size", 224)
        side = size if isinstance(size, int) else max(size)
        self.input_size = (int(getattr(config, "num_channels", 3)), side, side)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, classes)."""
        scores: Tensor = self.network(pixel_values=images).logits
        return scores


def classifier(
    name: str,
    *,
    pretrained: bool = False,
    num_classes: int | None = None,
    trust_remote_code: bool = False,
    **kwargs: object,
) -> nn.Module:
    """Make an image classifier.

    Args:
        name: As transformers takes it: a name on the hub, or a folder.
        pretrained: Load its weights; without, only its configuration is read.
        num_classes: Another number of outputs than it has.
        trust_remote_code: Run code that lies beside it; without, such a classifier is refused and nobody is asked.
        **kwargs: Changes of its configuration.

    Raises:
        ConfigError: There is no such classifier, or it cannot be reached.
    """
    library = _library()
    changes = kwargs if num_classes is None else {**kwargs, "num_labels": num_classes}
    logging = library.utils.logging
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # over files of this disk; what a user waits for has its own line
    try:
        config = library.AutoConfig.from_pretrained(name, trust_remote_code=trust_remote_code, **changes)
        if pretrained:
            network = library.AutoModelForImageClassification.from_pretrained(
                name,
                config=config,
                ignore_mismatched_sizes=num_classes is not None,
                trust_remote_code=trust_remote_code,
            )
        else:
            network = library.AutoModelForImageClassification.from_config(config, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        message = f"transformers gives no image classifier {name!r}: {reason}"
        raise ConfigError(message) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    return ImageClassifier(network)


def stated_preprocessing(name: str) -> Preprocessing | None:
    """What the processor that is kept with a classifier does; None where there is none or it does something else."""
    try:
        processor = _library().AutoImageProcessor.from_pretrained(name, trust_remote_code=False)
        size = dict(processor.size)
        mean, std = tuple(processor.image_mean), tuple(processor.image_std)
        crop = dict(processor.crop_size) if getattr(processor, "do_center_crop", False) else size
        height, width = (crop[k] if k in crop else crop["shortest_edge"] for k in ("height", "width"))
        resize = size.get("shortest_edge", 0) if crop is not size else 0
        mode = _MODES.get(int(processor.resample), "bilinear")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError):
        return None
    return Preprocessing(
        input_size=(len(mean), height, width), mean=mean, std=std, resize=resize, interpolation=mode
    )  # fmt: skip


def _library() -> Any:
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        message = f"{PREFIX}:NAME needs transformers, which is not installed: pip install transformers"
        raise ConfigError(message) from error
