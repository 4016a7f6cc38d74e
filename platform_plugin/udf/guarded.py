"""A user's function with eyes on its rows: they are counted, and what it raises for a row can be that row's error.

What goes in and out of it stays as it was, so that PySpark's own code around it converts, checks and words errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from platform_plugin.engines import error_row
from platform_plugin.halving import Part, by_halves
from platform_plugin.schema import ERROR
from platform_plugin.udf.counting import RunName, note

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "output"
"""The field beside the error in which a value that is no struct goes back to Spark."""


@dataclass
class _Guarded:
    """A user's function, under its own name."""

    user: Callable[..., Any]
    run: RunName | None = None

    @property
    def __name__(self) -> str:
        return str(getattr(self.user, "__name__", type(self.user).__name__))


class CountedBatch(_Guarded):
    """A function of columns; what it raises ends the job."""

    def __call__(self, *columns: Any) -> Any:
        """Run it on one batch."""
        began = time.time()
        result = self.user(*columns)
        note(self.run, len(columns[0]), began)
        return result


class CountedIterator(_Guarded):
    """A function of an iterator of batches; what it raises ends the job."""

    def __call__(self, batches: Iterator[Any]) -> Any:
        """Run it on one partition."""
        return self.user(self._counted(batches))

    def _counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            began = time.time()
            yield batch
            note(self.run, len(batch[0] if isinstance(batch, tuple) else batch), began)


class CountedRow(_Guarded):
    """A function of one row's values; what it raises ends the job."""

    def __call__(self, *values: Any) -> Any:
        """Run it on one row."""
        began = time.time()
        result = self.user(*values)
        note(self.run, 1, began)
        return result


@dataclass
class GuardedRow(_Guarded):
    """A function of one row's values; what it raises is that row's error.

    Args:
        finish: what PySpark does to a value that is not in a struct, and leaves where it is in one.
    """

    finish: Callable[[Any], Any] | None = None

    def __call__(self, *values: Any) -> tuple[Any, tuple[Any, ...] | None]:
        """Return the value and no error, or no value and the error."""
        began = time.time()
        try:
            result = self.user(*values)
        except Exception as exc:
            error = error_row("udf", type(exc).__name__, str(exc))
            note(self.run, 1, began, [error])
            return None, tuple(error.values())
        note(self.run, 1, began)
        return (self.finish(result) if self.finish and result is not None else result), None


@dataclass
class GuardedBatch(_Guarded):
    """A function of columns; a batch that it raises for is halved until the rows that it raises for stand alone.

    Args:
        fields: names of the struct that it returns as a frame; none where it returns one column.
    """

    fields: tuple[str, ...] = ()

    def __call__(self, *columns: Any) -> pd.DataFrame:
        """Return a frame of `fields`, or OUTPUT, and ERROR."""
        began = time.time()
        rows = len(columns[0])
        frame = joined(by_halves(lambda start, stop: self._call(columns, start, stop), rows), rows, self._columns)
        note(self.run, rows, began, [error for error in frame[ERROR] if error is not None])
        return frame

    def _call(self, columns: tuple[Any, ...], start: int, stop: int) -> Any:
        if stop - start == len(columns[0]):
            return self.user(*columns)
        return self.user(*(column.iloc[start:stop].reset_index(drop=True) for column in columns))

    def _columns(self, part: Part) -> dict[str, Any]:
        """Return the columns of what the function returned, checked as PySpark does where there is no frame around."""
        import pandas as pd
        from pyspark.errors import PySparkRuntimeError, PySparkTypeError

        result = part.value
        if not (isinstance(result, pd.DataFrame) if self.fields else hasattr(result, "__len__")):
            wanted = "pandas.DataFrame" if self.fields else "pandas.Series"
            raise PySparkTypeError(
                error_class="UDF_RETURN_TYPE",
                message_parameters={"expected": wanted, "actual": type(result).__name__},
            )
        if len(result) != part.stop - part.start:
            raise PySparkRuntimeError(
                error_class="SCHEMA_MISMATCH_FOR_PANDAS_UDF",
                message_parameters={"expected": str(part.stop - part.start), "actual": str(len(result))},
            )
        if not self.fields:
            return {OUTPUT: result if isinstance(result, pd.Series) else pd.Series(result)}
        # By name where any column has one, else by position, as PySpark does.
        named = any(isinstance(name, str) for name in result.columns)
        return {name: result[name if named else result.columns[at]] for at, name in enumerate(self.fields)}


def joined(parts: list[Part], rows: int, columns: Callable[[Part], dict[str, Any]]) -> pd.DataFrame:
    """Return the parts as one frame with ERROR; rows with an error have nulls in all other columns."""
    import pandas as pd

    errors: list[dict[str, Any] | None] = [None] * rows
    pieces: list[pd.DataFrame] = []
    for part in parts:
        if part.error is not None:
            errors[part.start] = error_row("udf", type(part.error).__name__, str(part.error))
            continue
        made = {name: column.reset_index(drop=True) for name, column in columns(part).items()}
        piece = pd.DataFrame(made)
        piece.index = pd.RangeIndex(part.start, part.stop)
        pieces.append(piece)
    if len(pieces) == 1 and len(pieces[0]) == rows:
        frame = pieces[0]
    else:
        # Whole numbers and booleans have no place for a null; as objects they keep their values.
        whole = [p.astype({n: object for n, kind in p.dtypes.items() if kind.kind in "iub"}) for p in pieces]
        frame = (pd.concat(whole) if whole else pd.DataFrame()).reindex(range(rows))
    frame[ERROR] = pd.Series(errors, index=frame.index, dtype=object)
    return frame
