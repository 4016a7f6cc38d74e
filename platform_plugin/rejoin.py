"""From answers to rows: the join by key, the policy for bad rows, the output columns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from platform_plugin import schema as columns
from platform_plugin.schema import ANSWER, DETAILS_TYPE, ERROR, ERROR_TYPE, KEY, PREFIX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MISSING = (
    "RejoinError: a row has no answer for its request; every request must have one. "
    "Likely causes: a column of the prompt differs each time Spark computes it (rand(), uuid(), "
    "current_timestamp()), the input changed between the two reads, or its answers were released. "
    "Materialize the frame first (write it out and read it back), or transform it again. The key: "
)


def rejoin(
    keyed: DataFrame,
    answers: DataFrame,
    *,
    output_col: str,
    error_col: str,
    details_col: str | None,
    output_type: DataType,
    handle_invalid: str,
    answers_bytes: int,
    parse: bool = False,
) -> DataFrame:
    """Return the caller's frame with the answers. Runs on: driver; Spark evaluates it later.

    Every input column keeps its value, type, nullability and place; the order of rows is not kept.
    A request without an answer fails the query that reads one of the new columns, with
    "RejoinError" in the message.

    Args:
        keyed: ``Requests.keyed``.
        answers: one row a key, in ``schema.answer_type(output_type)``.
        details_col: name of the struct of ``schema.DETAILS_TYPE``; None for none.
        parse: whether the answers are JSON texts of `output_type`, or arrays of them.
        handle_invalid: "keep" bad rows with their error, or "skip" them.
        answers_bytes: size of all answers, for the choice of the join. Spark's own estimate is of
            the tiny range that they are fetched through: it would broadcast any number of them.
    """
    small = answers_bytes <= _broadcast_bytes(keyed.sparkSession)
    renamed = answers.select(*[F.col(name).alias(ANSWER + name) for name in answers.columns])
    joined = keyed.join(
        F.broadcast(renamed) if small else renamed.hint("merge"),
        F.col(KEY) == F.col(ANSWER + "key"),
        "left",
    )
    fields = [F.col(ANSWER + name).alias(name) for name in DETAILS_TYPE.names]
    details = F.when(F.col(ANSWER + "key").isNotNull(), F.struct(*fields))
    output = F.col(ANSWER + "output")
    if parse:
        many = isinstance(output_type, ArrayType)
        kind: Any = output_type.elementType if isinstance(output_type, ArrayType) else output_type
        output = F.transform(output, lambda text: F.from_json(text, kind)) if many else F.from_json(output, kind)
    added = [
        _checked(output, output_type).alias(output_col),
        _checked(F.coalesce(F.col(ERROR), F.col(ANSWER + "error")), ERROR_TYPE).alias(error_col),
    ]
    if details_col is not None:
        added.append(_checked(details, DETAILS_TYPE).alias(details_col))
    kept = [columns.column(name) for name in keyed.columns if not name.startswith(PREFIX)]
    rows = joined.select(*kept, *added)
    return rows.where(columns.column(error_col).isNull()) if handle_invalid == "skip" else rows


def _checked(value: Column, kind: DataType) -> Column:
    """Return `value`, which fails where a good row met no answer."""
    missing = F.col(ERROR).isNull() & F.col(ANSWER + "key").isNull()
    # The row's key in the message is more than a help: an expression over the answers alone would
    # be tried on a row of nulls by the optimizer (EliminateOuterJoin), and fail there.
    failure = F.raise_error(F.concat(F.lit(_MISSING), F.lower(F.hex(F.col(KEY)))))
    return F.when(missing, failure.cast(kind)).otherwise(value.cast(kind))


def _broadcast_bytes(spark: SparkSession) -> int:
    """Return spark.sql.autoBroadcastJoinThreshold, which may be "10485760b", "10MB" or "-1"."""
    text = spark.conf.get("spark.sql.autoBroadcastJoinThreshold") or "-1"
    size = re.fullmatch(r"(-?\d+)\s*([kmgtp]?)b?", text.strip().lower())
    return int(size[1]) << _UNITS[size[2]] if size else -1
