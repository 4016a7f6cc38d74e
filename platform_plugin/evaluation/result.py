"""What an evaluation found: values, comparisons, slices, warnings; for people, for MLflow and as JSON."""

from __future__ import annotations

import dataclasses
import html
import json
import math
from dataclasses import dataclass, field
from typing import Any

from platform_plugin.evaluation.comparison import Comparison, Interval
from platform_plugin.evaluation.constant import Constant
from platform_plugin.evaluation.units import difference, p_text, shown, titled


@dataclass(frozen=True)
class ModelResult:
    """One model.

    Attributes:
        source: "pipeline", "column x", a URI or a folder.
        params: of its LLM stage: what it asks, and those that were set; metric -> what it is computed by.
        values: metric -> value with its 95 % interval.
        errors: rows without a prediction, by type.
        failure: why it could not be evaluated at all, else None; then it has no values.
        seconds: that it took to predict; None for an existing column. `engine_s` is what its engines took to start.
        prompt: of one row; None where it has none, or texts are not shown.
        tokens: of a row, on average, in words; "" where they are not known.
    """

    name: str
    source: str
    params: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Interval] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    failure: str | None = None
    seconds: float | None = None
    engine_s: float = 0.0
    prompt: str | None = None
    tokens: str = ""


@dataclass(frozen=True)
class SliceResult:
    """The rows that have one value in one column: how many, and model -> metric -> value."""

    column: str
    value: str
    rows: int
    values: dict[str, dict[str, float]]


@dataclass(frozen=True)
class EvaluationResult:
    """What `evaluate` returns.

    Attributes:
        data: what people call it, such as the name of its file; "" where that is not known.
        rows: of the data; `labelled` have a label.
        units: metric -> how its values are read; `better` its better side.
        models: in the order given; `model(name)` finds one.
        comparisons: of each model with the baseline, a metric each.
        slices: of `by`.
        constant: what the most frequent label would reach; None without labels, or where they are no classes.
        unmet: what was required and is not met.
        warnings: what the reader should know before believing the numbers.
        report: path of the HTML report; `results` of the rows as parquet.
        run_id: of the parent run in MLflow; None where nothing was logged there.
    """

    name: str
    rows: int
    labelled: int
    label: str | None
    baseline: str | None
    units: dict[str, str]
    better: dict[str, str]
    models: list[ModelResult]
    comparisons: list[Comparison] = field(default_factory=list)
    slices: list[SliceResult] = field(default_factory=list)
    constant: Constant | None = None
    required: list[str] = field(default_factory=list)
    unmet: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    data: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    report: str | None = None
    results: str | None = None
    run_id: str | None = None

    def model(self, name: str) -> ModelResult:
        """Return the result of a model; KeyError where there is none."""
        return {model.name: model for model in self.models}[name]

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Return model -> metric -> value, of the models that could be evaluated."""
        return {m.name: {k: v.value for k, v in m.values.items()} for m in self.models if m.failure is None}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; what is not known is null."""
        values: dict[str, Any] = _plain(dataclasses.asdict(self))
        return values

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps(self.to_dict(), allow_nan=False, ensure_ascii=False)

    def table(self) -> list[list[str]]:
        """Return the summary: a header, a line a model, and one of always answering the most frequent label."""
        head = ["model", *[titled(metric, unit) for metric, unit in self.units.items()]]
        found = {m.name: {metric: one.value for metric, one in m.values.items()} for m in self.models}
        if self.constant is not None and self.constant.values:
            found[self.constant.name] = self.constant.values
        lines = [
            [name, *(shown(values.get(metric, math.nan), unit) for metric, unit in self.units.items())]
            for name, values in found.items()
        ]
        return [head, *lines]

    def __str__(self) -> str:
        table = self.table()
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table
        ]
        told = [f"{c.model} against {c.baseline}: {self._told(c)}" for c in self.comparisons]
        failed = [f"{m.name} failed: {m.failure}" for m in self.models if m.failure]
        return "\n".join([f"{self.name}: {self.rows:,} rows", *lines, *told, *failed, *self.warnings])

    def _told(self, c: Comparison) -> str:
        value, ends = difference(c.difference, self.units[c.metric])
        beside = ", ".join(filter(None, [ends, p_text(c, "p ")]))
        return f"{c.metric} {value}{f' ({beside})' if beside else ''}: {c.verdict}"

    def _repr_html_(self) -> str:
        head, *lines = self.table()
        cells = "".join(f'<th style="text-align: left">{html.escape(cell)}</th>' for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in line) + "</tr>" for line in lines)
        lines_below = [*(f"{c.model}: {self._told(c)}" for c in self.comparisons), *self.warnings]
        told = "".join(f"<li>{html.escape(line)}</li>" for line in lines_below)
        caption = f'<caption style="text-align: left">{html.escape(self.name)}: {self.rows:,} rows</caption>'
        return f"<table>{caption}<tr>{cells}</tr>{body}</table><ul>{told}</ul>"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)
