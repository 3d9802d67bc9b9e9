"""The number format that a run computes in."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from pcshrink.doctor.kernels import try_kernel
from pcshrink.doctor.machine import announced
from pcshrink.errors import ConfigError, ShrinkWarning

log = logging.getLogger(__name__)
# By our names, those of Lightning Fabric. float64 is ours alone: Fabric's own would give scores back in float32.
FABRIC_NAMES = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed", "fp64": "32-true"}
COMPUTES_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is Arm's


def fabric_precision(wanted: str, accelerator: str) -> str:
    """What Fabric calls a precision; for ``auto``, that of the quickest products of this machine."""
    if wanted == "auto":
        wanted = "bf16" if _multiplies_bf16(accelerator) else "fp32"
        log.info("train.precision auto: %s", wanted)
    return FABRIC_NAMES[wanted]


def check_alike(chosen: Sequence[str]) -> None:
    """Whether all processes of a run compute in the same format, as ``fabric_precision`` chose it for each of them.

    Raises:
        ConfigError: They do not, since ``auto`` met unlike processors.
    """
    if len(set(chosen)) > 1:
        told = ", ".join(f"process {rank}: {name}" for rank, name in enumerate(chosen))
        message = f"train.precision auto differs between machines ({told}); set it, fp32 works on all of them"
        raise ConfigError(message)


def products_of(fabric: Any) -> str:
    """The type of numbers that a run multiplies while training, such as ``bfloat16``."""
    kind = fabric.device.type
    with fabric.autocast():
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    return str(dtype).removeprefix("torch.")


def _multiplies_bf16(accelerator: str) -> bool:
    """Whether products of bfloat16 numbers are done by the hardware; elsewhere they take longer than float32 ones."""
    if accelerator == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return accelerator == "cpu" and bool(COMPUTES_BF16 & set(announced())) and _really_does()


def _really_does() -> bool:
    """What a processor announces may end Python, so a process of its own tries it."""
    trial = try_kernel("bfloat16")
    if not trial.works:
        way = f"; {trial.remedy} to have them" if trial.remedy else ""
        message = f"bfloat16 products do not work here ({trial.trouble}), so the run takes float32{way}"
        warnings.warn(message, ShrinkWarning, stacklevel=2)
    return trial.works
