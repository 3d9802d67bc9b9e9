"""The command that examines the machine and the installation: ``doctor``."""

from __future__ import annotations

import json

import typer

from pcshrink.cli.options import AsJson, examples


def register(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command("doctor", epilog=examples("pcshrink doctor", "pcshrink doctor --json > doctor.json"))(doctor)


def doctor(as_json: AsJson = False) -> None:
    """Show versions, processor, runtimes and what is missing.

    Ends with code 1 if something that pcshrink needs does not work. Copy the text into a bug report.
    """
    from pcshrink.doctor.check import as_text, examine

    state = examine()
    typer.echo(json.dumps(state, indent=1) if as_json else as_text(state))
    if state["problems"]:
        raise typer.Exit(1)
