"""Two machines without a common disk, as two network namespaces: they finish, lose each other, and go on.

    sudo python -m benchmarks.hosts [--timeout 0.5] [--torchrun | --restart]

Each host is one process with a folder of its own, started with what torchrun would set or by torchrun itself; a virtual
cable joins them. The run must give the bytes that two
processes on one machine give, without a disturbance and with one of: a cut cable, a killed peer, a stopped peer. A
disturbance must end all processes that still run within `train.timeout` and half a minute, with one line each, and
resuming must give the same bytes. One more is for torchrun alone (--restart: nothing else): a process on the second
host is killed and `--max-restarts` starts both again, after which the run must go on by itself. Its hosts share a
folder, since the first process may be on the other one then. Needs Linux, root and `ip` (iproute2);
says so where it cannot run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from pcshrink.common.child import own_command
from pcshrink.common.tables import text_table

HOSTS = ("pcshrink-a", "pcshrink-b")
CABLES = ("pcs-a", "pcs-b")
ADDRESSES = ("10.213.7.1", "10.213.7.2")
PORT = "29713"
STATIC = ["--master-addr", ADDRESSES[0], "--master-port", PORT]
ELASTIC = [
    "--max-restarts",
    "2",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    f"{ADDRESSES[0]}:{PORT}",
    "--rdzv-id",
    "7",
]
SLACK = 30.0  # seconds beside the timeout: to notice, to say it, to end
PATIENCE = 600.0
RECIPE = {
    "model": {"name": "digitsnet", "args": {"widths": [8, 8, 16]}},
    "data": {"name": "digits", "batch_size": 128},
    "epochs": {"dense": 1, "shrink": 2, "settle": 2},
    "optimizer": {"lr": 0.05},
    "shrink": {"budget": {"madds": 0.5}, "gates": "fold", "compact_every": 1},
    "distill": {"teacher": "dense", "loss": "soft"},
    "output": {"latency": False, "checkpoint_steps": 3},
}
AS_EXPECTED = {True: "as on one machine", False: "DIFFERS"}
FINE = ("-", "one line each", "it goes on by itself")
DISTURB_AT = 18  # steps: in the shrinking phase, when the dense network is needed as a teacher


def ip(*words: str) -> None:
    """Change the network of this machine."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def two_hosts() -> Iterator[None]:
    """Two namespaces with a cable between them, gone afterwards."""
    try:
        for host in HOSTS:
            ip("netns", "add", host)
        ip("link", "add", CABLES[0], "netns", HOSTS[0], "type", "veth", "peer", "name", CABLES[1], "netns", HOSTS[1])
        for host, cable, address in zip(HOSTS, CABLES, ADDRESSES, strict=True):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", host, "link", "set", "lo", "up")
        set_cable("up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def set_cable(state: str) -> None:
    """Plug it in ("up") or pull it out ("down"), on both ends."""
    for host, cable in zip(HOSTS, CABLES, strict=True):
        ip("-n", host, "link", "set", cable, state)


class Run:
    """The processes of one run, one on each host.

    Args:
        recipe: What to train.
        place: Where the folders are made.
        torchrun: Words for torchrun; without them it is not used.
        shared: Both hosts have one folder; otherwise each has one that the other does not see.
    """

    def __init__(self, recipe: Path, place: Path, torchrun: list[str] | None = None, *, shared: bool = False) -> None:
        self.recipe, self.torchrun = recipe, torchrun
        self.folders = [place / ("both" if shared else host) for host in HOSTS]

    def start(self, *, resume: bool = False) -> list[subprocess.Popen[str]]:
        """On both hosts."""
        shared = {"OMP_NUM_THREADS": "1"}
        if self.torchrun is None:
            shared |= {
                "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1",
                "LOCAL_RANK": "0",
            }  # fmt: skip
        processes = []
        for rank, (host, cable, folder) in enumerate(zip(HOSTS, CABLES, self.folders, strict=True)):
            own = {"GLOO_SOCKET_IFNAME": cable}
            own |= {"RANK": str(rank), "GROUP_RANK": str(rank)} if self.torchrun is None else {}
            words = ["train", str(self.recipe), "--out", str(folder), "--quiet", *(["--resume"] if resume else [])]
            processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", host, *self._command(rank), *words], env=os.environ | shared | own,
                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        return processes

    def _command(self, rank: int) -> list[str]:
        if self.torchrun is None:
            return own_command()
        words = ["--nnodes", "2", "--nproc-per-node", "1", "--local-addr", ADDRESSES[rank]]
        # Both hosts have the name of this machine, so that torchrun cannot tell which of them is the meeting place.
        words += ["--rdzv-conf", f"is_host={int(rank == 0)}"] if "c10d" in self.torchrun else ["--node-rank", str(rank)]
        return [sys.executable, "-m", "torch.distributed.run", *words, *self.torchrun, "-m", "pcshrink"]

    def step(self) -> int:
        """Of the newest checkpoint."""
        saved = self.folders[0].glob("checkpoints/checkpoint-*")
        return max((int(path.stem.partition("-")[2]) for path in saved), default=-1)

    def finish(self, *, resume: bool = False) -> bytes:
        """To the end; the weights."""
        self._end(self.start(resume=resume))
        return (self.folders[0] / "model" / "model.safetensors").read_bytes()

    def disturb(self, how: Callable[[list[subprocess.Popen[str]]], None], limit: float) -> tuple[float, str]:
        """Disturb the run in the middle; seconds until all have ended, and what is wrong with how they did."""
        processes = self.start()
        self._wait_for(DISTURB_AT)
        how(processes)
        began, wrong = time.monotonic(), []
        for rank, process in enumerate(processes):
            killed = process.poll() is not None or _is_stopped(process.pid)
            if killed:
                signal_host(HOSTS[rank], signal.SIGKILL)
                process.communicate()
                continue
            try:
                _, errors = process.communicate(timeout=limit + SLACK)
                lines = [line for line in errors.splitlines() if line.strip()]
                if self.torchrun is not None:  # it adds a report of its own
                    lines = [line for line in lines if line.startswith("pcshrink:")]
                if process.returncode != 1 or len(lines) != 1 or "--resume" not in lines[0]:
                    wrong.append(f"host {rank}: code {process.returncode}, {len(lines)} lines: {errors[-500:]!r}")
            except subprocess.TimeoutExpired:
                signal_host(HOSTS[rank], signal.SIGKILL)
                wrong.append(f"host {rank} did not end")
        return time.monotonic() - began, "; ".join(wrong)

    def lose_a_process(self) -> bytes:
        """Kill one in the middle, and leave the rest to torchrun; the weights."""
        processes = self.start()
        self._wait_for(DISTURB_AT)
        agent = processes[1].pid
        for pid in pids_of(HOSTS[1]):
            if pid != agent:
                os.kill(pid, signal.SIGKILL)
        self._end(processes)
        return (self.folders[0] / "model" / "model.safetensors").read_bytes()

    def _wait_for(self, step: int) -> None:
        end = time.monotonic() + PATIENCE
        while self.step() < step and time.monotonic() < end:
            time.sleep(0.05)

    def _end(self, processes: list[subprocess.Popen[str]]) -> None:
        for process in processes:
            _, errors = process.communicate(timeout=PATIENCE)
            if process.returncode:
                raise SystemExit(f"a host failed with {process.returncode}: {errors}")


def pids_of(host: str) -> list[int]:
    """Everything that runs on a host."""
    listed = subprocess.run(["ip", "netns", "pids", host], check=True, capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def signal_host(host: str, signum: int) -> None:
    """To everything on it."""
    for pid in pids_of(host):
        os.kill(pid, signum)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _send_to_second(signum: int) -> Callable[[list[subprocess.Popen[str]]], None]:
    def send(processes: list[subprocess.Popen[str]]) -> None:
        signal_host(HOSTS[1], signum)
        time.sleep(0.2)

    return send


DISTURBANCES: dict[str, Callable[[list[subprocess.Popen[str]]], None]] = {
    "the cable is cut": lambda _: set_cable("down"),
    "the second host is killed": _send_to_second(signal.SIGKILL),
    "the second host is stopped": _send_to_second(signal.SIGSTOP),
}


def disturbed(
    recipe: Path, place: Path, name: str, torchrun: list[str] | None, minutes: float, expected: bytes
) -> list[str]:
    """Disturb a run, let it go on, and compare: a row of the table."""
    run = Run(recipe, place / name.replace(" ", "-"), torchrun)
    seconds, problem = run.disturb(DISTURBANCES[name], 60 * minutes)
    set_cable("up")
    same = run.finish(resume=True) == expected
    row = [name, f"{seconds:.0f} s", problem or "one line each", AS_EXPECTED[same]]
    print(*row, sep=": ", file=sys.stderr, flush=True)
    return row


def main() -> None:
    """Finish, disturb, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=0.5, help="train.timeout, in minutes")
    parser.add_argument("--torchrun", action="store_true", help="start the hosts by torchrun --nnodes 2")
    parser.add_argument("--restart", action="store_true", help="only lose a process, and leave the rest to torchrun")
    asked = parser.parse_args()
    minutes, torchrun = asked.timeout, STATIC if asked.torchrun else None
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        sys.exit("two hosts on one machine need Linux, root and the command ip (iproute2)")
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        recipe = place / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(RECIPE | {"train": {"threads": 1, "timeout": minutes}}))
        local = [*own_command(), "train", str(recipe), "--out", str(place / "local"), "--quiet", "--devices", "2"]
        subprocess.run(local, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        expected = (place / "local" / "model" / "model.safetensors").read_bytes()
        try:
            with two_hosts():
                if not asked.restart:
                    same = Run(recipe, place / "whole", torchrun).finish() == expected
                    rows.append(["nothing happens", "-", "-", AS_EXPECTED[same]])
                    rows += [disturbed(recipe, place, name, torchrun, minutes, expected) for name in DISTURBANCES]
                if asked.torchrun or asked.restart:
                    same = Run(recipe, place / "elastic", ELASTIC, shared=True).lose_a_process() == expected
                    name = "a process on the second host is killed, --max-restarts 2"
                    rows.append([name, "-", "it goes on by itself", AS_EXPECTED[same]])
        except subprocess.CalledProcessError as error:
            sys.exit(f"network namespaces are not possible here: {error.stderr.strip()}")
    print(text_table(rows, "<", head=["what happens", "all ended after", "what they said", "result after resuming"]))
    print(f"train.timeout {60 * minutes:.0f} s")
    sys.exit(any(row[2] not in FINE or row[3] != AS_EXPECTED[True] for row in rows))


if __name__ == "__main__":
    main()
