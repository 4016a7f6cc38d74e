"""``platform-plugin evaluate --config eval.yaml``.

The last line on stdout says how it ended, and so does the exit status: 0, evaluated; 1, what is required is not met, or
an error.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_plugin.errors import GateError

if TYPE_CHECKING:
    from platform_plugin.evaluation.result import EvaluationResult


def evaluate(
    config: Annotated[Path, typer.Option(help="YAML file: data, models, label, metrics, require, ...")],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")] = False,
) -> None:
    """Evaluate models on data, compare them, log to MLflow; exit status 1 where what is required is not met."""
    from platform_plugin.evaluation.configuration import run_file

    # A scheduler's stop: the session is stopped on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        result = run_file(config)
    except GateError as exc:
        found: Any = exc.result
        if not as_json:
            typer.echo(str(found))
        typer.echo(f"GateError: {exc}", err=True)
        _say("unmet", found, as_json)
        raise typer.Exit(1) from exc
    except Exception as exc:
        _say_failed(exc, as_json)
        raise
    if not as_json:
        typer.echo(str(result))
    _say("ok", result, as_json)


def _say(status: str, result: EvaluationResult, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"status": status, **result.to_dict()}, ensure_ascii=False))
        return
    figures = {
        "models": len(result.models),
        "rows": result.rows,
        "unmet": len(result.unmet),
        "seconds": round(result.seconds, 1),
        "run": result.run_id or "-",
        "report": result.report or "-",
    }
    typer.echo(" ".join(["evaluate", status, *(f"{name}={value}" for name, value in figures.items())]))


def _say_failed(exc: Exception, as_json: bool) -> None:
    """Say the end on stdout; the message follows on stderr, as of every command."""
    kind = type(exc).__name__
    told = {"status": "failed", "error": kind, "message": str(exc)[:1000]}
    typer.echo(json.dumps(told) if as_json else f"evaluate failed error={kind}")
