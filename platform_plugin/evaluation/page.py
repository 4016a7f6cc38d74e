"""The HTML report: one file that needs nothing beside it. What it says is in the result; how it looks, in page.html."""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_plugin.evaluation import examples
from platform_plugin.evaluation.comparison import Comparison, Interval
from platform_plugin.evaluation.finding import Findings
from platform_plugin.evaluation.result import EvaluationResult
from platform_plugin.evaluation.summary import best, sentences, subject
from platform_plugin.evaluation.units import difference, interval, p_text, said, shown
from platform_plugin.metrics import Metric

_MOST_SLICES = 50
_CAPTIONS = {
    "Metrics": "Bars are over all rows, the lines on them 95 % intervals, a broken line what always giving the most "
    "frequent label would reach. \u2191 higher is better, \u2193 lower is better.",
    "Wins and losses": "Row by row: where the model is better than the baseline, as good, or worse.",
    "Confusion": "Rows of each label (how many) by what was predicted; framed where that is right; the shade is the "
    "share of the label's rows. (none) is no class, or no prediction.",
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
    pictures = [
        (title, _CAPTIONS[title], base64.b64encode(path.read_bytes()).decode()) for title, path in plots.items()
    ]
    return environment.get_template("page.html").render(
        result=result,
        made=f"{datetime.datetime.now():%d %B %Y, %H:%M}",
        subject=subject(result),
        sentences=sentences(result),
        head={metric: "" if said(unit) == metric else said(unit) for metric, unit in result.units.items()},
        about={name: _about(metric) for name, metric in findings.plan.metrics.items()},
        notes=" ".join(_notes(findings, result)),
        lines=_lines(result),
        comparisons=[_comparison(c, result) for c in result.comparisons],
        slices=_slices(result),
        labels=_labels(findings),
        answered=findings.names,
        most_slices=_MOST_SLICES,
        pictures=pictures,
        constant=_constant(result),
        changed=examples.changed(findings, result),
        worst=examples.worst(findings, result),
        texts=log_samples,
        models=[(m, _params(m.params)) for m in result.models],
        duration=_duration,
    )


def _about(metric: Metric) -> str:
    """Return what a metric is, in the words of its class."""
    return " ".join((type(metric).__doc__ or "").strip().split("\n\n")[0].split()).replace("``", "")


def _notes(findings: Findings, result: EvaluationResult) -> list[str]:
    """Return what is to be known of the values in the summary."""
    made = []
    if result.constant is not None and result.constant.values:
        made.append(f"{result.constant.name} is no model: what its answer, given to every row, would reach.")
    if any(found.low != found.high and found.value in (0, 1) for m in result.models for found in m.values.values()):
        made.append("Where all rows are alike, the interval is the exact one of so many rows.")
    timed = [name for name, m in findings.plan.metrics.items() if "seconds" in getattr(m, "takes", {})]
    if timed:
        verb = "is" if len(timed) == 1 else "are"
        made.append(
            f"{' and '.join(timed)} {verb} measured with other requests in flight, one model after the other: the "
            "load of this run as much as the model, and so not tested."
        )
    return made


def _lines(result: EvaluationResult) -> list[dict[str, Any]]:
    bold = best(result)
    made = []
    for model in result.models:
        cells = []
        for metric, unit in result.units.items():
            value, ends = interval(model.values.get(metric, Interval(math.nan)), unit)
            cells.append({"value": value, "interval": ends, "best": bold.get(metric) == model.name})
        made.append({"model": model, "cells": cells, "baseline": model.name == result.baseline})
    return made


def _constant(result: EvaluationResult) -> dict[str, Any] | None:
    """Return the line of always answering the most frequent label; None where no metric compares with labels."""
    found = result.constant
    if found is None or not found.values:
        return None
    cells = [shown(found.values[m], unit) if m in found.values else "" for m, unit in result.units.items()]
    return {"name": found.name, "rows": f"{found.rows:,} of {found.labelled:,} rows", "cells": cells}


def _comparison(c: Comparison, result: EvaluationResult) -> dict[str, Any]:
    value, ends = difference(c.difference, result.units[c.metric])
    number, _, unit = value.partition(" ")
    return {
        "model": c.model,
        "metric": c.metric,
        "difference": number,
        "unit": unit,
        "interval": ends or "-",
        "p": "-" if math.isnan(c.p) else f"{c.p:.3f}",
        "p_holm": p_text(c) or "-",
        "verdict": c.verdict,
        "kind": c.verdict.replace(" ", "-"),
        "rows": "-" if c.wins is None else f"{c.wins:,} / {c.ties:,} / {c.losses:,}",
    }


def _labels(findings: Findings) -> list[dict[str, Any]]:
    """Return the labels, the most frequent first: rows, and of each model the share that it has right and its answers.

    Both, as one alone misleads: who always gives a label has all its rows right.
    """
    made = []
    for place, label in enumerate(findings.facts.classes if findings.confusions else ()):
        rows, cells = sum(findings.confusions[0][place]), []
        for counts in findings.confusions:
            hits, said = counts[place][place], sum(line[place] for line in counts)
            right = f"{shown(hits / said, 'share')} of them right" if said else "never"
            cells.append({"right": shown(hits / max(1, rows), "share"), "said": f"{said:,}", "of_them": right})
        made.append({"value": label, "rows": rows, "cells": cells})
    return sorted(made, key=lambda one: (-one["rows"], one["value"]))


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


def _params(params: Mapping[str, Any]) -> dict[str, str]:
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in params.items()}


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
