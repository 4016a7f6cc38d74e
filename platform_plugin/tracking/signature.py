"""The signature of a logged pipeline: Spark's types as MLflow names them, decided here and not guessed from rows."""

from __future__ import annotations

from typing import Any

from pyspark.ml.linalg import VectorUDT
from pyspark.sql import types as t

from platform_plugin.errors import SchemaError


def signature(columns: t.StructType, answers: t.StructField) -> Any:
    """Return the ``ModelSignature`` of a pipeline that takes `columns` and whose answers are in one column.

    Raises:
        SchemaError: MLflow has no such type.
    """
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    def schema(fields: list[t.StructField]) -> Any:
        return Schema([ColSpec(_kind(field.dataType, field.name), field.name) for field in fields])

    return ModelSignature(inputs=schema(columns.fields), outputs=schema([answers]))


def _kind(kind: t.DataType, name: str) -> Any:
    from mlflow.types import DataType
    from mlflow.types.schema import Array, Map, Object, Property, SparkMLVector

    plain: list[tuple[Any, Any]] = [
        (t.StringType, DataType.string),
        (t.BooleanType, DataType.boolean),
        (t.BinaryType, DataType.binary),
        ((t.ByteType, t.ShortType, t.IntegerType), DataType.integer),
        (t.LongType, DataType.long),
        (t.FloatType, DataType.float),
        # A decimal comes as a double, and is made a decimal again before Spark sees it.
        ((t.DoubleType, t.DecimalType), DataType.double),
        ((t.DateType, t.TimestampType, t.TimestampNTZType), DataType.datetime),
    ]
    for kinds, found in plain:
        if isinstance(kind, kinds):
            return found
    if isinstance(kind, VectorUDT):
        return SparkMLVector()  # type: ignore[no-untyped-call]
    if isinstance(kind, t.ArrayType):
        return Array(_kind(kind.elementType, name))
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return Map(_kind(kind.valueType, name))
    if isinstance(kind, t.StructType):
        return Object([Property(f.name, _kind(f.dataType, f"{name}.{f.name}"), required=False) for f in kind.fields])
    raise SchemaError(
        f"column {name!r} is {kind.simpleString()}, for which MLflow has no type.\n"
        "Leave it out of the example, or cast it there and in the pipeline; or pass a signature."
    )
