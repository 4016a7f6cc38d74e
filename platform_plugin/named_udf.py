"""A UDF that a stage names: imported, looked at, and made again on Ray actors so that a row can have an error."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from pyspark.rdd import PythonEvalType
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from platform_plugin import named
from platform_plugin.ddl import read_type
from platform_plugin.errors import ConfigError
from platform_plugin.schema import ERROR, ERROR_TYPE
from platform_plugin.udf.carried import Carried
from platform_plugin.udf.counting import RunName
from platform_plugin.udf.guarded import OUTPUT, CountedBatch, CountedIterator, CountedRow, GuardedBatch, GuardedRow
from platform_plugin.udf.moving import moved, plain
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import check_function

if TYPE_CHECKING:
    from pyspark.sql import Column

BATCH, ITERATOR, AGGREGATE, ROW, ARROW_ROW = (
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_GROUPED_AGG_PANDAS_UDF,
    PythonEvalType.SQL_BATCHED_UDF,
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
)
_COUNTED: dict[int, Any] = {BATCH: CountedBatch, ITERATOR: CountedIterator, ROW: CountedRow, ARROW_ROW: CountedRow}


@dataclass(frozen=True)
class NamedUdf:
    """PySpark's UDF at an import path. Runs on: driver."""

    path: str
    made: Any

    @classmethod
    def of(cls, path: str, return_type: str | None) -> NamedUdf:
        """Import a UDF, or make one of a plain function: a pandas UDF where its type hints say so.

        Raises:
            ConfigError: there is no such thing, it is no function, or its type is missing or said twice.
        """
        found = named.find(path, "function")
        if hasattr(found, "asNondeterministic"):
            made = cls(path, found)
            if return_type is not None and read_type(return_type, "returnType") != made.output:
                raise ConfigError(
                    f"returnType={return_type!r}, but the UDF {path!r} returns {made.output.simpleString()!r} already. "
                    "Leave returnType out."
                )
            return made._checked()
        if not callable(found) or isinstance(found, type):
            raise ConfigError(f"function={path!r} is a {type(found).__name__}; wanted a function or a UDF.")
        if return_type is None:
            raise ConfigError(
                f"function={path!r} is a plain function, so its type must be said: returnType='double', as Spark DDL."
            )
        return cls(path, _udf_of(found, read_type(return_type, "returnType")))._checked()

    def _checked(self) -> NamedUdf:
        check_function(self.function, self.name)
        if self.kind == AGGREGATE:
            raise ConfigError(
                f"function={self.path!r} is a grouped aggregate: one value a group, and a stage wants one a row.\n"
                "Use it in groupBy().agg(...); udf_compat.on_ray gives it to actors."
            )
        if self.kind not in _COUNTED:
            raise ConfigError(f"function={self.path!r} is a UDF of Spark's kind {self.kind}, which has no rows.")
        return self

    @property
    def function(self) -> Any:
        """The user's function; of a UDF that udf_compat made, what it carries."""
        function = plain(self.made).func
        return function.function if isinstance(function, Carried) else function

    @property
    def name(self) -> str:
        """The UDF's name, for messages."""
        return str(plain(self.made)._name)

    @property
    def kind(self) -> int:
        """Spark's number for how the function is called."""
        return int(plain(self.made).evalType)

    @property
    def output(self) -> DataType:
        """The UDF's return type."""
        kind: DataType = plain(self.made).returnType
        return kind

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the struct that the function returns as a frame; none where it returns a column or a value."""
        return tuple(self.output.names) if self.kind == BATCH and isinstance(self.output, StructType) else ()

    def check(self, columns: int, handle_invalid: str) -> None:
        """Raise ConfigError where the function does not take so many columns, or has no rows to mark as invalid."""
        if self.kind == ITERATOR and handle_invalid != "error":
            raise ConfigError(
                f"handleInvalid={handle_invalid!r}: {self.path!r} is called once a partition, with an iterator, so "
                "what it raises belongs to no row.\nUse handleInvalid='error', or a function of columns (pd.Series -> "
                "pd.Series) or of one row."
            )
        if self.kind == ITERATOR:
            return
        try:
            inspect.signature(self.function).bind(*range(columns))
        except ValueError:  # of native code
            return
        except TypeError as exc:
            raise ConfigError(
                f"inputCols names {columns} columns, and {self.path!r} takes {inspect.signature(self.function)}: {exc}."
            ) from None

    def plain_column(self, arguments: list[Column], options: UdfOptions, run: RunName) -> Column:
        """Return the UDF's own column; what the function raises ends the job."""
        column: Column = moved(self.made, options, function=_COUNTED[self.kind](self.function, run))(*arguments)
        return column

    def guarded_column(self, arguments: list[Column], options: UdfOptions, run: RunName) -> Column:
        """Return a struct of the value (its fields, where `fields`) and ERROR."""
        function: Any = GuardedRow(self.function, run, self._finish())
        if self.kind == BATCH:
            function = GuardedBatch(self.function, run, self.fields)
        values = self.output.fields if self.fields and isinstance(self.output, StructType) else None
        fields = [*(values or [StructField(OUTPUT, self.output)]), StructField(ERROR, ERROR_TYPE)]
        # Not deterministic, so that Spark runs it once: not again for a filter that looks at the error.
        udf = moved(self.made, options, function=function, return_type=StructType(fields), deterministic=False)
        column: Column = udf(*arguments)
        return column

    def _finish(self) -> Any:
        finish: dict[type, Any] = {StringType: str, BinaryType: bytes}
        return finish.get(type(self.output)) if self.kind == ARROW_ROW else None


def _udf_of(function: Any, kind: DataType) -> Any:
    if not _has_pandas_hints(function):
        return F.udf(function, kind)
    from pyspark.sql.pandas.functions import pandas_udf

    make: Any = pandas_udf
    try:
        return make(function, kind)
    except Exception as exc:
        raise ConfigError(f"PySpark makes no pandas UDF of {function.__name__!r}: {exc}") from exc


def _has_pandas_hints(function: Any) -> bool:
    try:
        hints = get_type_hints(function)
    except Exception:
        hints = getattr(function, "__annotations__", {})
    return any("pandas" in str(hint) or str(hint).startswith(("pd.", "Iterator[pd.")) for hint in hints.values())
