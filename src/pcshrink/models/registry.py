"""Make any network from a short text, and guess what it wants to see."""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import nn

from pcshrink.common.registry import find_code
from pcshrink.errors import ConfigError, ShrinkError
from pcshrink.models import hugging, own

SOURCES = ("pcshrink", "torchvision", "timm")
FORMS = "pcshrink:NAME, torchvision:NAME, timm:NAME, transformers:NAME, package.module:callable or a bare NAME"


def create(spec: str, *, pretrained: bool = False, **kwargs: object) -> nn.Module:
    """Make the network a text describes.

    Args:
        spec: ``pcshrink:NAME``, ``torchvision:NAME`` (also ``torchvision:segmentation.NAME`` and so on),
            ``timm:NAME``, ``transformers:NAME`` (an image classifier of the hub, or a folder),
            ``package.module:callable`` (the working directory is searched last), or a bare
            name, looked up in pcshrink, torchvision and timm in this order.
        pretrained: Load the library's own weights (a download). Otherwise nothing is fetched at all.
        **kwargs: Passed on, for example ``num_classes``.

    Raises:
        ConfigError: No such model, its library is not installed, or it does not take these arguments.

    Example:
        >>> type(create("pcshrink:resnet20")).__name__
        'CifarResNet'
    """
    source, name = resolve(spec)
    if source == "pcshrink" and pretrained:
        message = f"there are no published weights for {spec!r}; load a state dict of your own"
        raise ConfigError(message)
    if source == "pcshrink":
        return own.build(name, **kwargs)
    builder, arguments = _BUILDERS[source](name, pretrained)
    try:
        model = _fetched(spec, builder, arguments | kwargs) if pretrained else builder(**arguments | kwargs)
    except ShrinkError:
        raise
    except (TypeError, ValueError) as error:
        message = f"cannot make the model {spec!r} with {kwargs}: {error}"
        raise ConfigError(message) from error
    if not isinstance(model, nn.Module):
        message = f"{spec!r} must give a torch.nn.Module, got {type(model).__name__}"
        raise ConfigError(message)
    return model


def _fetched(spec: str, builder: Callable[..., Any], arguments: dict[str, object]) -> Any:
    """Make a model with its published weights; a network that cannot be reached is the user's to hear of, in a line."""
    try:
        with _without_retries():
            return builder(**arguments)
    except (OSError, RuntimeError) as error:  # downloads raise OSErrors; hubs and checksums have classes of their own
        reason = " ".join(str(error).split())[:200]
        message = (
            f"the published weights of {spec!r} could not be loaded ({type(error).__name__}: {reason}); check the "
            "connection, or fetch them elsewhere and name the file (model.weights, --weights) without pretrained"
        )
        raise ConfigError(message) from error


@contextmanager
def _without_retries() -> Iterator[None]:
    """The hub tells of each of its tries in two lines."""
    hub = logging.getLogger("huggingface_hub")
    before = hub.level
    hub.setLevel(logging.ERROR)
    try:
        yield
    finally:
        hub.setLevel(before)


def default_input(model_or_spec: nn.Module | str) -> tuple[int, ...]:
    """Guess the shape of one input sample, without the batch axis.

    A model's own statement comes first (networks of this package, timm's configuration); else the first layer
    tells the channels and the size is 224. It is a guess: pass the shape yourself where it matters.

    Args:
        model_or_spec: A model, or what `create` takes.

    Raises:
        ConfigError: There is no such model.

    Example:
        >>> default_input("resnet56")
        (3, 32, 32)
    """
    if isinstance(model_or_spec, nn.Module):
        return _stated(model_or_spec) or _by_name(model_or_spec) or _by_first_layer(model_or_spec)
    source, name = resolve(model_or_spec)
    if source == "torchvision":
        return _torchvision_shape(_torchvision().get_model_builder(name).__module__) or (3, 224, 224)
    if source == "timm" and not name.startswith("hf"):
        config = importlib.import_module("timm").get_pretrained_cfg(name)
        return tuple(config.input_size) if config else (3, 224, 224)
    return default_input(create(model_or_spec))


def resolve(spec: str) -> tuple[str, str]:
    """Split into source ("" for a callable) and name, and make sure that the source knows the name."""
    if not isinstance(spec, str) or not spec.strip():
        message = f"a model is given as {FORMS}, got {spec!r}"
        raise ConfigError(message)
    prefix, colon, name = spec.partition(":")
    if not colon:
        return _search(spec)
    if prefix == hugging.PREFIX:
        return prefix, name
    if prefix not in SOURCES:
        return "", spec
    if prefix == "torchvision":
        name = name.rpartition(".")[2]
    known = _known(prefix)
    if known is None:
        message = f"{spec!r} needs {prefix}, which is not installed: pip install {prefix}"
        raise ConfigError(message)
    if not _has(prefix, name, known):
        raise ConfigError(own.unknown(spec, known))
    return prefix, name


def _search(name: str) -> tuple[str, str]:
    everything: list[str] = []
    missing: list[str] = []
    for source in SOURCES:
        known = _known(source)
        if known is None:
            missing.append(source)
        elif _has(source, name, known):
            return source, name
        everything += known or []
    note = f" ({' and '.join(missing)} not installed)" if missing else ""
    raise ConfigError(own.unknown(name, set(everything), note) + f". A model is given as {FORMS}")


def _has(source: str, name: str, known: list[str]) -> bool:
    """Timm names may carry a tag (``resnet18.a1_in1k``) or point to the hub (``hf-hub:...``)."""
    if source == "timm":
        return name.partition(".")[0] in known or name.startswith(("hf-hub:", "hf_hub:"))
    return name in known


def _known(source: str) -> list[str] | None:
    """All names of a source; None where it is not installed."""
    if source == "pcshrink":
        return own.names()
    try:
        library: ModuleType = _torchvision() if source == "torchvision" else importlib.import_module("timm")
    except ImportError:
        return None
    return list(library.list_models())


def _torchvision() -> ModuleType:
    return importlib.import_module("torchvision.models")


def _from_torchvision(name: str, pretrained: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    builder = _torchvision().get_model_builder(name)
    arguments: dict[str, Any] = {"weights": "DEFAULT" if pretrained else None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        arguments["weights_backbone"] = None
    if name in ("googlenet", "inception_v3") and not pretrained:
        arguments["init_weights"] = True
    return builder, arguments


def _from_timm(name: str, pretrained: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    return importlib.import_module("timm").create_model, {"model_name": name, "pretrained": pretrained}


def _from_transformers(name: str, pretrained: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    return hugging.classifier, {"name": name, "pretrained": pretrained}


def _from_code(spec: str, pretrained: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    try:
        builder = find_code(spec)
    except ConfigError as error:
        message = f"{error}. A model is given as {FORMS}"
        raise ConfigError(message) from error
    if not callable(builder):
        message = f"{spec!r} must be a class or function that gives a model, got {type(builder).__name__}"
        raise ConfigError(message)
    return builder, {"pretrained": True} if pretrained else {}


_BUILDERS: dict[str, Callable[[str, bool], tuple[Callable[..., Any], dict[str, Any]]]] = {
    "torchvision": _from_torchvision,
    "timm": _from_timm,
    hugging.PREFIX: _from_transformers,
    "": _from_code,
}


def _stated(model: nn.Module) -> tuple[int, ...] | None:
    shape = getattr(model, "input_size", None)
    for attribute in ("pretrained_cfg", "default_cfg"):
        config = getattr(model, attribute, None)
        if shape is None and isinstance(config, dict):
            shape = config.get("input_size")
    if isinstance(shape, (tuple, list)) and all(isinstance(n, int) for n in shape):
        return tuple(shape)
    return None


def _by_name(model: nn.Module) -> tuple[int, ...] | None:
    return _torchvision_shape(type(model).__module__)


def _torchvision_shape(module: str) -> tuple[int, ...] | None:
    if not module.startswith("torchvision.models."):
        return None
    if module.endswith("video.resnet"):
        return (3, 16, 112, 112)
    if ".video." in module:
        return (3, 16, 224, 224)
    return (3, 299, 299) if module.endswith("inception") else None


def _by_first_layer(model: nn.Module) -> tuple[int, ...]:
    size = getattr(model, "image_size", 224)
    size = size if isinstance(size, int) else 224
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            return (module.in_channels, size, size)
        if isinstance(module, nn.Linear):
            return (module.in_features,)
    return (3, size, size)
