"""The machine: operating system, processor, memory and free disk. Standard library only."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

# Instruction sets that decide which kernels a runtime picks, by the names that Linux uses.
TELLING = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
# Settings of the environment that change which kernels run, and how many threads they have.
VARIABLES = ("ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
GIB = 1024**3


def machine() -> dict[str, Any]:
    """Plain facts about the computer this runs on."""
    return {
        "system": platform.platform(),
        "processor": processor_name(),
        "cores": usable_cores(),
        "announces": announced(),
        "memory_gib": memory(),
        "disk_free_gib": {
            "current folder": free_space(Path.cwd()),
            "temporary folder": free_space(Path(tempfile.gettempdir())),
        },
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def usable_cores() -> int:
    """Cores that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name() -> str:
    """What the processor calls itself."""
    named = _cpuinfo().get("model name") or platform.processor() or "unknown"
    return f"{named} ({platform.machine()})"


def announced() -> list[str]:
    """The telling instruction sets that the processor announces; empty where the system does not list them."""
    info = _cpuinfo()
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return [name for name in TELLING if name in flags]


def memory() -> float | None:
    """Memory of the machine in GiB; None where the system does not say."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1)
    except (AttributeError, OSError, ValueError):
        return None


def free_space(folder: Path) -> float | None:
    """Free disk space in GiB where a folder lies; None where it cannot be read."""
    try:
        return round(shutil.disk_usage(folder).free / GIB, 1)
    except OSError:
        return None


def _cpuinfo() -> dict[str, str]:
    """The first processor as Linux describes it; empty elsewhere."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
