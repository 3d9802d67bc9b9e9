"""Build the wheel and the sdist, check them, and install the wheel into fresh environments; `make release-check`.

    python tools/release_check.py [--extras train,export] [--keep DIR]

The packages that pcshrink always needs are installed once, without pcshrink; each environment starts as a copy of that
one (by hard links, so that gigabytes are not copied). Needs a network or pip's cache, some minutes and some GB of disk.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("", "train", "export", "openvino", "report", "loggers", "hub")
# What can be imported once an extra is there, and not without it.
BRINGS = {
    "train": "lightning_fabric, torchvision, timm",
    "export": "onnx, onnxscript, onnxruntime",
    "openvino": "openvino",
    "report": "matplotlib, jinja2",
    "loggers": "wandb, mlflow",
    "hub": "huggingface_hub, transformers",
}
PUBLIC = "import pcshrink; [getattr(pcshrink, name) for name in pcshrink.__all__]; print(pcshrink.__version__)"


@dataclass(frozen=True)
class Environment:
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.folder / "bin" / "pcshrink")


class CheckError(Exception):
    """A step of the check did not end as it should."""


def run(command: list[str], *, code: int = 0, cwd: Path | None = None) -> str:
    """Run a command in an empty folder, so that only what is installed can be imported."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_TARGET"))}
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(command, cwd=cwd or empty, env=clean, capture_output=True, text=True, timeout=7200)
    if done.returncode != code:
        output = (done.stdout + done.stderr)[-3000:]
        raise CheckError(f"{' '.join(command)}\nended with {done.returncode}, expected {code}:\n{output}")
    return done.stdout + done.stderr


def build(target: Path) -> Path:
    """Both files of the release, the wheel made from the sdist; the path of the wheel."""
    run([sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)], cwd=ROOT)
    files = sorted(target.iterdir())
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    print("built and passed twine check:", ", ".join(f"{f.name} ({f.stat().st_size / 1e6:.1f} MB)" for f in files))
    return next(file for file in files if file.suffix == ".whl")


def requirements(wheel: Path) -> list[str]:
    """What the wheel always needs, as its own metadata says."""
    code = (
        "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); n = [x for x in z.namelist() if x.endswith('METADATA')]"
    )
    text = run([sys.executable, "-c", f"{code}; print(z.read(n[0]).decode())", str(wheel)])
    lines = re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)
    return [line for line in lines if "extra ==" not in line]


def base_environment(folder: Path, wheel: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--no-compile"]
    run([*pip, *requirements(wheel), "-c", str(ROOT / "constraints.txt")])


def check(base: Path, folder: Path, wheel: Path, extra: str) -> None:
    """Install the wheel with one extra into a copy of the base environment and use it."""
    subprocess.run(["cp", "-al", str(base), str(folder)], check=True)
    place = Environment(folder)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    # As a user installs it: without constraints.txt, so that what the extra itself asks for must be enough.
    run([place.python, "-m", "pip", "install", "-q", "--no-compile", wanted])
    version = run([place.python, "-c", PUBLIC]).strip().splitlines()[-1]
    if version not in wheel.name:
        raise CheckError(f"{wheel.name} installs version {version}")
    assert_in("inspect", run([place.command, "--help"]))
    if extra:
        run([place.python, "-c", f"import {BRINGS[extra]}"])
    run([place.command, "recipes", "digits"])
    assert_in("pcshrink", run([place.command, "doctor"]))
    if extra == "train":
        assert_in("files in", run([place.command, "demo", "--quiet"]))
    else:  # the trainer is an extra: the command says so and how to get it
        assert_in("pip install", run([place.command, "demo", "--quiet"], code=2))
    print(f"extra {extra or 'none'}: installed, imported, --help, recipes, doctor, demo")


def assert_in(text: str, output: str) -> None:
    if text not in output:
        raise CheckError(f"expected {text!r} in:\n{output[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", default=",".join(EXTRAS), help="which extras to install; an empty name means none")
    parser.add_argument("--keep", type=Path, help="leave wheel and sdist in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pcshrink-release-") as made:
        work = Path(made)
        try:
            wheel = build(work / "dist")
            if options.keep:
                shutil.copytree(work / "dist", options.keep, dirs_exist_ok=True)
            base_environment(work / "base", wheel)
            for extra in options.extras.split(","):
                check(work / "base", work / f"with-{extra or 'nothing'}", wheel, extra)
        except CheckError as error:
            print(error, file=sys.stderr)
            return 1
    print("the release installs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
