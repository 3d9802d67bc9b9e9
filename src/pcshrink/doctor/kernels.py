"""What torch really runs here, each tried in a process of its own: a processor may announce what it cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import asdict, dataclass
from typing import Any

from pcshrink.common.child import python_command

LONGEST = 120  # seconds; a first import of torch from a slow disk takes long
# Virtual machines may announce AMX and end every program that uses it; this keeps oneDNN from it.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
FACTS = """
import json, torch
gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
gpus += ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []
print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "gpus": gpus,
    "vectors": torch.backends.cpu.get_cpu_capability(), "onednn": torch.backends.mkldnn.is_available()}))
"""
PRODUCT = """
import torch
torch.set_num_threads(1)
layer = torch.nn.Conv2d(64, 64, 3, padding=1).to(torch.{dtype})
images = torch.ones(2, 64, 16, 16, dtype=torch.{dtype})
with torch.no_grad():
    assert bool(layer(images).isfinite().all())
    assert bool((torch.ones(64, 64, dtype=torch.{dtype}) @ torch.ones(64, 64, dtype=torch.{dtype})).isfinite().all())
"""


@dataclass(frozen=True)
class Trial:
    """What became of a small piece of work.

    Attributes:
        works: Whether it ran to its end.
        kernel: The implementation that oneDNN picked for a convolution; empty if it did not say.
        trouble: How it ended otherwise.
        remedy: What to do about it.
    """

    works: bool
    kernel: str = ""
    trouble: str = ""
    remedy: str = ""


def torch_facts() -> tuple[dict[str, Any], str]:
    """Version, threads and devices as torch tells them, and what is wrong if it cannot."""
    trial, output = _child(FACTS)
    return (json.loads(output.splitlines()[-1]), "") if trial.works else ({}, trial.trouble)


def try_kernels() -> dict[str, dict[str, Any]]:
    """A convolution and a product in float32 and in bfloat16."""
    return {dtype: asdict(try_kernel(dtype)) for dtype in ("float32", "bfloat16")}


def try_kernel(dtype: str) -> Trial:
    """Run a small network in one precision; where it ends Python, see whether keeping oneDNN from AMX helps."""
    code = PRODUCT.format(dtype=dtype)
    trial, output = _child(code, {"ONEDNN_VERBOSE": "1"})
    if trial.works:
        return Trial(works=True, kernel=_kernel_in(output))
    helps = _child(code, WITHOUT_AMX)[0].works
    setting = " ".join(f"{name}={value}" for name, value in WITHOUT_AMX.items())
    return Trial(works=False, trouble=trial.trouble, remedy=f"set {setting}" if helps else "")


def _kernel_in(verbose: str) -> str:
    """The implementation named in oneDNN's own report: its sixth field, after the kind of work."""
    for line in verbose.splitlines():
        fields = line.split(",")
        if "exec" in fields and "convolution" in fields:
            return fields[fields.index("convolution") + 1]
    return ""


def _child(code: str, variables: dict[str, str] | None = None) -> tuple[Trial, str]:
    """Run Python code in a process of its own."""
    try:
        done = subprocess.run(
            python_command(code),
            env=os.environ | (variables or {}),
            capture_output=True,
            text=True,
            timeout=LONGEST,
        )
    except subprocess.TimeoutExpired:
        return Trial(works=False, trouble=f"took longer than {LONGEST} s"), ""
    if done.returncode == 0:
        return Trial(works=True), done.stdout
    if done.returncode < 0:
        return Trial(works=False, trouble=f"ended by {signal.Signals(-done.returncode).name}"), done.stdout
    lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return Trial(works=False, trouble=lines[-1]), done.stdout
