"""What most metrics share: the columns they read, the check of their kinds, and the mean of a value a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.errors import SchemaError

Values = npt.NDArray[np.float64]

COLUMNS = pa.schema(
    [
        ("label", pa.string()),
        ("prediction", pa.string()),
        ("failed", pa.bool_()),
        ("prompt_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("judge", pa.float64()),
        ("human", pa.string()),
    ]
)
"""What a metric may read of a row. Labels and predictions come as text, whatever their type; `failed` rows have no
prediction; tokens and seconds are null where they are not known; `judge` is a judge's score, `human` a person's."""

_ABSENT = {
    "label": "it compares with a label; name the column: label=...",
    "prompt_tokens": "it needs the tokens of each row; predict with an LLM stage, whose detailsCol has them",
    "output_tokens": "it needs the tokens of each row; predict with an LLM stage, whose detailsCol has them",
    "seconds": "it needs the seconds of each row; predict with an LLM stage, whose detailsCol has them",
    "judge": "it is a judge's; pass judge=LLMJudge(...)",
    "human": "it compares a judge with people; set humanCol of the judge",
}
_REMEDY = {
    "struct": "name a field of it, as in 'prediction.intent'",
    "number": "cast the column to string, or take accuracy or macro_f1",
    "boolean": "cast the column to string, or take accuracy or macro_f1",
}


@dataclass(frozen=True)
class Facts:
    """What is known of a model before its answers are read.

    Args:
        model: what answers, as a stage's `model` names it; None for an existing column.
        classes: the distinct labels, sorted.
        prices: the price table; None for the project's own.
    """

    model: str | None = None
    classes: tuple[str, ...] = ()
    prices: Path | None = None


class Measure:
    """A metric's check of its columns. Runs on: driver."""

    name: ClassVar[str]
    better: ClassVar[str] = "higher"
    unit: str = "share"
    needs_classes: ClassVar[bool] = False
    tested: ClassVar[bool] = True
    """False where the values are of the run's load and not of the model: a difference is told, without a verdict."""
    basis: str = ""
    """What a value is computed by beside the rows, such as a price; for the report."""
    takes: ClassVar[Mapping[str, tuple[str, ...]]] = {"label": ("text",), "prediction": ("text",)}
    """Column -> the kinds that it may have."""

    def check(self, kinds: Mapping[str, str]) -> None:
        """Raise SchemaError for a column that is absent or of a kind that is not taken."""
        for column, wanted in self.takes.items():
            kind = kinds.get(column)
            if kind is None:
                raise SchemaError(f"metric {self.name!r}: {_ABSENT[column]}.")
            if kind not in wanted:
                remedy = _REMEDY.get(kind, "cast the column to string")
                raise SchemaError(
                    f"metric {self.name!r} takes a {column} of {' or '.join(wanted)}, not {kind}; {remedy}."
                )

    def bind(self, facts: Facts) -> Self:  # noqa: ARG002
        """Return the metric itself: most need to know nothing."""
        return self


class Mean(Measure):
    """The mean of one value a row, over the rows that have one."""

    def values(self, batch: pa.Table) -> Values:
        """Return the value of each row, (rows,); NaN for a row that is left out. To be defined by the metric."""
        raise NotImplementedError

    def statistics(self, batch: pa.Table) -> Values:
        """Return sum and count."""
        values = np.asarray(self.values(batch), dtype=np.float64)
        known = ~np.isnan(values)
        return np.stack([np.where(known, values, 0.0), known.astype(np.float64)], axis=1)

    def finish(self, sums: Values) -> Values:
        """Return the means."""
        return ratio(sums[..., 0], sums[..., 1])


def ratio(above: Values, below: Values) -> Values:
    """Return above / below, NaN where that is 0 / 0 or x / 0."""
    above, below = np.asarray(above, dtype=np.float64), np.asarray(below, dtype=np.float64)
    quotient: Values = np.divide(above, below, out=np.full(np.broadcast(above, below).shape, np.nan), where=below != 0)
    return quotient


def numbers(batch: pa.Table, column: str) -> Values:
    """Return a column as float64, NaN for nulls."""
    made: Values = np.asarray(pc.cast(batch.column(column), pa.float64()).to_numpy(), dtype=np.float64)
    return made


def texts(batch: pa.Table, column: str) -> list[str | None]:
    """Return a column of text as a list."""
    made: list[Any] = batch.column(column).to_pylist()
    return made


def labelled(batch: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows have a label; the others are left out of what compares with it."""
    made: npt.NDArray[np.bool_] = np.asarray(pc.is_valid(batch.column("label")).to_numpy(), dtype=bool)
    return made
