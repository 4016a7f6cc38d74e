"""``evaluate``: what is done in which order; each step lives in a module of its own."""

from __future__ import annotations

import contextlib
import datetime
import logging
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_plugin.errors import ConfigError, GateError, RunError
from platform_plugin.evaluation import answers as asking
from platform_plugin.evaluation.finding import Findings, find
from platform_plugin.evaluation.gates import failures
from platform_plugin.evaluation.plan import Plan, read_plan
from platform_plugin.evaluation.result import EvaluationResult
from platform_plugin.evaluation.runs import Runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from platform_plugin.stages.judge import LLMJudge

logger = logging.getLogger(__name__)


def evaluate(
    models: Mapping[str, Any],
    data: DataFrame,
    label: str | None = None,
    metrics: Sequence[str | Mapping[str, Any]] | None = None,
    judge: LLMJudge | None = None,
    baseline: str | None = None,
    by: str | Sequence[str] | None = None,
    *,
    key: str | Sequence[str] | None = None,
    prediction: str | None = None,
    require: Mapping[str, float | str] | None = None,
    resamples: int = 1000,
    prices: str | None = None,
    output: str | None = None,
    query: str | None = None,
    name: str | None = None,
    experiment: str | None = None,
    log_samples: bool = False,
    track: bool = True,
) -> EvaluationResult:
    """Evaluate models on one frame, compare them with a baseline, and log what was found. Runs on: driver.

    Everything is computed by Spark; only sums, counts and the rows that are shown come to the driver.

    Args:
        models: name -> a fitted PipelineModel or stage, an existing column of predictions (or a field of one), the URI
            of a logged pipeline, or the folder of a saved one.
        data: the rows; a row without a label is left out of what compares with it, one without a prediction is wrong.
        label: column with what is right.
        metrics: names of platform_plugin.metrics, or {name: options}; without any, accuracy, macro_f1 and error_rate.
        judge: an LLMJudge, asked about every prediction, or in pairs with the baseline's.
        baseline: the model that the others are compared with, row by row.
        by: columns whose values the metrics are also computed for.
        key: columns that make a row what it is; its weights in resamples come of their hash. Without any, all columns.
        prediction: the column that pipelines predict into where it is not that of the last stage, or a field of it.
        require: metric -> the least ("higher is better") or the most, or a condition: {"error_rate": "<0.01"}, and
            {"accuracy": ">constant"} for more than always answering the most frequent label would reach.
        resamples: for intervals and p-values; 0 for none.
        prices: path of a price table, for the metric cost.
        output: a new or empty folder, on storage that executors share, for the rows as parquet and the report.
        query: how the data was made, in SQL or in words; it stands in the report.
        name, experiment: of the parent run in MLflow; a name that is given must be new there.
        log_samples: whether texts of the rows go into the report and MLflow, or only their keys.
        track: whether to log to MLflow.

    Returns:
        Everything that was found; it prints as a table.

    Raises:
        ConfigError, SchemaError: what is wrong with the arguments, before any model is asked.
        GateError: what is required is not met; everything is logged before.
        RunError: a model could not be evaluated; what the others gave is logged before.

    Example:
        >>> import platform_plugin
        >>> platform_plugin.evaluate({}, None)
        Traceback (most recent call last):
        platform_plugin.errors.ConfigError: models={}: wanted a dict of name -> model, with at least one.
    """
    began = time.monotonic()
    if not models:
        raise ConfigError(f"models={models!r}: wanted a dict of name -> model, with at least one.")
    plan = read_plan(
        data.schema,
        models=models,
        label=label,
        metrics=metrics,
        judge=judge,
        baseline=baseline,
        by=by,
        key=key,
        prediction=prediction,
        require=require,
        prices=prices,
        resamples=resamples,
    )
    _check_output(output)
    runs = Runs(name or f"evaluation-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    with runs.open(experiment, given=name is not None) if track else contextlib.nullcontext():
        findings, failed = _findings(plan, data, runs, track, log_samples)
        result = findings.result(runs.name, began)
        if query:
            result.facts["query"] = query
        reached = result.constant.values if result.constant else {}
        result.unmet.extend(failures(plan.gates, result.metrics, reached))
        result.unmet.extend(f"{m.name}: it could not be evaluated" for m in result.models if m.failure and plan.gates)
        result = _keep(findings, result, output, runs, track, log_samples)
        findings.release()
        logger.info("evaluate name=%s rows=%d seconds=%.1f", result.name, result.rows, result.seconds)
        if failed:
            told = "\n".join(f"  {m.name}: {m.failure}" for m in result.models if m.failure)
            raise RunError(
                f"{len(failed)} of {len(result.models)} models could not be evaluated:\n{told}\n"
                f"What was computed is kept: report {result.report}, run {result.run_id}."
            ) from failed[0]
    if result.unmet:
        unmet = GateError(result.unmet)
        unmet.result = result
        raise unmet
    return result


def _findings(
    plan: Plan, data: DataFrame, runs: Runs, track: bool, log_samples: bool
) -> tuple[Findings, list[Exception]]:
    facts = asking.look(plan, data)
    # Numbered also where nothing is asked: the frame is then computed once.
    rows = asking.number(data)
    parts: dict[str, asking.Part] = {}
    told: dict[str, str] = {}
    failed: list[Exception] = []
    for candidate in plan.candidates:
        try:
            with runs.child(candidate.name) if track else contextlib.nullcontext():
                parts[candidate.name] = asking.ask(plan, candidate, rows, facts.rows, log_samples)
        except Exception as exc:  # whatever a user's pipeline raises: the other models have a right to their numbers
            logger.warning("evaluate model=%s failed: %s", candidate.name, exc)
            told[candidate.name] = f"{type(exc).__name__}: {exc}".strip()
            failed.append(exc)
    if plan.judge is not None and parts:
        try:
            asking.judge(plan, rows, parts)
        except Exception as exc:
            told["the judge"] = f"{type(exc).__name__}: {exc}"
            failed.append(exc)
    return find(plan, facts, rows, parts, told, log_samples), failed


def _keep(
    findings: Findings, result: EvaluationResult, output: str | None, runs: Runs, track: bool, log_samples: bool
) -> EvaluationResult:
    """Write rows, plots, JSON and report, and log them."""
    import dataclasses

    from platform_plugin.evaluation import page, plots

    local = output is None or _is_local(output)
    folder = Path(output) if output is not None and local else Path(tempfile.mkdtemp(prefix="evaluation-"))
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Path] = {}
    if output is not None:
        place = str(folder / "results") if local else f"{output.rstrip('/')}/results"
        findings.write(place, texts=True)
        result = dataclasses.replace(result, results=place)
    if track and runs.trouble is None:
        if output is None or not local or not log_samples:
            findings.write(str(folder / "logged"), texts=log_samples)
            files["results"] = folder / "logged"
        else:
            files["results"] = folder / "results"
        if not any(files["results"].glob("*.parquet")):
            del files["results"]
            result.warnings.append(
                "The executors are on other machines, and the rows that they wrote stayed there; "
                "pass output=<shared folder>."
            )
    if runs.trouble:
        result.warnings.append(runs.trouble)
    report = folder / "report.html"
    result = dataclasses.replace(result, report=str(report), run_id=runs.run_id if track else None)
    drawn = plots.draw(findings, result, folder / "plots")
    report.write_text(page.render(findings, result, drawn, log_samples), encoding="utf-8")
    (folder / "evaluation.json").write_text(result.to_json(), encoding="utf-8")
    if track:
        files.update({"": report, "plots": folder / "plots"})
        runs.log(result, files, findings.sample(log_samples))
        runs.log_json(result)
    shutil.rmtree(folder / "logged", ignore_errors=True)
    return result


def _check_output(output: str | None) -> None:
    if output is None or not _is_local(output):
        return
    folder = Path(output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"output={output!r} is there and not empty; name a new folder.")


def _is_local(path: str) -> bool:
    return "://" not in path
