"""The one shape of rows that is evaluated: label, slices and each model's answer, whatever the data looked like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
)

from platform_plugin import schema
from platform_plugin.classes import MOST_CLASSES
from platform_plugin.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ROW = "evaluation_row"
"""The row's number while models predict; it must come through them."""

ANSWER = (
    "struct<prediction:string,failed:boolean,error:string,prompt_tokens:bigint,cached_tokens:bigint,"
    "output_tokens:bigint,seconds:double,judge:double>"
)
_NUMBERS = ("prompt_tokens", "cached_tokens", "output_tokens", "seconds")


def find(columns: StructType, name: str, role: str) -> tuple[Column, DataType]:
    """Return a column, or a field of one ("prediction.intent"), and its type. Raises SchemaError."""
    if name.lower() in {n.lower() for n in columns.names} or "." not in name:
        field = schema.find_field(columns, name, role)
        return schema.column(field.name), field.dataType
    first, *rest = name.split(".")
    field = schema.find_field(columns, first, role)
    value, kind = schema.column(field.name), field.dataType
    for part in rest:
        if not isinstance(kind, StructType):
            raise SchemaError(f"{role}={name!r}: {first!r} is {kind.simpleString()} and has no field {part!r}.")
        field = schema.find_field(kind, part, role)
        value, kind = value.getField(field.name), field.dataType
    return value, kind


def kind_of(kind: DataType, role: str) -> str:
    """Return "text", "number", "boolean" or "struct". Raises SchemaError for what is none of them."""
    if isinstance(kind, StringType | DateType | TimestampType | TimestampNTZType):
        return "text"
    if isinstance(kind, NumericType):
        return "number"
    if isinstance(kind, BooleanType):
        return "boolean"
    if isinstance(kind, BinaryType | UserDefinedType) or kind.simpleString() == "void":
        raise SchemaError(f"{role} is {kind.simpleString()}, which cannot be evaluated; cast it to string.")
    return "struct"


def as_text(value: Column, kind: DataType) -> Column:
    """Return a value as the text it is compared by: 1, 1.0 and 1.00 are one number."""
    if isinstance(kind, DecimalType):
        number = value.cast("double")
        # What a double holds as a double is written, so that equal numbers have one text; the rest keeps its digits.
        text = F.when(number.cast(kind) == value, _double_text(number)).otherwise(value.cast("string"))
        return F.when(value == F.floor(value), value.cast("decimal(38,0)").cast("string")).otherwise(text)
    if isinstance(kind, FloatType):
        return _double_text(value.cast("string").cast("double"))  # 0.1, not 0.10000000149011612
    if isinstance(kind, DoubleType):
        return _double_text(value)
    if isinstance(kind, NumericType):
        return value.cast("bigint").cast("string")
    return F.to_json(value) if kind_of(kind, "") == "struct" else value.cast("string")


def _double_text(number: Column) -> Column:
    """Return a double as text, a whole one as an integer writes it: a label 3 and a prediction 3.0 are equal."""
    whole = (number == F.rint(number)) & (F.abs(number) < 1e37)
    return F.when(whole, number.cast("decimal(38,0)").cast("string")).otherwise(number.cast("string"))


def trimmed(text: Column) -> Column:
    """Return a text without blanks at its ends, as Arrow's utf8_trim_whitespace has it, by which metrics compare."""
    return F.regexp_replace(text, r"(?U)^[\s\x1c-\x1f]+|[\s\x1c-\x1f]+$", "")


def classes(labels: Column, rows: DataFrame) -> dict[str, int]:
    """Return label -> rows, sorted; where labels are more than MOST_CLASSES, one more than those. One Spark job."""
    counted = rows.select(trimmed(labels).alias("label")).where("label IS NOT NULL").groupBy("label").count()
    found = {row["label"]: int(row["count"]) for row in counted.limit(MOST_CLASSES + 1).collect()}
    return {label: found[label] for label in sorted(found)}


def seed(columns: StructType, key: Sequence[str]) -> Column:
    """Return the hash of a row's key: of the columns named, else of all that can be hashed."""
    names = list(key) or [f.name for f in columns.fields if "map<" not in f.dataType.simpleString()]
    return F.xxhash64(*[schema.column(name) for name in names]) if names else F.lit(0).cast("bigint")


def answer(
    columns: StructType, output: str, role: str, error: str | None = None, details: str | None = None
) -> tuple[Column, str]:
    """Return a model's answer as ANSWER, and the kind of its predictions. Raises SchemaError.

    Args:
        columns: of the frame that has the answers.
        output: the column of predictions; `error` and `details` those of an LLM stage, None where there is none.
    """
    value, kind = find(columns, output, role)
    read = kind_of(kind, f"{role} {output!r}")
    wrong = schema.column(error) if error is not None else None
    failed = value.isNull() if wrong is None else value.isNull() | wrong.isNotNull()
    name = F.when(value.isNull(), "NullPrediction")
    fields = [
        F.when(~failed, as_text(value, kind)).alias("prediction"),
        failed.alias("failed"),
        (name if wrong is None else F.coalesce(wrong["type"], name)).alias("error"),
    ]
    for part in _NUMBERS:
        known = schema.column(details)[part] if details is not None else F.lit(None)
        fields.append(known.alias(part))
    fields.append(F.lit(None).alias("judge"))
    return F.struct(*fields).cast(ANSWER), read


def beside(columns: StructType, output: str) -> tuple[str | None, str | None]:
    """Return the error and details columns that an LLM stage left beside an existing prediction column, or None."""
    head = output if output in columns.names else output.split(".")[0]
    found: list[str | None] = []
    for name, kind in ((f"{head}_error", schema.ERROR_TYPE), (f"{head}_details", schema.DETAILS_TYPE)):
        there = {f.name: f.dataType for f in columns.fields}.get(name)
        fits = isinstance(there, StructType) and set(kind.names) <= set(there.names)
        found.append(name if fits else None)
    return found[0], found[1]


def lost() -> Column:
    """Return the answer of a row that did not come back from its model: handleInvalid="skip", or a filter."""
    return F.struct(
        F.lit(None).alias("prediction"),
        F.lit(True).alias("failed"),
        F.lit("RowLost").alias("error"),
        *[F.lit(None).alias(name) for name in (*_NUMBERS, "judge")],
    ).cast(ANSWER)


def counted(rows: DataFrame) -> DataFrame:
    """Return what a `Pass` reads: equal rows once, with how often they occur.

    Rows without a key of their own may be equal; with one seed they would fall in and out of resamples together.
    """
    kept = ["seed", "label", "human", "slices", "models"]
    return rows.groupBy(*kept).agg(F.count(F.lit(1)).alias("times"))
