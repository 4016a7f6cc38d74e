"""What a stage does with a model that it names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.ml.functions import vector_to_array
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    StringType,
    StructField,
    StructType,
)

from platform_plugin.arrays import Wanted, check_input, is_vector
from platform_plugin.model_rows import ModelDicts, ModelRows
from platform_plugin.predictors import ModelConfig, form_of
from platform_plugin.schema import ERROR, ERROR_TYPE, column
from platform_plugin.udf.counting import RunName
from platform_plugin.udf.guarded import OUTPUT
from platform_plugin.udf.moving import moved
from platform_plugin.udf.options import UdfOptions

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import Column


@dataclass(frozen=True)
class ModelWork:
    """Asks a model on actors. Runs on: driver."""

    config: ModelConfig
    given: str
    output: DataType

    @property
    def engine(self) -> str:
        """The form of the model."""
        return form_of(self.config.model)

    @property
    def model(self) -> str:
        """The model as the user named it."""
        return self.given

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of the struct that the model gives."""
        return tuple(self.output.names) if isinstance(self.output, StructType) else ()

    def pool(self) -> str:
        """Return the name of the actors that hold this model."""
        return f"model {self.config.signature()}"

    def check(self, fields: Sequence[StructField], handle_invalid: str) -> None:  # noqa: ARG002 - the protocol's
        """Raise SchemaError for an input of which no array can be made."""
        for field in fields:
            check_input(field.name, field.dataType)

    def column(
        self, fields: Sequence[StructField], options: UdfOptions, run: RunName, strict: bool
    ) -> tuple[Column, bool]:
        """Return a column of the model's answers with their errors, and True."""
        inputs = tuple((f.name, isinstance(f.dataType, ArrayType) or is_vector(f.dataType)) for f in fields)
        function = ModelRows(self.config, inputs, self._wanted(), strict, run)
        made = [*(self.output.fields if isinstance(self.output, StructType) else [StructField(OUTPUT, self.output)])]
        kind = StructType([*made, StructField(ERROR, ERROR_TYPE)])
        # Not deterministic, so that Spark asks once: not again for a filter that looks at an answer.
        udf = moved(_template(), options, function=function, return_type=kind, deterministic=False)
        return udf(_null_in(fields), *(_filled(field) for field in fields)), True

    def rows(self, inputs: tuple[str, ...]) -> Any:
        """Return the function of rows."""
        # Of a row nobody says whether a column is of arrays: its values do, on the actor.
        return ModelDicts(ModelRows(self.config, tuple((name, False) for name in inputs), self._wanted()))

    def _wanted(self) -> Wanted:
        return Wanted(self.given, OUTPUT, self.output)


def _template() -> Any:
    """Return a scalar pandas UDF of the session's kind, classic or Connect, to be made again with a model in it."""

    def model(column: pd.Series) -> pd.Series:
        return column

    import pandas

    # PySpark looks for these in the module, and finds no pandas there.
    model.__annotations__ = {"column": pandas.Series, "return": pandas.Series}
    make: Any = pandas_udf
    return make(model, StringType())


def _null_in(fields: Sequence[StructField]) -> Column:
    """Return the name of the first input that is null or has a null in it, else null."""

    def unless(before: Column, field: StructField) -> Column:
        value = column(field.name)
        null = value.isNull()
        if isinstance(field.dataType, ArrayType) and field.dataType.containsNull:
            null = null | F.exists(value, lambda item: item.isNull())
        return F.when(null, F.lit(field.name)).otherwise(before)

    return reduce(unless, reversed(fields), F.lit(None).cast("string"))


def _filled(field: StructField) -> Column:
    """Return an input with some value for null: with nulls in it, a column of whole numbers would become doubles."""
    kind: Any = field.dataType
    value = column(field.name)
    if is_vector(kind):
        return F.coalesce(vector_to_array(value), F.array().cast("array<double>"))
    if isinstance(kind, ArrayType):
        return F.coalesce(F.filter(value, lambda item: item.isNotNull()), F.array().cast(kind))
    some = {StringType: F.lit(""), BooleanType: F.lit(False), BinaryType: F.lit(b"")}.get(type(kind), F.lit(0))
    return F.coalesce(value, some.cast(kind))
