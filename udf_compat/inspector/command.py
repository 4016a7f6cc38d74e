"""``platform-plugin migrate``: what of a code base moves to Ray, and the rewrite of its imports.

Light: it is loaded with every ``platform-plugin`` command, so what reads Python is imported when it is needed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from udf_compat.inspector.finding import Problem
    from udf_compat.inspector.inspection import Inspection

ALL_MOVES, SOME_CANNOT, WRONG_USE = 0, 1, 2


def migrate(
    paths: Annotated[
        list[Path], typer.Argument(help="Python files, notebooks, saved pipelines, or folders of them.", readable=False)
    ],
    write: Annotated[bool, typer.Option("--write", help="Show the changes as a diff, ask, and write them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")] = False,
) -> None:
    """Say which UDFs and stages move to Ray actors, and rewrite their imports.

    Nothing is imported and no line of the code is run. Exit status: 0 all moves; 1 something cannot move;
    2 a path does not exist, or a file cannot be read, parsed or written (it is named; the others are read).
    """
    from udf_compat.inspector.finding import Problem
    from udf_compat.inspector.inspection import inspect
    from udf_compat.inspector.sources import collect

    if yes and not write:
        raise typer.BadParameter("--yes goes with --write.", param_hint="--yes")
    if write and as_json and not yes:
        raise typer.BadParameter("With --json nobody can be asked: add --yes.", param_hint="--json")
    problems: list[Problem] = []
    inspections: list[Inspection] = []
    for found in collect(paths):
        if isinstance(found, Problem):
            problems.append(found)
        else:
            inspections.append(inspect(found))
            problems += inspections[-1].problems
    changes = [one for one in inspections if one.rewritten is not None]
    if not as_json:
        _report(inspections, problems, changes, write)
    written = _write(changes, problems, yes) if write and changes else []
    if as_json:
        typer.echo(json.dumps(_json(inspections, problems, written), indent=2))
    raise typer.Exit(_status(inspections, problems))


def _report(inspections: list[Inspection], problems: list[Problem], changes: list[Inspection], write: bool) -> None:
    from udf_compat.inspector.table import diff, summary, table

    findings = [finding for one in inspections for finding in one.findings]
    if findings:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo("\n".join(table(findings, width)) + "\n")
    if inspections:
        typer.echo(summary(inspections))
    for problem in problems:
        typer.echo(f"{problem.place}: {problem.message}", err=True)
    if write and changes:
        typer.echo("\n" + diff([part for one in changes for part in one.parts]))
    elif changes:
        typer.echo(f"--write shows the changes to {_files(changes)}, asks, and writes them.")
    elif write and inspections:
        typer.echo("Nothing to rewrite.")


def _write(changes: list[Inspection], problems: list[Problem], yes: bool) -> list[Inspection]:
    """Write what is wanted and can be written; return what was written."""
    from udf_compat.inspector.finding import Place, Problem
    from udf_compat.inspector.sources import replace

    if not yes:
        try:
            agreed = typer.confirm(f"Write {_files(changes)}?")
        except typer.Abort:
            typer.echo("\nNobody answered, and nothing was written; --yes writes without asking.", err=True)
            raise typer.Exit(WRONG_USE) from None
        if not agreed:
            typer.echo("Nothing was written.")
            return []
    written = []
    for one in changes:
        assert one.source is not None
        assert one.rewritten is not None
        try:
            replace(one.source, one.rewritten)
            written.append(one)
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else exc
            problems.append(Problem(Place(str(one.path)), f"was not written: {reason}"))
            typer.echo(f"{one.path}: was not written: {reason}", err=True)
    typer.echo(f"Wrote {_files(written)}.", err=True)
    return written


def _json(inspections: list[Inspection], problems: list[Problem], written: list[Inspection]) -> dict[str, object]:
    from udf_compat.inspector.finding import Verdict, as_json
    from udf_compat.inspector.table import diff

    findings = [finding for one in inspections for finding in one.findings]
    return {
        "files": len(inspections),
        "summary": {verdict.value: sum(one.verdict is verdict for one in findings) for verdict in Verdict},
        "findings": [as_json(finding) for finding in findings],
        "problems": [
            {"file": one.place.file, "cell": one.place.cell, "line": one.place.line, "message": one.message}
            for one in problems
        ],
        "changes": [
            {"file": str(one.path), "diff": diff(one.parts), "written": any(one is other for other in written)}
            for one in inspections
            if one.rewritten is not None
        ],
    }


def _status(inspections: list[Inspection], problems: list[Problem]) -> int:
    from udf_compat.inspector.finding import Verdict

    if problems:
        return WRONG_USE
    cannot = any(finding.verdict is Verdict.CANNOT for one in inspections for finding in one.findings)
    return SOME_CANNOT if cannot else ALL_MOVES


def _files(inspections: list[Inspection]) -> str:
    return "1 file" if len(inspections) == 1 else f"{len(inspections)} files"
