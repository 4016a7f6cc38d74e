"""Rows as dicts through a UDF's function, on an actor: what Spark does around it, as far as a row needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.types import DataType

from platform_plugin.named_udf import BATCH, ITERATOR
from platform_plugin.schema import ERROR, ERROR_TYPE
from platform_plugin.udf.guarded import OUTPUT, GuardedBatch, GuardedRow

Answers = list[tuple[Any, dict[str, Any] | None]]
"""(output, error) of each row, as ``Row.asDict(recursive=True)`` would give them."""


@dataclass(frozen=True)
class UdfRows:
    """Calls a UDF's function on rows. Runs on: Ray actor.

    Args:
        kind: Spark's number for how the function is called.
        inputs: names of the function's columns.
        fields: of the struct that it returns as a frame.
    """

    function: Any
    kind: int
    inputs: tuple[str, ...]
    output: DataType
    fields: tuple[str, ...]

    def __call__(self, rows: list[dict[str, Any]]) -> Answers:
        """Return the answers in the order of the rows; where a function has no rows, what it raises is raised."""
        if self.kind not in (BATCH, ITERATOR):
            return [self._row(row) for row in rows]
        columns = [series([row[name] for row in rows]) for name in self.inputs]
        if self.kind == ITERATOR:
            return self._iterator(columns)
        frame = GuardedBatch(self.function, fields=self.fields)(*columns)
        errors = list(frame.pop(ERROR))
        values = frame.to_dict("series")
        found = {name: values[name] for name in self.fields} if self.fields else values[OUTPUT]
        return list(zip(self._values(found, errors), errors, strict=True))

    def _row(self, row: dict[str, Any]) -> tuple[Any, dict[str, Any] | None]:
        value, error = GuardedRow(self.function)(*(row[name] for name in self.inputs))
        return as_spark_takes(value, self.output), dict(zip(ERROR_TYPE.names, error, strict=True)) if error else None

    def _iterator(self, columns: list[Any]) -> Answers:
        import pandas as pd

        found = list(self.function(iter([columns[0] if len(columns) == 1 else tuple(columns)])))
        whole = pd.concat(found, ignore_index=True)
        if isinstance(whole, pd.DataFrame):
            whole = whole.to_dict("series")
        values = self._values(whole, [None] * len(columns[0]))
        return [(value, None) for value in values]

    def _values(self, found: Any, errors: list[Any]) -> list[Any]:
        if not isinstance(found, dict):
            return python_values(found, self.output)
        kinds = {f.name: f.dataType for f in self.output} if isinstance(self.output, t.StructType) else {}
        columns = [python_values(column, kinds[name]) for name, column in found.items() if name in kinds]
        names = [name for name in found if name in kinds]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return [row if error is None else None for row, error in zip(rows, errors, strict=True)]


def series(values: list[Any]) -> Any:
    """Return values as the column that Spark would give a pandas UDF: a frame where they are dicts."""
    import pandas as pd

    if any(isinstance(value, dict) for value in values):
        return pd.DataFrame([value or {} for value in values])
    return pa.array(values).to_pandas(date_as_object=True)


def python_values(column: Any, kind: DataType) -> list[Any]:
    """Return a column as Spark converts it to `kind`, as plain Python values."""
    from pyspark.sql.pandas.types import to_arrow_type

    wanted = to_arrow_type(kind)
    mask = None if hasattr(column.array, "__arrow_array__") else column.isnull()
    values: list[Any] = pa.Array.from_pandas(column, mask=mask, type=wanted, safe=False).to_pylist()
    return values


_TAKES: dict[type[DataType], tuple[type, ...]] = {
    **dict.fromkeys([t.ByteType, t.ShortType, t.IntegerType, t.LongType], (int,)),
    **dict.fromkeys([t.FloatType, t.DoubleType], (float,)),
    t.BooleanType: (bool,),
}


def as_spark_takes(value: Any, kind: DataType) -> Any:
    """Return a value as Spark takes it from a plain UDF: what is of another type is null, all is text for a string."""
    if value is None:
        return None
    if isinstance(kind, t.StringType):
        return value if isinstance(value, str) else str(value)
    takes = _TAKES.get(type(kind))
    if takes is not None:
        return value if isinstance(value, takes) and (takes == (bool,) or not isinstance(value, bool)) else None
    if isinstance(kind, t.ArrayType) and isinstance(value, list | tuple):
        return [as_spark_takes(one, kind.elementType) for one in value]
    if isinstance(kind, t.StructType):
        if isinstance(value, dict):
            return {f.name: as_spark_takes(value.get(f.name), f.dataType) for f in kind}
        return {f.name: as_spark_takes(one, f.dataType) for f, one in zip(kind, value, strict=True)}
    return value
