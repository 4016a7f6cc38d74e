"""The rows that the report shows: those gained and lost against the baseline, and the worst ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from platform_plugin.evaluation.finding import Findings
from platform_plugin.evaluation.result import EvaluationResult
from platform_plugin.evaluation.rows import CHANGED
from platform_plugin.evaluation.units import shown


def changed(findings: Findings, result: EvaluationResult) -> list[dict[str, Any]]:
    """Return, for each model but the baseline, the rows that the first metric has better or worse; see `_line`."""
    metric = next(iter(result.units))
    counted = {c.model: c for c in result.comparisons if c.metric == metric and c.wins is not None}
    made = []
    for place, name in enumerate(findings.names):
        found = findings.changed(place) if name in counted else []
        if not found:
            continue
        lines = [
            {
                **_line(findings, row),
                "kind": "gained" if row["gain"] > 0 else "lost",
                "other": _said(row["other"]),
                "other_error": row["other"]["error"],
            }
            for row in found
        ]
        wins, losses = counted[name].wins or 0, counted[name].losses or 0
        more = f"; {CHANGED} of each at most, the largest differences first" if max(wins, losses) > CHANGED else ""
        caption = f"{metric}: {wins:,} rows are better and {losses:,} worse than with {result.baseline}{more}."
        made.append({"model": name, "lines": lines, "caption": caption})
    return made


def worst(findings: Findings, result: EvaluationResult) -> list[dict[str, Any]]:
    """Return, for each model, the rows with the worst values of the first metric; see `_line`."""
    metric, unit = next(iter(result.units.items()))
    made = []
    for place, name in enumerate(findings.names):
        found = findings.worst(place)
        if not found:
            continue
        lines = [{**_line(findings, row), "score": shown(row["score"], unit)} for row in found]
        if len({row["score"] for row in found}) == 1:
            caption = (
                f"{len(found)} of the rows with {metric} {lines[0]['score']}, the worst there is; chosen by a hash of "
                "their keys, in no order."
            )
        else:
            side = "highest" if result.better[metric] == "lower" else "lowest"
            caption = f"The {len(found)} rows with the {side} {metric}; equal ones by a hash of their keys."
        made.append({"model": name, "metric": metric, "lines": lines, "caption": caption})
    return made


def _line(findings: Findings, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's key, label, what was asked, what was answered, and the error."""
    known = {findings.plan.label, *(c.column for c in findings.plan.candidates)}
    data = {k: v for k, v in (row["data"] or {}).items() if v is not None and k not in known}
    # One column needs no name: it is the text that was asked.
    asked = "\n".join(data.values() if len(data) == 1 else [f"{k}: {v}" for k, v in data.items()])
    answer = row["answer"]
    return {
        "key": row["key"],
        "label": row["label"] or "-",
        "asked": asked,
        "said": _said(answer),
        "error": answer["error"],
    }


def _said(answer: Mapping[str, Any]) -> str:
    said: str = answer["prediction"] if not answer["failed"] else f"({answer['error']})"
    return said
