"""The whole examination, as plain data and as text."""

from __future__ import annotations

import platform
from typing import Any

from pcshrink.doctor.kernels import torch_facts, try_kernels
from pcshrink.doctor.machine import machine
from pcshrink.doctor.packages import extras, needed, runtimes, version

OLDEST_TORCH = (2, 10)
LITTLE_SPACE_GIB = 2.0


def examine() -> dict[str, Any]:
    """Look at everything; takes some seconds, since kernels are tried in processes of their own."""
    facts, trouble = torch_facts()
    state: dict[str, Any] = {
        "pcshrink": version("pcshrink") or "not installed",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "machine": machine(),
        "packages": needed(),
        "torch": facts,
        "kernels": {} if trouble else try_kernels(),
        "runtimes": {} if trouble else runtimes(),
        "extras": extras(),
    }
    return state | {"problems": problems(state, trouble), "advice": advice(state)}


def problems(state: dict[str, Any], torch_trouble: str) -> list[str]:
    """What keeps pcshrink from working, each with what to do."""
    wrong = [f"{name} is missing; pip install {name}" for name, number in state["packages"].items() if number is None]
    if torch_trouble:
        wrong.append(f"torch cannot be used: {torch_trouble}")
    trial = state["kernels"].get("float32", {"works": True})
    if not trial["works"]:
        wrong.append(f"float32 does not work here: {trial['trouble']}; {trial['remedy'] or 'install torch again'}")
    number = state["torch"].get("torch", "")
    if number and tuple(int(part) for part in number.split(".")[:2]) < OLDEST_TORCH:
        wrong.append(f"torch {number} is too old; pip install 'torch>={OLDEST_TORCH[0]}.{OLDEST_TORCH[1]}'")
    return wrong


def advice(state: dict[str, Any]) -> list[str]:
    """What is worth knowing although pcshrink works."""
    notes = []
    trial = state["kernels"].get("bfloat16", {"works": True})
    if not trial["works"]:
        notes.append(f"bfloat16 does not work here: {trial['trouble']}; {trial['remedy'] or 'train in float32'}")
    notes += [
        f"only {free} GiB of disk are free ({where})"
        for where, free in state["machine"]["disk_free_gib"].items()
        if free is not None and free < LITTLE_SPACE_GIB
    ]
    missing = {name: part["get_it"] for name, part in state["extras"].items() if part["get_it"]}
    return [*notes, *(f"optional part {name} is not complete: {command}" for name, command in missing.items())]


def as_text(state: dict[str, Any]) -> str:
    """The examination for people, short enough for a bug report."""
    host, torch = state["machine"], state["torch"]
    disks = ", ".join(f"{free} GiB ({where})" for where, free in host["disk_free_gib"].items())
    lines = [
        f"pcshrink     {state['pcshrink']}, {state['python']}",
        f"system       {host['system']}",
        f"processor    {host['processor']}, {host['cores']} cores usable, {host['memory_gib'] or '?'} GiB memory",
        f"announces    {', '.join(host['announces']) or 'nothing that this system lists'}",
        *(f"variable     {name}={value}" for name, value in host["variables"].items()),
        f"free disk    {disks}",
        f"packages     {', '.join(f'{name} {number}' for name, number in state['packages'].items())}",
    ]
    if torch:
        lines.append(f"torch        {torch['torch']}, {torch['threads']} threads, {torch['vectors']} vectors")
        lines.append(f"devices      {', '.join(['CPU', *torch['gpus']])}")
    lines += [f"{dtype:<12} {_kernel(trial)}" for dtype, trial in state["kernels"].items()]
    lines += [f"runtime      {name}: {trouble or 'ready'}" for name, trouble in state["runtimes"].items()]
    lines += [f"extra        {name}: {_extra(part)}" for name, part in state["extras"].items()]
    for kind in ("problems", "advice"):
        lines += ["", f"{kind}:", *(f"- {line}" for line in state[kind])] if state[kind] else []
    return "\n".join([*lines, "", "All is well." if not state["problems"] else "pcshrink cannot work like this."])


def _kernel(trial: dict[str, Any]) -> str:
    if trial["works"]:
        return f"works{', convolutions by ' + trial['kernel'] if trial['kernel'] else ''}"
    return f"does not work: {trial['trouble']}"


def _extra(part: dict[str, Any]) -> str:
    there = [f"{name} {number}" for name, number in part["packages"].items() if number]
    missing = [f"no {name}" for name, number in part["packages"].items() if not number]
    return ", ".join([*there, *missing])
