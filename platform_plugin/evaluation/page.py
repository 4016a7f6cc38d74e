"""The HTML report: one file that needs nothing beside it. What it says is in the result; how it looks, in page.html."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_plugin.evaluation.comparison import Comparison
from platform_plugin.evaluation.finding import Findings
from platform_plugin.evaluation.result import EvaluationResult, shown

_MOST_SLICES = 50
_CAPTIONS = {
    "Metrics": "Bars are over all rows; the lines are 95 % intervals.",
    "Wins and losses": "Row by row: where the model is better than the baseline, as good, or worse.",
    "Confusion": "Rows of each label by what was predicted; (none) is no class, or no prediction.",
    "Length of the answers": "",
    "Latency": "From when the engine took the request to its answer, with others in flight.",
}


def render(findings: Findings, result: EvaluationResult, plots: Mapping[str, Path], log_samples: bool) -> str:
    """Return the page.

    Args:
        plots: title -> PNG file; they go into the page.
        log_samples: whether the worst rows are shown with their text, or by their keys.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.0f} %"
    pictures = [
        (title, _CAPTIONS[title], base64.b64encode(path.read_bytes()).decode()) for title, path in plots.items()
    ]
    return environment.get_template("page.html").render(
        result=result,
        made=f"{datetime.datetime.now():%d %B %Y, %H:%M}",
        sentences=[_sentence(c, result) for c in _told_first(result)],
        head=list(result.units),
        lines=_lines(result),
        comparisons=[_comparison(c, result) for c in result.comparisons],
        slices=_slices(result),
        most_slices=_MOST_SLICES,
        pictures=pictures,
        worst=_worst(findings, result),
        texts=log_samples,
        models=[(m, _params(m.params)) for m in result.models],
        duration=_duration,
    )


def _told_first(result: EvaluationResult) -> list[Comparison]:
    """Return the comparisons that say something, or where none does, those of the first metric."""
    saying = [c for c in result.comparisons if c.verdict in ("better", "worse")]
    first = next(iter(result.units))
    return saying or [c for c in result.comparisons if c.metric == first]


def _sentence(c: Comparison, result: EvaluationResult) -> dict[str, str]:
    unit = result.units[c.metric]
    value, low, high = (shown(v, unit, sign=True) for v in (c.difference.value, c.difference.low, c.difference.high))
    what = {"better": "is better than", "worse": "is worse than"}.get(c.verdict, "is not shown to differ from")
    return {
        "verdict": c.verdict.replace(" ", "-"),
        "text": f"{c.model} {what} {c.baseline} in {c.metric}: {value} ({low} to {high}).",
    }


def _lines(result: EvaluationResult) -> list[dict[str, Any]]:
    best: dict[str, float] = {}
    for metric, side in result.better.items():
        found = [m.values[metric].value for m in result.models if metric in m.values]
        known = [v for v in found if not math.isnan(v)]
        if len(known) > 1 and side != "neither" and len(set(known)) > 1:
            best[metric] = max(known) if side == "higher" else min(known)
    made = []
    for model in result.models:
        cells = []
        for metric, unit in result.units.items():
            one = model.values.get(metric)
            if one is None:
                cells.append({"value": "-", "interval": "", "best": False})
                continue
            interval = "" if math.isnan(one.low) else f"{shown(one.low, unit)} to {shown(one.high, unit)}"
            cells.append({"value": shown(one.value, unit), "interval": interval, "best": best.get(metric) == one.value})
        made.append({"model": model, "cells": cells, "baseline": model.name == result.baseline})
    return made


def _comparison(c: Comparison, result: EvaluationResult) -> dict[str, Any]:
    unit = result.units[c.metric]
    return {
        "model": c.model,
        "metric": c.metric,
        "difference": shown(c.difference.value, unit, sign=True),
        "interval": f"{shown(c.difference.low, unit, sign=True)} to {shown(c.difference.high, unit, sign=True)}",
        "p": "-" if math.isnan(c.p_holm) else f"{c.p_holm:.3f}",
        "verdict": c.verdict,
        "kind": c.verdict.replace(" ", "-"),
        "rows": f"{c.wins:,} / {c.ties:,} / {c.losses:,}",
    }


def _slices(result: EvaluationResult) -> dict[str, list[dict[str, Any]]]:
    """Return column -> its slices, the largest first: value, rows, and model -> a cell a metric."""
    made: dict[str, list[dict[str, Any]]] = {}
    for one in result.slices:
        cells = {
            model: [shown(values[metric], unit) for metric, unit in result.units.items()]
            for model, values in one.values.items()
        }
        made.setdefault(one.column, []).append({"value": one.value, "rows": f"{one.rows:,}", "cells": cells})
    return made


def _worst(findings: Findings, result: EvaluationResult) -> list[dict[str, Any]]:
    metric = next(iter(result.units))
    known = {findings.plan.label, *findings.plan.key, *(c.column for c in findings.plan.candidates)}
    made = []
    for place, name in enumerate(findings.names):
        lines = []
        for row in findings.worst(place):
            answer = row["answer"]
            data = {k: v for k, v in (row["data"] or {}).items() if v is not None and k not in known}
            # One column needs no name: it is the text that was asked.
            asked = "\n".join(data.values() if len(data) == 1 else [f"{k}: {v}" for k, v in data.items()])
            said = answer["prediction"] if not answer["failed"] else f"({answer['error']})"
            lines.append(
                {
                    "key": row["key"],
                    "label": row["label"] or "-",
                    "said": said,
                    "asked": asked,
                    "error": answer["error"],
                    "score": shown(row["score"], result.units[metric]),
                }
            )
        made.append({"model": name, "metric": metric, "lines": lines})
    return made


def _params(params: Mapping[str, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in params.items()}


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
