"""Whether a network and what is said about its images belong together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import ConfigError
from pcshrink.graph.model import evaluation, tensors


@torch.no_grad()
def check_images(model: nn.Module, preprocessing: Preprocessing, example_input: object = None) -> None:
    """See that a network takes the images that a preprocessing makes, and has an output for each class that it names.

    Args:
        model: Any network.
        preprocessing: What is to be written down beside it.
        example_input: What it is exported with, if it is; a file takes no other size.

    Raises:
        ConfigError: They do not belong together.
    """
    size = tuple(preprocessing.input_size)
    given = tensors(example_input)
    if given and tuple(given[0].shape[1:]) != size:
        message = f"preprocessing makes images of {size}, but the example input is one of {tuple(given[0].shape[1:])}"
        raise ConfigError(message)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    try:
        with evaluation(model):
            scores = model(torch.zeros(1, *size, device=parameter.device, dtype=parameter.dtype))
    except Exception as error:  # the network is foreign: anything can be raised
        reason = " ".join(str(error).split())[:300]
        message = f"the network does not run on the images that preprocessing makes, {size}: {reason}"
        raise ConfigError(message) from error
    names = len(preprocessing.classes)
    if names and isinstance(scores, Tensor) and scores.ndim == 2 and scores.shape[1] != names:
        message = f"preprocessing names {names} classes, but the network has {scores.shape[1]} outputs"
        raise ConfigError(message)
