"""One pass over the rows: statistics of every model and metric, summed over all rows, slices and resamples.

Runs on executors, in Arrow batches; what comes to the driver is one value a model, metric and resample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from platform_plugin.evaluation.resampling import weights
from platform_plugin.measure import COLUMNS, Mean
from platform_plugin.metrics import Metric

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Values = npt.NDArray[np.float64]
Place = tuple[str, int, int, int, str]
"""Kind ("all", "count", "slice", "rows", "pair"), model, metric, slicing and its value; -1 where there is none."""

_ROWS = 512
"""Rows at once: with 1,000 resamples, 4 MB of weights."""

PARTIAL = "kind string, model int, metric int, slicing int, value string, sums binary"
DONE = "kind string, model int, metric int, slicing int, value string, values array<double>"


@dataclass(frozen=True)
class Sums:
    """What a pass found.

    Args:
        rows: how many.
        values: (model, metric) -> the value over all rows, then one a resample; (1 + resamples,).
        slices: slicing -> its value -> rows.
        sliced: (model, metric, slicing) -> the slicing's value -> the metric's.
        counts: (model, metric) -> rows that have a value; of a `Mean` only.
        pairs: (model, metric) -> rows in which the model is better than the baseline, equal, worse; of a `Mean` only.
    """

    rows: int
    values: dict[tuple[int, int], Values]
    slices: dict[int, dict[str, int]] = field(default_factory=dict)
    sliced: dict[tuple[int, int, int], dict[str, float]] = field(default_factory=dict)
    counts: dict[tuple[int, int], int] = field(default_factory=dict)
    pairs: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """What to sum. Picklable; runs on the driver (`run`) and on executors.

    Args:
        metrics: of each model, all of the same names, bound.
        resamples: 0 for none.
        baseline: the model that the others are paired with; None for none.
        slicings: how many columns the rows are sliced by.
    """

    metrics: Sequence[Sequence[Metric]]
    resamples: int = 0
    baseline: int | None = None
    slicings: int = 0

    def run(self, frame: DataFrame) -> Sums:
        """Return the sums of a frame: `seed` and `times` (long), `label` and `human` (string), `slices`
        (array<string>) and `models` (array of structs with the other fields of COLUMNS), one a model.
        """
        partial = frame.mapInArrow(_over(self.partials), PARTIAL)
        # A sum of resamples is megabytes where classes are many: added up on executors, never on the driver.
        keyed = partial.repartition("kind", "model", "metric", "slicing", "value")
        return self._read(keyed.mapInArrow(_over(self.totals), DONE).collect())

    def partials(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the sums of one partition."""
        sums: dict[Place, Values] = {}
        for batch in batches:
            for start in range(0, batch.num_rows, _ROWS):
                self._add(batch.slice(start, _ROWS), sums)
        for place, values in sums.items():
            yield _record(place, "sums", values.astype(np.float64).tobytes(), pa.binary())

    def totals(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the values of the places of one partition, from the sums of all."""
        sums: dict[Place, Values] = {}
        for batch in batches:
            for row in batch.to_pylist():
                place = (row["kind"], row["model"], row["metric"], row["slicing"], row["value"])
                values = np.frombuffer(row["sums"], dtype=np.float64)
                sums[place] = sums[place] + values if place in sums else values
        for place, flat in sums.items():
            kind, model, metric = place[:3]
            if kind == "all":
                resampled = flat.reshape(1 + self.resamples, -1)
                flat = self.metrics[model][metric].finish(resampled)
                if isinstance(self.metrics[model][metric], Mean):
                    counted = ("count", model, metric, -1, "")
                    yield _record(counted, "values", [float(resampled[0, 1])], pa.list_(pa.float64()))
            elif kind == "slice":
                flat = self.metrics[model][metric].finish(flat)[None]
            yield _record(place, "values", flat.tolist(), pa.list_(pa.float64()))

    def _add(self, batch: pa.RecordBatch, sums: dict[Place, Values]) -> None:
        times = batch.column("times").to_numpy()
        tables = [model_table(batch, model) for model in range(len(self.metrics))]
        found = {
            (model, place): metric.statistics(table)
            for model, table in enumerate(tables)
            for place, metric in enumerate(self.metrics[model])
        }
        _plus(sums, ("rows", -1, -1, -1, ""), np.array([float(times.sum())]))
        self._add_all(batch, times, found, sums)
        for slicing in range(self.slicings):
            self._add_slices(batch, slicing, times, found, sums)
        if self.baseline is not None:
            self._add_pairs(times, found, sums)

    def _add_all(self, batch: pa.RecordBatch, times: Any, found: dict[Any, Values], sums: dict[Place, Values]) -> None:
        side_by_side = np.concatenate(list(found.values()), axis=1)
        whole = (times.astype(np.float64) @ side_by_side)[None]
        if self.resamples:
            weighed = weights(batch.column("seed").to_numpy(), times, self.resamples)
            whole = np.concatenate([whole, weighed.T @ side_by_side])
        start = 0
        for (model, metric), statistics in found.items():
            end = start + statistics.shape[1]
            _plus(sums, ("all", model, metric, -1, ""), whole[:, start:end].ravel())
            start = end

    def _add_slices(
        self, batch: pa.RecordBatch, slicing: int, times: Any, found: dict[Any, Values], sums: dict[Place, Values]
    ) -> None:
        of_row = [values[slicing] for values in batch.column("slices").to_pylist()]
        groups, code = np.unique(np.array(of_row, dtype=object).astype(str), return_inverse=True)
        member = (code[None] == np.arange(len(groups))[:, None]) * times.astype(np.float64)
        for group, rows in zip(groups, member.sum(axis=1), strict=True):
            _plus(sums, ("rows", -1, -1, slicing, str(group)), np.array([rows]))
        for (model, metric), statistics in found.items():
            for group, values in zip(groups, member @ statistics, strict=True):
                _plus(sums, ("slice", model, metric, slicing, str(group)), values)

    def _add_pairs(self, times: Any, found: dict[Any, Values], sums: dict[Place, Values]) -> None:
        for (model, place), statistics in found.items():
            metric = self.metrics[model][place]
            # Of what is no mean of rows, such as an F1 over classes, one row's value says nothing.
            if model == self.baseline or not isinstance(metric, Mean):
                continue
            difference = metric.finish(statistics) - metric.finish(found[self.baseline, place])
            if metric.better == "lower":
                difference = -difference
            sides = (difference > 1e-12, np.abs(difference) <= 1e-12, difference < -1e-12)  # NaN is none of them
            counts = np.array([float(times[side].sum()) for side in sides])
            _plus(sums, ("pair", model, place, -1, ""), counts)

    def _read(self, rows: list[Any]) -> Sums:
        slices: dict[int, dict[str, int]] = defaultdict(dict)
        sliced: dict[tuple[int, int, int], dict[str, float]] = defaultdict(dict)
        made = Sums(0, {}, slices, sliced)
        total = 0
        for row in rows:
            kind, model, metric, slicing, value, values = row
            if kind == "all":
                made.values[model, metric] = np.array(values)
            elif kind == "slice":
                sliced[model, metric, slicing][value] = values[0]
            elif kind == "count":
                made.counts[model, metric] = int(values[0])
            elif kind == "pair":
                made.pairs[model, metric] = (int(values[0]), int(values[1]), int(values[2]))
            elif slicing >= 0:
                slices[slicing][value] = int(values[0])
            else:
                total = int(values[0])
        return Sums(total, made.values, dict(slices), dict(sliced), made.counts, made.pairs)


def model_table(batch: pa.RecordBatch, model: int) -> pa.Table:
    """Return the columns of COLUMNS for one model."""
    column = batch.column("models")
    answers = column.flatten().take(pa.array(np.arange(model, len(column.flatten()), _width(column, batch.num_rows))))
    made = {}
    for name in COLUMNS.names:
        values = batch.column(name) if name in ("label", "human") else answers.field(name)
        made[name] = values.cast(COLUMNS.field(name).type)
    return pa.table(made)


def _width(column: pa.ListArray, rows: int) -> int:
    """Return the models of a row: all rows have as many."""
    return max(1, len(column.flatten()) // max(1, rows))


def _plus(sums: dict[Place, Values], place: Place, values: Values) -> None:
    if place in sums:
        sums[place] += values
    else:
        sums[place] = np.array(values, dtype=np.float64)


def _record(place: Place, name: str, value: Any, kind: pa.DataType) -> pa.RecordBatch:
    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("model", pa.int32()),
            ("metric", pa.int32()),
            ("slicing", pa.int32()),
            ("value", pa.string()),
            (name, kind),
        ]
    )
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, (*place, value), strict=True))], schema=schema)


def _over(step: Callable[..., Iterator[pa.RecordBatch]]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow, which looks at the name of what it is given."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from step(batches)

    return run
