"""A model as a function of columns; rows that it cannot be asked of, or raises for, are found and marked."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import DataType, StructType

from platform_plugin.arrays import Array, Wanted, stacked
from platform_plugin.engines import error_row
from platform_plugin.errors import InvalidRowsError
from platform_plugin.halving import Part, by_halves
from platform_plugin.predictors import ModelConfig, loaded
from platform_plugin.schema import ERROR
from platform_plugin.udf.counting import RunName, note

if TYPE_CHECKING:
    import pandas as pd

NULL, SHAPE = "NullInput", "BadShape"
MESSAGES = 5
Error = dict[str, Any] | None


@dataclass(frozen=True)
class ModelRows:
    """Asks a model of rows. Runs on: Ray actor.

    Args:
        inputs: the input columns, and whether each is of arrays.
        strict: raise for the first batch with a row that has no answer, and let what the model raises pass.
    """

    config: ModelConfig
    inputs: tuple[tuple[str, bool], ...]
    wanted: Wanted
    strict: bool = False
    run: RunName | None = None

    @property
    def __name__(self) -> str:
        return self.wanted.model

    def __call__(self, nulls: pd.Series, *columns: pd.Series) -> pd.DataFrame:
        """Return a frame of the wanted columns and ERROR.

        Args:
            nulls: of each row, the first input that is null; null where none is.
            columns: the inputs, with some value of the type in place of a null.
        """
        import pandas as pd

        began = time.time()
        found, errors = self.answers(list(nulls), [column.to_numpy() for column in columns])
        # A list has nulls or arrays in it; of its own accord pandas would make doubles of whole numbers beside a null.
        kinds = {name: object if isinstance(values, list) else None for name, values in found.items()}
        frame = pd.DataFrame({name: pd.Series(values, dtype=kinds[name]) for name, values in found.items()})
        frame[ERROR] = pd.Series(errors, dtype=object)
        note(self.run, len(nulls), began, [error for error in errors if error is not None])
        return frame

    def answers(self, nulls: list[str | None], columns: list[Any]) -> tuple[dict[str, Any], list[Error]]:
        """Return the wanted columns, None where there is no answer, and each row's error."""
        errors: list[Error] = [None if name is None else _null(name) for name in nulls]
        arrays, good = self._arrays(columns, errors)
        self._raise(errors)
        pieces: list[tuple[Array, dict[str, Array]]] = []
        for part in self._parts(arrays, len(good)):
            places = good[part.start : part.stop]
            if part.error is not None:
                errors[places[0]] = error_row("model", type(part.error).__name__, str(part.error))
            else:
                pieces.append((places, self.wanted.columns(part.value, len(places))))
        return {name: _whole(name, pieces, len(nulls)) for name in self.wanted.fields}, errors

    def _parts(self, arrays: dict[str, Array], rows: int) -> list[Part]:
        if not rows:
            return []
        # Not among what is tried by halves: a model that does not load has no bad rows.
        predict = loaded(self.config)

        def ask(start: int, stop: int) -> Any:
            return predict({name: array[start:stop] for name, array in arrays.items()})

        return [Part(0, rows, ask(0, rows))] if self.strict else by_halves(ask, rows)

    def _arrays(self, columns: list[Any], errors: list[Error]) -> tuple[dict[str, Array], Array]:
        """Return the inputs of the rows without an error, and their places; rows of a strange shape get one."""
        good = np.array([place for place, error in enumerate(errors) if error is None], dtype=np.int64)
        for (name, is_array), column in zip(self.inputs, columns, strict=True):
            if not is_array:
                continue
            _, wrong = stacked(name, [column[place] for place in good])
            for at, message in wrong.items():
                errors[good[at]] = error_row("model", SHAPE, message)
            good = np.delete(good, list(wrong))
        arrays: dict[str, Array] = {}
        for (name, is_array), column in zip(self.inputs, columns, strict=True):
            chosen = stacked(name, [column[place] for place in good])[0] if is_array else column[good]
            arrays[name] = np.empty((0, 0)) if chosen is None else chosen
        return arrays, good

    def _raise(self, errors: list[Error]) -> None:
        bad = [error for error in errors if error is not None]
        if bad and self.strict:
            raise InvalidRowsError(Counter(e["type"] for e in bad), [e["message"] for e in bad[:MESSAGES]])


@dataclass(frozen=True)
class ModelDicts:
    """Asks a model of rows that are dicts, as `ModelRows` of columns. Runs on: Ray actor."""

    rows: ModelRows

    def __call__(self, rows: list[dict[str, Any]]) -> list[tuple[Any, Error]]:
        """Return (output, error) of each row, as ``Row.asDict(recursive=True)`` would give them."""
        names = [name for name, _ in self.rows.inputs]
        given = {name: [_flat(row[name]) for row in rows] for name in names}
        are_arrays = {name: any(map(_is_array, given[name])) for name in names}
        asking = replace(self.rows, inputs=tuple(are_arrays.items()))
        nulls = [next((name for name in names if _is_null(given[name][place])), None) for place in range(len(rows))]
        columns = [
            [value if value is not None else [] for value in given[name]] if are_arrays[name] else _column(given[name])
            for name in names
        ]
        found, errors = asking.answers(nulls, columns)
        output = self.rows.wanted.output
        fields = self.rows.wanted.fields
        values = {name: _python(found[name], kind) for name, kind in fields.items()}
        made: list[Any] = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        if not isinstance(output, StructType):
            made = next(iter(values.values()))
        return [(value if error is None else None, error) for value, error in zip(made, errors, strict=True)]


def _null(name: str) -> dict[str, Any]:
    return error_row("model", NULL, f"column {name!r} is null, or has a null in it")


def _whole(name: str, pieces: list[tuple[Array, dict[str, Array]]], rows: int) -> Any:
    """Return the values of all rows, None where there is none."""
    if len(pieces) == 1 and len(pieces[0][0]) == rows:
        values = pieces[0][1][name]
        return list(values) if values.ndim > 1 else values
    whole: list[Any] = [None] * rows
    for places, found in pieces:
        some = list(found[name]) if found[name].ndim > 1 else found[name].tolist()
        for place, value in zip(places, some, strict=True):
            whole[place] = value
    return whole


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and any(item is None for item in value))


def _is_array(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | bytearray)


def _flat(value: Any) -> Any:
    """Return the numbers of a spark.ml vector; any other value as it is."""
    return value.toArray() if hasattr(value, "toArray") else value


def _column(values: list[Any]) -> Array:
    """Return values as the array that Spark's column would be; what stands for a null does not matter."""
    filler = next((value for value in values if value is not None), 0)
    column = pa.array([filler if value is None else value for value in values])
    array: Array = column.to_numpy(zero_copy_only=False)
    return array


def _python(values: Any, kind: DataType) -> list[Any]:
    from pyspark.sql.pandas.types import to_arrow_type

    # As PySpark does: what is no number is a null.
    found: list[Any] = pa.array(list(values), type=to_arrow_type(kind), from_pandas=True).to_pylist()
    return found
