"""Which columns can leave Spark: the checks that all ways to Ray share, and the Arrow types that come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from platform_plugin.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

Refusal = Callable[["DataType"], str | None]
"""Returns why a type cannot cross, or None where it can; called for a type and for all within it."""


def check_columns(schema: StructType, refusal: Refusal, way: str = "cannot cross to Ray") -> None:
    """Raise SchemaError, by name and type, for the first column that cannot cross."""
    twice = sorted({n for n in schema.names if schema.names.count(n) > 1})
    if twice:
        raise SchemaError(f"columns {twice} stand twice in the frame; rename or drop one of each pair.")
    if not schema.names:
        raise SchemaError("a frame without columns cannot cross to Ray: its rows would be lost.")
    for field in schema.fields:
        bad = within(field.dataType, refusal)
        if bad:
            raise SchemaError(
                f"column {field.name!r} of type {field.dataType.simpleString()} {way} ({bad}); cast it or leave it out."
            )


def within(kind: DataType, refusal: Refusal) -> str | None:
    """Return why `kind`, or a type within it, cannot cross."""
    from pyspark.sql import types as t

    bad = refusal(kind)
    if bad:
        return bad
    if isinstance(kind, t.UserDefinedType):
        return within(kind.sqlType(), refusal)
    if isinstance(kind, t.ArrayType):
        return within(kind.elementType, refusal)
    if isinstance(kind, t.MapType):
        return within(kind.keyType, refusal) or within(kind.valueType, refusal)
    if isinstance(kind, t.StructType):
        return next((bad for f in kind.fields if (bad := within(f.dataType, refusal))), None)
    return None


def no_arrow(kind: DataType) -> str | None:
    """Return why a type cannot cross in Arrow tables, there and back."""
    from pyspark.sql import types as t

    if isinstance(kind, t.YearMonthIntervalType):
        return "Arrow has no year-month interval that Spark reads back"
    if isinstance(kind, t.ArrayType) and isinstance(kind.elementType, t.NullType):
        return "an array of void"
    return None


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema with all within nullable: a null vector has null parts, which vectors declare impossible.

    Raises nothing of ours: `schema` has passed `check_columns`.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.schema([_nullable(field) for field in to_arrow_schema(schema)])


def _nullable(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_nullable(kind.field(i)) for i in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(_nullable(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_type, _nullable(kind.item_field))
    return pa.field(field.name, kind)
