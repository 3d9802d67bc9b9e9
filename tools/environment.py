"""Prepare the Python environment of this clone; `make install` calls it.

The heavy packages live in a virtual environment under the user's cache folder (PCSHRINK_CACHE, else
XDG_CACHE_HOME/pcshrink, else ~/.cache/pcshrink), keyed by what decides its content: the dependencies in
pyproject.toml, constraints.txt and the Python version. Every clone on the machine shares it. The clone itself
gets a light `.venv` that sees the shared packages and holds only pcshrink, installed in editable mode.
`--extra zoo` makes another environment on top, with the packages that only `make zoo` needs.

Standard library only; progress goes to stderr, so that `--print-python` leaves stdout to the path.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "pcshrink"
OLDEST = (3, 10)
CONSTRAINED_FROM = (3, 11)  # some versions in constraints.txt no longer exist for older Pythons
EXTRAS_BELOW = "# Below: only for"  # in constraints.txt; what follows does not change the environment of the tests
COMPLETE = ".complete"
STAMP = ".pcshrink-stamp"
# Settings of the caller's shell that would send packages somewhere else.
STRAY_VARIABLES = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_USER",
    "PIP_REQUIRE_VIRTUALENV",
)


class SetupError(Exception):
    """What failed, and what to do about it."""


def say(message: str) -> None:
    print(f"environment: {message}", file=sys.stderr, flush=True)


def read_pyproject(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            from pip._vendor import tomli as tomllib
        except ImportError:
            raise SetupError("Python 3.10 needs pip for this; install it, or use PYTHON=python3.11") from None
    return dict(tomllib.loads(path.read_text(encoding="utf-8")))


def requirements(pyproject: dict[str, Any], extra: str = "dev") -> list[str]:
    """The run-time requirements and those of one extra, extras of this very package written out."""
    project = pyproject["project"]
    extras = project.get("optional-dependencies", {})
    found: dict[str, None] = dict.fromkeys(project.get("dependencies", []))
    waiting, seen = [extra], set()
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        for requirement in extras.get(current, []):
            own = re.fullmatch(rf"{NAME}\[([\w\s,.-]+)\]", requirement)
            if own:
                waiting += [name.strip() for name in own[1].split(",")]
            else:
                found[requirement] = None
    return sorted(found)


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def dependency_key(pyproject: dict[str, Any], constraints: str, extra: str = "dev") -> str:
    """Changes when the installed packages would; a comment or a lint setting does not change it."""
    counted = constraints.partition(EXTRAS_BELOW)[0] if extra == "dev" else constraints
    lines = (line.split("#")[0].strip() for line in counted.splitlines())
    pins = sorted(line for line in lines if line)
    interpreter = (sys.implementation.name, platform.python_version(), platform.system(), platform.machine())
    return digest(requirements(pyproject, extra), pins, interpreter)


def cache_folder() -> Path:
    if os.environ.get("PCSHRINK_CACHE"):
        return Path(os.environ["PCSHRINK_CACHE"]).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / NAME


def interpreter_of(environment: Path) -> Path:
    return environment / "bin" / "python"


def is_complete(shared: Path) -> bool:
    """Whether the installation was finished and the interpreter it was made with is still there."""
    return (shared / COMPLETE).is_file() and interpreter_of(shared).exists()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, so that two clones do not install into the same place."""
    try:
        import fcntl
    except ImportError:
        raise SetupError(
            "this set-up needs a Unix system; elsewhere: pip install -e .[dev] -c constraints.txt"
        ) from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another installation to finish")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(command: list[str | Path], log: Path, what: str, remedy: str) -> None:
    """Run a command, its output to the end of `log`; on failure show the last lines."""
    clean = {name: value for name, value in os.environ.items() if name not in STRAY_VARIABLES}
    clean.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PIP_PROGRESS_BAR="off")
    with log.open("a", encoding="utf-8") as output:
        output.write(f"$ {' '.join(map(str, command))}\n")
        output.flush()
        code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=clean, cwd=ROOT).returncode
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line for line in lines if not line.startswith("WARNING: ")]
        print("\n".join(telling[-20:]), file=sys.stderr)
        raise SetupError(f"{what} failed (exit code {code}); full output in {log}. {remedy}")


def base_python() -> str:
    """The interpreter itself, also when this runs inside a virtual environment."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def build_shared(shared: Path, wanted: list[str], below: Path | None = None) -> None:
    """Install packages into a new environment, which also sees those of the one below it."""
    log = shared.with_suffix(".log")
    log.unlink(missing_ok=True)
    if shared.exists():
        say(f"removing an unfinished environment at {shared}")
        shutil.rmtree(shared)
    say(f"installing {len(wanted)} packages and what they need into {shared} (several GB, a few minutes)")
    started = time.monotonic()
    remedy = "Is the venv module of this Python installed?"
    run([base_python(), "-m", "venv", shared], log, "creating the virtual environment", remedy)
    if below is not None:
        link_(shared, below)
    command: list[str | Path] = [interpreter_of(shared), "-m", "pip", "install", "--no-compile", *wanted]
    if sys.version_info >= CONSTRAINED_FROM:
        command += ["-c", ROOT / "constraints.txt"]
    else:
        say("constraints.txt is for Python 3.11 and newer; installing the newest versions that fit")
    remedy = "Check the network, pip's configuration and the free disk space, then run `make install` again."
    run(command, log, "installing the dependencies", remedy)
    compile_all: list[str | Path] = [
        interpreter_of(shared),
        "-m",
        "compileall",
        "-q",
        "-q",
        "-j",
        "0",
        site_packages(shared),
    ]
    subprocess.run(compile_all, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # only saves time later
    (shared / COMPLETE).write_text("\n".join(wanted) + "\n", encoding="utf-8")
    say(f"installed in {time.monotonic() - started:.0f} s")


def site_packages(environment: Path) -> Path:
    return environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def clone_stamp(pyproject: dict[str, Any], shared: Path) -> str:
    """Changes when `.venv` must be made again: packaging, shared environment or place of the clone."""
    setuptools = pyproject.get("tool", {}).get("setuptools")
    return digest(str(ROOT), str(shared), pyproject["project"], pyproject.get("build-system"), setuptools)


def is_current(light: Path, stamp: str) -> bool:
    made = light / STAMP
    parts = (interpreter_of(light), light / "bin" / NAME)
    return made.is_file() and made.read_text(encoding="utf-8") == stamp and all(part.exists() for part in parts)


def link_(environment: Path, below: Path) -> None:
    """Let an environment see the packages of another one."""
    link = f"import site; site.addsitedir({str(site_packages(below))!r})\n"
    (site_packages(environment) / "_shared.pth").write_text(link, encoding="utf-8")


def build_light(light: Path, shared: Path, stamp: str) -> None:
    if light.exists() and not (light / STAMP).exists():
        raise SetupError(f"{light} was not made by this tool; move it away, then run `make install` again")
    say(f"linking {light} to the shared environment and installing {NAME} into it")
    shutil.rmtree(light, ignore_errors=True)
    light.mkdir()
    (light / STAMP).write_text("unfinished", encoding="utf-8")
    log = shared.with_suffix(".clone.log")
    log.unlink(missing_ok=True)
    command: list[str | Path] = [base_python(), "-m", "venv", "--without-pip", light]
    run(command, log, "creating .venv", "Is the venv module of this Python installed?")
    link_(light, shared)
    pip: list[str | Path] = [interpreter_of(light), "-m", "pip", "install", "--quiet"]
    command = [*pip, "--no-deps", "--no-index", "--no-build-isolation", "--editable", ROOT]
    run(command, log, f"installing {NAME} itself", "Is pyproject.toml valid? `make clean` starts over.")
    (light / STAMP).write_text(stamp, encoding="utf-8")


def prepare(extra: str | None = None) -> Path:
    """Make the environments where needed; returns the path of the clone's interpreter, or of that with the extra."""
    pyproject = read_pyproject(ROOT / "pyproject.toml")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    key = dependency_key(pyproject, constraints)
    shared, light = cache_folder() / f"venv-{key}", ROOT / ".venv"
    stamp = clone_stamp(pyproject, shared)
    if not (is_complete(shared) and is_current(light, stamp)):
        with locked(shared.with_suffix(".lock")):
            if not is_complete(shared):
                build_shared(shared, requirements(pyproject))
            if not is_current(light, stamp):
                build_light(light, shared, stamp)
    return interpreter_of(light) if extra is None else prepare_extra(extra, pyproject, constraints, light)


def prepare_extra(extra: str, pyproject: dict[str, Any], constraints: str, light: Path) -> Path:
    """An environment with the packages of one more extra on top of the clone's; it sees the clone itself as well."""
    if extra not in pyproject["project"]["optional-dependencies"]:
        raise SetupError(f"pyproject.toml has no optional dependencies {extra!r}")
    top = cache_folder() / f"{extra}-{dependency_key(pyproject, constraints, extra)}-{digest(str(ROOT))}"
    with locked(top.with_suffix(".lock")):
        if not is_complete(top):
            build_shared(top, pyproject["project"]["optional-dependencies"][extra], below=light)
    return interpreter_of(top)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Prepare the Python environment of this clone.")
    parser.add_argument("--print-python", action="store_true", help="print the path of the interpreter on stdout")
    parser.add_argument("--extra", help="another environment on top, with these optional dependencies (zoo)")
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    options = parser.parse_args(arguments)
    try:
        if sys.version_info < OLDEST:
            raise SetupError(f"Python {platform.python_version()} is too old; use make PYTHON=python3.10 or newer")
        python = prepare(options.extra)
    except (SetupError, OSError) as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; run `make install` again to start over")
        return 130
    if options.print_python:
        print(python)
    elif not options.quiet:
        say(f"ready: {python}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
