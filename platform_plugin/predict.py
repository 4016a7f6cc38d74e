"""``platform-plugin predict``: a saved pipeline over files, as a scheduler runs it.

The last line on stdout says how it ended, and so does the exit status: 0, all rows are written; 1, an error, and no
output; 2, wrong usage; 3 with --strict, all rows are written, and some have no answer.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from platform_plugin.errors import ConfigError, PlatformPluginError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NO_ANSWERS = 3
Format = StrEnum("Format", ["parquet", "delta", "csv", "json"])
_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:")


def predict(
    pipeline: Annotated[str, typer.Option(help="MLflow URI (models:/name@alias) or path of a saved pipeline.")],
    source: Annotated[str, typer.Option("--input", help="Path of the rows.")],
    output: Annotated[str, typer.Option(help="Path for the rows with their answers; appears whole or not at all.")],
    kind: Annotated[Format, typer.Option("--format", help="Format of the input.")] = Format.parquet,
    output_kind: Annotated[Format | None, typer.Option("--output-format", help="If not that of the input.")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the output where it is there.")] = False,
    strict: Annotated[bool, typer.Option(help="Exit status 3 where a row has no answer.")] = False,
    track: Annotated[bool, typer.Option("--autolog", help="Log the run to MLflow (MLFLOW_TRACKING_URI).")] = False,
    executors: Annotated[int, typer.Option(min=1)] = 1,
    executor_cores: Annotated[int, typer.Option(min=1)] = 2,
    executor_memory: Annotated[str, typer.Option(help="As Spark writes it: 4g.")] = "1g",
    ray_address: Annotated[str | None, typer.Option(help="Ray cluster to join: auto, or host:port.")] = None,
    conf: Annotated[list[str] | None, typer.Option(help="Spark setting, key=value; may be repeated.")] = None,
    jars: Annotated[str | None, typer.Option(help="Jars for Spark, comma-separated: Delta's, offline.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout, and nothing else.")] = False,
) -> None:
    """Run a saved pipeline over files and write its rows with their answers."""
    began = time.monotonic()
    _heed_sigterm()
    target = output_kind or kind
    try:
        settings = _checked(pipeline, source, output, {kind, target}, overwrite, conf or [], jars)
        session = {
            "executors": executors,
            "executor_cores": executor_cores,
            "executor_memory": executor_memory,
            "ray_address": ray_address,
            "conf": settings,
        }
        told = _run(pipeline, (source, kind), (output, target), overwrite=overwrite, track=track, session=session)
    except Exception as exc:
        words = str(exc) if isinstance(exc, PlatformPluginError) else str(exc)[:1000]
        _say("failed", {"error": type(exc).__name__, "seconds": _since(began)}, {"message": words}, as_json)
        raise
    figures = {**told, "seconds": _since(began), "output": output}
    reports = figures.pop("reports")
    _say("ok", figures, {"reports": reports}, as_json)
    if strict and told["no_answer"]:
        raise typer.Exit(NO_ANSWERS)


def _heed_sigterm() -> None:
    """Have a scheduler's stop end the session, and leave no partial output."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _checked(
    pipeline: str, source: str, output: str, kinds: set[Format], overwrite: bool, conf: list[str], jars: str | None
) -> dict[str, str]:
    """Return the session's settings; raise for all that can be known before one starts."""
    from platform_plugin import files

    for name, path in (("pipeline", pipeline), ("input", source)):
        if not _SCHEME.match(path) and not any(c in path for c in "*?[{") and not Path(path).exists():
            raise ConfigError(f"--{name} {path!r} is not there (seen from {Path.cwd()}).")
    if not _SCHEME.match(output):
        if Path(output).exists() and not overwrite:
            raise ConfigError(f"output {output!r} is there already; name another, or pass --overwrite to replace it.")
        if Path(output).absolute() == Path(source).absolute():
            raise ConfigError(f"output {output!r} is the input, which would be lost; name another.")
    pairs = [text.partition("=") for text in conf]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise ConfigError(f"--conf {key!r} has no value; write it as in --conf spark.sql.shuffle.partitions=16.")
    return files.settings({str(kind) for kind in kinds}, jars) | {key: value for key, _, value in pairs}


def _run(
    pipeline: str,
    source: tuple[str, str],
    output: tuple[str, str],
    *,
    overwrite: bool,
    track: bool,
    session: Mapping[str, Any],
) -> dict[str, Any]:
    """Read, transform and write in a session that ends with it, and return the figures."""
    from platform_plugin import files, tracking
    from platform_plugin.answers import release_answers
    from platform_plugin.session import spark_on_ray
    from platform_plugin.tracking import loading, references
    from platform_plugin.tracking.models import output_columns

    if track:
        tracking.autolog()
    # A model that cannot be had is known before a session starts.
    found = str(loading.fetch(pipeline)) if loading.is_mlflow(pipeline) else pipeline
    with spark_on_ray("predict", **session) as spark:
        _heed_sigterm()  # Ray and RayDP have put handlers of their own in its place
        model = loading.load_pipeline(found)
        frame = files.read(spark, *source)
        if not overwrite:
            files.check_absent(spark, output[0])
        files.rehearse(spark, output_columns(model, frame.schema), *output)
        made = model.transform(frame)
        stages = list(references.own_stages(model))
        counts = _write(made, *output, overwrite=overwrite, errors=[stage.getErrorCol() for stage in stages])
        reports = [stage.lastReport for stage in stages if stage.lastReport is not None]
        release_answers(made)
        if track:
            tracking.flush()
    return {
        **counts,
        "requests": sum(report.distinct for report in reports),
        "output_tokens": sum(report.output_tokens for report in reports),
        "reports": [report.to_dict() for report in reports],
    }


def _write(made: DataFrame, path: str, kind: str, *, overwrite: bool, errors: list[str]) -> dict[str, int]:
    """Write the rows, counting them on their way."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from platform_plugin import files
    from platform_plugin.schema import column

    present = [column(name).isNotNull() for name in errors if name in made.columns]
    bad = F.greatest(F.lit(False), F.lit(False), *present).cast("int")
    seen = Observation()
    files.write(
        made.observe(seen, F.count(F.lit(1)).alias("rows"), F.sum(bad).alias("no_answer")),
        path,
        kind,
        overwrite=overwrite,
    )
    return {name: int(value or 0) for name, value in seen.get.items()}


def _say(status: str, figures: dict[str, Any], more: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"status": status, **figures, **more}))
    else:
        typer.echo(" ".join(["predict", status, *(f"{name}={value}" for name, value in figures.items())]))


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)
