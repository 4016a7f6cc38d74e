"""Columns as arrays for a model, and its arrays as columns again: what fits, and what is told of what does not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from platform_plugin.errors import SchemaError, UdfContractError
from platform_plugin.predictors import as_mapping

Array = np.ndarray[Any, Any]
_KINDS: dict[type[DataType], tuple[str, str]] = {
    **dict.fromkeys([t.ByteType, t.ShortType, t.IntegerType, t.LongType], ("iu", "whole numbers")),
    **dict.fromkeys([t.FloatType, t.DoubleType], ("iuf", "numbers")),
    t.StringType: ("OUT", "texts"),
    t.BooleanType: ("b", "booleans"),
}
"""Spark's type -> kinds of numpy's types that are taken for it, and their name."""
_EXACT: dict[type[DataType], Any] = {
    t.ByteType: np.int8,
    t.ShortType: np.int16,
    t.IntegerType: np.int32,
    t.LongType: np.int64,
    t.FloatType: np.float32,
    t.DoubleType: np.float64,
}


def is_vector(kind: DataType) -> bool:
    """Return whether it is spark.ml's vector."""
    return type(kind).__name__ == "VectorUDT"


def check_input(name: str, kind: DataType) -> None:
    """Raise SchemaError for a type of which no array is made. Runs on: driver."""
    item = kind.elementType if isinstance(kind, t.ArrayType) else kind
    numeric = isinstance(item, t.NumericType) and not isinstance(item, t.DecimalType)
    if numeric or is_vector(kind) or isinstance(kind, t.StringType | t.BooleanType | t.BinaryType):
        return
    raise SchemaError(
        f"inputCols: column {name!r} is {kind.simpleString()}; a model takes numbers, strings, booleans, binary, "
        "arrays of numbers and spark.ml vectors.\nCast it (a decimal to double), or make columns of its fields."
    )


def stacked(name: str, rows: list[Any]) -> tuple[Array | None, dict[int, str]]:
    """Return rows of equally many numbers as one array, and what is wrong with the rows of another length.

    The length that most rows have is the right one; of two, the one that comes first. None where no row is left.
    """
    lengths = [len(row) for row in rows]
    if not rows:
        return None, {}
    right, _ = Counter(lengths).most_common(1)[0]
    wrong = {
        place: f"column {name!r} has {length} numbers where the rows beside it have {right}"
        for place, length in enumerate(lengths)
        if length != right
    }
    return np.stack([np.asarray(row) for row, length in zip(rows, lengths, strict=True) if length == right]), wrong


@dataclass(frozen=True)
class Wanted:
    """What a model is to give: one array, or one for each field of a struct."""

    model: str
    name: str
    output: DataType

    @property
    def fields(self) -> dict[str, DataType]:
        """Names and types of the columns that it is to give."""
        if isinstance(self.output, t.StructType):
            return {field.name: field.dataType for field in self.output}
        return {self.name: self.output}

    def columns(self, found: Any, rows: int) -> dict[str, Array]:
        """Return a model's answer as checked arrays. Raises UdfContractError, which names what came and was wanted."""
        mapping = as_mapping(found)
        given: dict[str, Any]
        if isinstance(self.output, t.StructType):
            if mapping is None:
                raise self._wrong(f"gave a {type(found).__name__}", f"a dict of arrays {sorted(self.fields)}")
            missing = [name for name in self.fields if name not in mapping]
            if missing:
                raise self._wrong(f"gave {sorted(map(str, mapping))}", f"also {missing}")
            given = {name: mapping[name] for name in self.fields}
        else:
            if mapping is not None and len(mapping) != 1 and self.name not in mapping:
                raise self._wrong(f"gave {sorted(map(str, mapping))}", "one array, or a dict of one")
            if mapping is not None:
                found = mapping[self.name] if self.name in mapping else next(iter(mapping.values()))
            given = {self.name: found}
        return {name: self._array(name, value, rows) for name, value in given.items()}

    def _array(self, name: str, value: Any, rows: int) -> Array:
        kind = self.fields[name]
        array = _as_array(value, isinstance(kind, t.ArrayType))
        if array.ndim == 0 or len(array) != rows:
            came = f"an array of {len(array)}" if array.ndim else f"a {type(value).__name__}"
            raise self._wrong(f"gave {came}{self._as(name)} for {rows} rows", f"one of {rows}")
        if array.ndim == 2 and array.shape[1] == 1 and not isinstance(kind, t.ArrayType):
            array = array[:, 0]
        if array.ndim > 1 and not isinstance(kind, t.ArrayType):
            raise self._wrong(
                f"gave an array of shape {array.shape}{self._as(name)}", f"{kind.simpleString()}, one a row"
            )
        if array.ndim == 1 and isinstance(kind, t.ArrayType) and array.dtype.kind != "O":
            raise self._wrong(
                f"gave an array of shape {array.shape}{self._as(name)}", f"{kind.simpleString()}, an array a row"
            )
        item = kind.elementType if isinstance(kind, t.ArrayType) else kind
        takes, words = _KINDS.get(type(item), ("", ""))
        # An array of objects may hold nulls; Arrow looks at them one by one.
        if takes and array.dtype.kind not in f"{takes}O":
            raise self._wrong(f"gave {array.dtype}{self._as(name)}", f"{words} for {kind.simpleString()}")
        exact = _EXACT.get(type(item))
        return array.astype(exact) if exact is not None and array.dtype.kind != "O" else array

    def _as(self, name: str) -> str:
        return f" as {name!r}" if isinstance(self.output, t.StructType) else ""

    def _wrong(self, came: str, wanted: str) -> UdfContractError:
        return UdfContractError(
            f"the model {self.model!r} {came}; wanted {wanted}.\nMend the model's predict, or change outputSchema."
        )


def _as_array(value: Any, rows_may_differ: bool) -> Array:
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        return value
    try:
        return np.asarray(value)
    except ValueError:  # a list of lists that are not equally long
        if not rows_may_differ:
            raise
        array = np.empty(len(value), dtype=object)
        array[:] = value
        return array
