"""The column contract: reserved names, types of our columns, checks of a caller's frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from platform_plugin.errors import SchemaError, near

if TYPE_CHECKING:
    from pyspark.sql import Column

PREFIX = "__pp_"
KEY = "__pp_key"
PROMPT = "__pp_prompt"
SAMPLING = "__pp_sampling"
ERROR = "__pp_error"
ANSWER = "__pp_answer_"
"""Prefix of an answer's columns while they are being joined."""

ERROR_TYPE = StructType(
    [
        StructField("stage", StringType()),
        StructField("type", StringType()),
        StructField("message", StringType()),
        StructField("retryable", BooleanType()),
    ]
)
DETAILS_TYPE = StructType(
    [
        StructField("finish_reason", StringType()),
        StructField("prompt_tokens", LongType()),
        StructField("cached_tokens", LongType()),
        StructField("output_tokens", LongType()),
        StructField("truncated", BooleanType()),
        StructField("seconds", DoubleType()),
        StructField("reasoning", StringType()),
        StructField("raw_text", StringType()),
    ]
)
MESSAGES = "array<struct<role:string,content:string>>"


def answer_type(output: DataType) -> StructType:
    """Return the Spark side of ``engines.answer_schema``: the same names, every field nullable."""
    head = [
        StructField("key", BinaryType()),
        StructField("output", output),
        StructField("error", ERROR_TYPE),
    ]
    return StructType(head + DETAILS_TYPE.fields)


def column(name: str) -> Column:
    """Return the column of exactly this name: dots, spaces and backticks in it are letters."""
    from pyspark.sql import functions as F

    return F.col("`" + name.replace("`", "``") + "`")


def find_field(schema: StructType, name: str, role: str) -> StructField:
    """Return the field `name`, found as Spark finds it, without regard to case.

    Args:
        role: what the column is for, as the caller spells it: "inputCol".

    Raises:
        SchemaError: there is none; the nearest names are listed.
    """
    for field in schema.fields:
        if field.name.lower() == name.lower():
            return field
    raise SchemaError(
        f"{role}={name!r} is not a column; the frame has {_listed(schema.names)}."
        f"{near(name, schema.names) or ' Name one of them.'}"
    )


def check_frame(schema: StructType) -> None:
    """Raise SchemaError for a frame that has reserved or duplicate column names."""
    reserved = [n for n in schema.names if n.lower().startswith(PREFIX)]
    if reserved:
        raise SchemaError(
            f"the frame has {_listed(reserved)}; names that begin with {PREFIX!r} are reserved. "
            "Rename the column with withColumnRenamed."
        )
    times = Counter(n.lower() for n in schema.names)
    twice = [n for n in schema.names if times[n.lower()] > 1]
    if twice:
        raise SchemaError(
            f"the frame has {_listed(twice)} more than once (case is not looked at), so none "
            "of them can be named. Rename or drop all but one."
        )


def check_outputs(schema: StructType, outputs: Iterable[str]) -> None:
    """Raise SchemaError unless the output columns are new, distinct and not reserved."""
    present = {n.lower() for n in schema.names}
    seen: set[str] = set()
    for name in outputs:
        lower = name.lower()
        if not name.strip():
            raise SchemaError(f"output column {name!r} has no name; give it one.")
        if lower.startswith(PREFIX):
            raise SchemaError(f"output column {name!r}: names that begin with {PREFIX!r} are reserved. Choose another.")
        if lower in present:
            raise SchemaError(f"output column {name!r} is already in the frame. Drop it first, or choose another name.")
        if lower in seen:
            raise SchemaError(
                f"output column {name!r} is asked for twice; outputCol, errorCol and detailsCol must differ."
            )
        seen.add(lower)


def check_prompt(schema: StructType, name: str) -> None:
    """Raise SchemaError unless inputCol `name` is a string column."""
    field = find_field(schema, name, "inputCol")
    if not isinstance(field.dataType, StringType):
        raise SchemaError(
            f"inputCol={name!r} is {field.dataType.simpleString()}; wanted string. "
            f"Cast it, or use promptTemplate, or messagesCol for {MESSAGES}."
        )


def check_messages(schema: StructType, name: str) -> None:
    """Raise SchemaError unless messagesCol `name` is MESSAGES; its fields in any order."""
    field = find_field(schema, name, "messagesCol")
    kind = field.dataType
    item = kind.elementType if isinstance(kind, ArrayType) else None
    fields = item.fields if isinstance(item, StructType) else []
    wanted = [("content", StringType()), ("role", StringType())]
    if sorted(((f.name, f.dataType) for f in fields), key=lambda f: f[0]) != wanted:
        raise SchemaError(
            f"messagesCol={name!r} is {kind.simpleString()}; wanted {MESSAGES} "
            "and no other fields. "
            "Build it with transform(<col>, m -> struct(m.role as role, m.content as content))."
        )


def check_sampling_column(schema: StructType, name: str) -> None:
    """Raise SchemaError unless samplingParamsCol `name` is a struct or a string column."""
    kind = find_field(schema, name, "samplingParamsCol").dataType
    if not isinstance(kind, StringType | StructType):
        raise SchemaError(
            f"samplingParamsCol={name!r} is {kind.simpleString()}; wanted a struct, as struct<max_tokens:int>, or a "
            "string with a JSON object. Make one with struct(<col> AS max_tokens)."
        )


def _listed(names: Iterable[str], most: int = 20) -> str:
    """Return the names quoted; a frame of 1,000 columns is cut short."""
    every = list(names)
    cut = f" and {len(every) - most} more" if len(every) > most else ""
    return (", ".join(repr(n) for n in every[:most]) or "no columns") + cut
