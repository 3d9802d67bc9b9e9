"""A run whose processes ``torchrun --max-restarts`` starts again when one of them was lost."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from pcshrink.common.child import free_port
from pcshrink.common.files import write_text

SECONDS_TO_LET_GO = 30.0  # what a killed process has started may hold the folder for a few more
_NOTE = ".launcher"


def began_here(folder: Path) -> bool:
    """Whether the same torchrun has begun the run in the folder, with processes before this one.

    Its count of restarts would not tell: a run that was refused because the folder holds an earlier one is restarted
    as well, and must not go on with that; and a machine that is asked to join again does not count it.
    """
    try:
        launcher, process = (folder / _NOTE).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return launcher == _launcher() and process != str(os.getpid())


def note_launcher(folder: Path) -> None:
    """Remember which torchrun the run in the folder belongs to, if any."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        write_text(folder / _NOTE, f"{_launcher()}\n{os.getpid()}\n")


def meet_anew(minutes: float) -> None:
    """Choose a new port to meet at after a restart on one machine; all processes must call it.

    The store that torchrun keeps for its processes may still hold the addresses of those that are gone, and who reads
    them first waits in vain (https://github.com/pytorch/pytorch/issues/135712). With several machines restarts are not
    counted alike; there torchrun's own meeting (``--rdzv-backend c10d``) opens a new store every time.
    """
    said = os.environ
    count, lone = said.get("TORCHELASTIC_RESTART_COUNT", "0"), said.get("GROUP_WORLD_SIZE") == "1"
    if count == "0" or not lone or said.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    patience = datetime.timedelta(minutes=minutes)
    store = TCPStore(said["MASTER_ADDR"], int(said["MASTER_PORT"]), is_master=False, timeout=patience)
    key = f"pcshrink/port/{count}"
    if said["RANK"] == "0":
        store.set(key, str(free_port()))
    said.update(MASTER_PORT=store.get(key).decode(), TORCHELASTIC_USE_AGENT_STORE="False")


def _launcher() -> str:
    """The torchrun above this process, told from all others before it: its run, process and moment of starting."""
    parent = os.getppid()
    try:
        began = Path(f"/proc/{parent}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux
        began = ""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {parent} {began}"
