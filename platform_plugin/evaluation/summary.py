"""An evaluation in sentences: for the head of the page, and for whoever looks at its run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from platform_plugin.evaluation.comparison import NOT_TESTED, Comparison
from platform_plugin.evaluation.result import EvaluationResult, ModelResult
from platform_plugin.evaluation.units import difference, interval, p_text, titled

_MOST_NAMES = 5
_SILENT = ("no evidence", NOT_TESTED)
"""Verdicts that say nothing of which model is better."""


@dataclass(frozen=True)
class Sentence:
    """What one comparison says, and its verdict."""

    verdict: str
    text: str


def sentences(result: EvaluationResult) -> list[Sentence]:
    """Return what is to be read first: of each model the first metric, whatever it says; then what says something."""
    first = next(iter(result.units))
    leading = [c for c in result.comparisons if c.metric == first]
    saying = [c for c in result.comparisons if c.metric != first and c.verdict not in _SILENT]
    return [_sentence(c, result.units[c.metric]) for c in [*leading, *saying]]


def description(result: EvaluationResult) -> str:
    """Return what was compared, what is not met, the sentences, the warnings and the values as markdown.

    MLflow shows the first lines only, until it is asked for more: how many warnings there are stands in the first.
    """
    count = len(result.warnings)
    warned = f"**{count} warning{'s' if count > 1 else ''}**; " if count else ""
    made = [f"{subject(result)}; {warned}**report.html** is under Artifacts."]
    said = [f"**{one.verdict}**: {one.text}" for one in sentences(result)]
    met = [f"{gate}: met" for gate in result.required] if not result.unmet else []
    for title, lines in (("Required", met), ("Not met", result.unmet), ("Found", said), ("Warnings", result.warnings)):
        if lines:
            made += ["", f"**{title}**", "", *[f"- {line}" for line in lines]]
    return "\n".join([*made, "", *_markdown(result.table())])


def model_description(result: EvaluationResult, model: ModelResult) -> str:
    """Return one model's values as markdown, each with its interval and its comparison."""
    against = {c.metric: c for c in result.comparisons if c.model == model.name}
    table = [["metric", "value", "95 % interval", *([f"against {result.baseline}", "verdict"] if against else [])]]
    for metric, found in model.values.items():
        unit = result.units[metric]
        line = [titled(metric, unit), *interval(found, unit)]
        if metric in against:
            line += [difference(against[metric].difference, unit)[0], against[metric].verdict]
        table.append(line)
    role = ", the baseline" if model.name == result.baseline else ""
    told = [f"{model.source}{role}, on {result.rows:,} rows{f' of {result.data}' if result.data else ''}"]
    return "\n".join([*told, *([f"\n{model.failure}"] if model.failure else []), "", *_markdown(table)])


def data_name(files: Sequence[str]) -> str:
    """Return what people call the data: the name of its file or folder; "" where there is none, or several."""
    # Of what Spark wrote, the folder has the name that people know; so has that of many files.
    parts = len(files) > 1 or any(PurePosixPath(file).name.startswith("part-") for file in files)
    places = {PurePosixPath(file).parent if parts else PurePosixPath(file) for file in files}
    return places.pop().name if len(places) == 1 else ""


def subject(result: EvaluationResult) -> str:
    """Return what was compared on what, in one line."""
    names = [model.name for model in result.models]
    if len(names) > _MOST_NAMES:
        who = f"{len(names)} models"
    else:
        who = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    of = "of a query on" if "query" in result.facts else "of"
    where = f" {of} {result.data}" if result.data else ""
    return f"{who} on {result.rows:,} rows{where}" + (f", label {result.label}" if result.label else "")


def best(result: EvaluationResult) -> dict[str, str]:
    """Return metric -> the model whose value is the best, where the others are behind it as far as is known.

    None is the best where the interval of another reaches its value, or its comparison is without evidence.
    """
    made = {}
    for metric, side in result.better.items():
        sign = {"higher": 1, "lower": -1}.get(side, 0)
        found = {m.name: m.values[metric] for m in result.models if metric in m.values}
        known = {name: one for name, one in found.items() if not math.isnan(one.value)}
        if not sign or len(known) < 2:
            continue
        top = max(known, key=lambda name: sign * known[name].value)
        reach = [
            max(sign * v for v in (one.value, one.low, one.high) if not math.isnan(v))
            for name, one in known.items()
            if name != top
        ]
        doubted = any(
            c.metric == metric and c.verdict in _SILENT and top in (c.model, c.baseline) for c in result.comparisons
        )
        if max(reach) < sign * known[top].value and not doubted:
            made[metric] = top
    return made


def _sentence(c: Comparison, unit: str) -> Sentence:
    value, ends = difference(c.difference, unit)
    told = {
        "better": f"{c.model} is better than {c.baseline}",
        "worse": f"{c.model} is worse than {c.baseline}",
        "different": f"{c.model} differs from {c.baseline}",
        NOT_TESTED: f"{c.model} beside {c.baseline}",
    }.get(c.verdict, f"No evidence that {c.model} differs from {c.baseline}")
    known = "; ".join(filter(None, [ends, p_text(c, "corrected p ")]))
    return Sentence(c.verdict, f"{told} in {c.metric}: {value}{f' ({known})' if known else ''}.")


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    head, *lines = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in table]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)]
