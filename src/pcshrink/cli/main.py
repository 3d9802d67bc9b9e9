"""The command line: thin, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from typing import Annotated, NoReturn

import typer

from pcshrink import __version__
from pcshrink.cli import data, deploy, doctor, report, report_page, shrink, sweep, train, use
from pcshrink.cli.options import examples
from pcshrink.errors import ConfigError, ShrinkError

DEBUG = "PCSHRINK_DEBUG"
COMPLETION = ("--install-completion", "--show-completion")
SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
# Typer asks which shell it runs in and ignores a shell that is named, unless this is set.
NO_DETECTION = "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION"

app = typer.Typer(
    name="pcshrink",
    help="Smaller and faster PyTorch networks by Progressive Channel-Shrinking.",
    epilog=examples(
        "pcshrink demo                               # a minute or two, nothing else needed",
        "pcshrink inspect timm:resnet50 --ratio 0.5  # look before you train",
        "pcshrink train cifar10-resnet20           # from a recipe to a compact network",
        "pcshrink bench runs/cifar10-resnet20 --dense",
    ),
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # plain help: rich alone would take longer to import than all the rest
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pcshrink {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help=f"Show tracebacks (or set {DEBUG}=1).")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options of all commands."""
    if debug:
        os.environ[DEBUG] = "1"  # processes that are started from here see it as well


for module in (train, shrink, data, report, use, report_page, deploy, sweep, doctor):
    module.register(app)


def main() -> None:
    """Run the command line; a user's mistake is one line and exit code 2."""
    if any(option in COMPLETION and shell in SHELLS for option, shell in pairwise(sys.argv)):
        os.environ[NO_DETECTION] = "1"
    try:
        _check_words(sys.argv[1:])
        try:
            app(prog_name="pcshrink")
        finally:
            _flush()
    except ShrinkError as error:
        _fail(error, str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pcshrink"):
            raise
        from pcshrink.common.install import install_hint

        _fail(error, f"this command needs {error.name}; install it with {install_hint(error.name)}")
    except OSError as error:
        _fail(error, f"{error} (pcshrink --debug ... shows where)")
    except (MemoryError, RuntimeError) as error:
        if not _lacks_memory(error):
            raise
        _fail(error, f"there is not enough memory; take smaller batches or inputs ({str(error)[-200:]})")


def _lacks_memory(error: Exception) -> bool:
    """Torch has a class of its own for devices only; on the CPU its words tell."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in ("t allocate memory", "out of memory"))


def _flush() -> None:
    """Write what is left while there is still somebody to complain to: the interpreter's own try ends in a traceback.

    Raises:
        OSError: It cannot be written; on a full device, for example.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the interpreter to flush at its end
        raise


def _check_words(words: list[str]) -> None:
    """Refuse empty words: as a path one would silently be the working directory."""
    for before, word in pairwise(["", *words]):
        if not word or (word.startswith("--") and word.endswith("=")):
            what = word.rstrip("=") or before or "the command"
            message = f"{what} is followed by an empty value; does a variable of your shell hold nothing?"
            raise ConfigError(message)


def _fail(error: Exception, text: str) -> NoReturn:
    if os.environ.get(DEBUG, "") not in ("", "0"):
        raise error
    sys.stderr.write(f"pcshrink: {' '.join(text.split())}\n")
    sys.exit(2)


if __name__ == "__main__":
    main()
