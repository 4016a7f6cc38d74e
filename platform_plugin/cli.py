"""The command line: ``platform-plugin <command>``. What a command does belongs elsewhere.

Further commands come from installed packages, by entry points of the group
``platform_plugin.commands``: each names a typer application or a function.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from platform_plugin.errors import PlatformPluginError
from platform_plugin.evaluation.command import evaluate
from platform_plugin.predict import predict

GROUP = "platform_plugin.commands"
TRACEBACK = "PLATFORM_PLUGIN_TRACEBACK"

AsJson = Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")]


def main() -> None:
    """Run the command line; an error of this project is one message on stderr and exit status 1."""
    try:
        build_app()()
    except PlatformPluginError as exc:
        if os.environ.get(TRACEBACK) == "1":
            raise
        typer.echo(f"{type(exc).__name__}: {exc}", err=True)
        sys.exit(1)


def build_app() -> typer.Typer:
    """Return the application with the commands of this package and of all installed ones."""
    app = typer.Typer(
        name="platform-plugin",
        help="Spark ML stages whose predictions run on Ray actors with vLLM engines.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command()(doctor)
    app.command()(demo)
    app.command()(predict)
    app.command()(evaluate)
    for entry in entry_points(group=GROUP):
        try:
            command = entry.load()
        except Exception as exc:
            # A broken package must not take `doctor` away.
            typer.echo(f"command {entry.name!r} of {entry.value} left out: {exc}", err=True)
            continue
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=entry.name)
        else:
            app.command(entry.name)(command)
    return app


def doctor(as_json: AsJson = False) -> None:
    """Say what is missing on this machine, and the remedy; exit status 1 if anything is."""
    from platform_plugin.doctor import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            mark = typer.style("ok  ", fg="green") if finding.ok else typer.style("FAIL", fg="red")
            typer.echo(f"{mark}  {finding.name:<8}  {finding.detail}")
            if not finding.ok:
                typer.echo(f"{'':16}-> {finding.remedy}")
    raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)


def demo(
    as_json: AsJson = False,
    rows: Annotated[int, typer.Option(min=1, help="How many rows to predict.")] = 200,
) -> None:
    """Predict with a small embedded model: Spark to Ray to vLLM and back, on this machine."""
    from platform_plugin.demo import run

    run(rows, as_json=as_json)
