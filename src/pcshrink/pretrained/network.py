"""The network that is to shrink, with its weights, and what it says about itself."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pcshrink.artifact import load_weights
from pcshrink.errors import CheckpointError, ConfigError
from pcshrink.models import create, usual_preprocessing
from pcshrink.models.registry import resolve
from pcshrink.pretrained.inputs import inputs_of_file
from pcshrink.pretrained.request import Request
from pcshrink.train.weights import load_weights_


@dataclass(frozen=True)
class Network:
    """A pretrained classifier.

    Attributes:
        model: In evaluation mode.
        section: The recipe's section that makes it again.
        inputs: Settings of the data, where its name does not tell all.
        size: Side of its images.
        outputs: How many classes it knows.
    """

    model: nn.Module
    section: dict[str, Any]
    inputs: dict[str, Any]
    size: int
    outputs: int = 0

    def example(self, count: int) -> Tensor:
        """Random images of the right size."""
        return torch.randn(count, 3, self.size, self.size, generator=torch.Generator().manual_seed(0))


def check_model(request: Request) -> None:
    """Refuse at once what is not to be made at all.

    Raises:
        ConfigError: There is no such network, it has no weights, or it is code that nobody trusts.
    """
    source, _ = resolve(request.model)
    if not source and not request.trust:
        message = f"{request.model!r} is code of your own, which would be run; if you trust it, say --trust"
        raise ConfigError(message)
    if source == "pcshrink" and request.weights is None:
        message = f"{request.model} comes without weights, so there is nothing to keep; give --weights FILE"
        raise ConfigError(message)


def open_network(request: Request) -> Network:
    """Make the network and load its weights.

    Raises:
        ConfigError: It is no classifier of images, or its weights cannot be fetched.
        CheckpointError: The weights cannot be read, or do not fit.
    """
    source, _ = resolve(request.model)
    section: dict[str, Any] = {"name": request.model}
    if request.weights is not None:
        model, arguments = _with_weights(request.model, request.weights, sized=bool(source))
        section |= {"weights": str(request.weights.resolve()), "args": arguments}
    else:
        section["pretrained"] = source in ("torchvision", "timm", "transformers")
        model = create(request.model, pretrained=section["pretrained"])
    inputs = inputs_of_file(request.model, request.weights)
    size = inputs.get("image_size", usual_preprocessing(request.model).input_size[-1])
    network = Network(model.eval(), section, inputs, size)
    return dataclasses.replace(network, outputs=_outputs(network))


def _with_weights(name: str, path: Path, *, sized: bool) -> tuple[nn.Module, dict[str, Any]]:
    """The network that fits a checkpoint: with its usual number of classes, or with that of the last layer in it."""
    state = load_weights(path)
    model = create(name)
    own_tensors = reversed(model.state_dict().items())
    head, own = next(((key, len(tensor)) for key, tensor in own_tensors if tensor.ndim), ("", 0))
    # Files sort their tensors as they like, so the last one is the head only where the head has another name.
    last = state.get(head, next((tensor for tensor in reversed(state.values()) if tensor.ndim), None))
    classes = own if last is None or not last.ndim else len(last)
    arguments: dict[str, Any] = {"num_classes": classes} if sized and classes != own else {}
    if arguments:
        try:
            model = create(name, **arguments)
        except ConfigError:
            arguments = {}
    try:
        load_weights_(model, path)
    except CheckpointError:
        if arguments:  # the last tensor was no head: complain about the network as its name means it
            load_weights_(create(name), path)
        raise
    return model, arguments


@torch.no_grad()
def _outputs(network: Network) -> int:
    try:
        scores = network.model(network.example(1))
    except Exception as error:  # a network of any library may raise anything
        reason = " ".join(str(error).split())[:200]
        message = f"the network does not run on one image of {network.size} pixels: {reason}"
        raise ConfigError(message) from error
    if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] < 2:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        message = f"pcshrink shrink wants a classifier that gives scores (batch, classes), got {got}"
        raise ConfigError(message)
    return int(scores.shape[1])
