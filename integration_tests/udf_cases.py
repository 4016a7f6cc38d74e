"""What a UDF can be and do: each case is run on Spark's executors and on Ray's actors, and must come out the same.

A case takes the session and a `Maker`, which makes UDFs of either sort, and returns a frame. It may fail: then the
error must be the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t


class Maker(NamedTuple):
    """The three ways to make a UDF, and what a function for a frame's method is wrapped in."""

    pandas_udf: Any
    udf: Any
    predict_batch_udf: Any
    frame_function: Callable[[Any], Any]


Case = Callable[[SparkSession, Maker], DataFrame]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def numbers(spark: SparkSession, rows: int = 100, partitions: int = 3) -> DataFrame:
    return spark.range(0, rows, 1, partitions).select(
        "id",
        F.when(F.col("id") % 7 != 0, F.col("id")).cast("int").alias("n"),
        F.concat(F.lit("a"), F.col("id").cast("string")).alias("s"),
    )


# Scalar


@case
def int_column_with_nulls(spark: SparkSession, make: Maker) -> DataFrame:
    seen = make.pandas_udf(lambda n: n.map(repr) + str(n.dtype), "string")
    return numbers(spark).select("id", seen("n"))


@case
def declared_by_type_hints(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("id long, text string")
    def both(x: pd.Series, s: pd.Series) -> pd.DataFrame:
        return pd.DataFrame({"id": x + 1, "text": s.str.upper()})

    return numbers(spark).select(both("id", "s").alias("b")).select("b.*")


@case
def struct_comes_in_as_a_frame(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf(t.StringType())
    def shown(both: pd.DataFrame) -> pd.Series:
        return both["id"].astype(str) + both["s"] + ",".join(both.columns)

    return numbers(spark).select(shown(F.struct("id", "s")))


@case
def arrays_and_nested_types(spark: SparkSession, make: Maker) -> DataFrame:
    twice = make.pandas_udf(lambda a: a.map(lambda x: None if x is None else np.concatenate([x, x])), "array<long>")
    told = make.pandas_udf(lambda a: a.map(repr), "string")
    frame = numbers(spark).withColumn("a", F.when(F.col("id") % 5 != 0, F.array("id", F.lit(None).cast("long"))))
    nested = F.array(F.struct(F.col("s"), F.create_map(F.col("s"), F.col("n"))))
    return frame.select(twice("a"), told("a"), told(nested))


@case
def nested_calls_and_filter(spark: SparkSession, make: Maker) -> DataFrame:
    half = make.pandas_udf(lambda x: x / 2, "long")
    told = make.pandas_udf(lambda x: x.map(repr), "string")
    return (
        numbers(spark)
        .where(half("id") > 10)
        .select(told(half("id")), told(half(half("id") + 1)), F.col("id") + half("id"))
    )


@case
def with_a_udf_of_spark_in_one_select(spark: SparkSession, make: Maker) -> DataFrame:
    ours = make.pandas_udf(lambda x: x + 1, "long")
    sparks = F.pandas_udf(lambda x: x * 10, "long")  # type: ignore[call-overload]
    return numbers(spark).select(ours("id"), sparks("id"), sparks(ours("id")), ours(sparks("id")))


@case
def result_is_coerced(spark: SparkSession, make: Maker) -> DataFrame:
    made = [make.pandas_udf(lambda x: x * 1.0, kind)("id") for kind in ("int", "double", "long", "float")]
    return numbers(spark).select(*made)


@case
def result_overflows(spark: SparkSession, make: Maker) -> DataFrame:
    return numbers(spark).select(make.pandas_udf(lambda x: x * 300, "tinyint")("id"))


@case
def result_is_categorical(spark: SparkSession, make: Maker) -> DataFrame:
    return numbers(spark).select(make.pandas_udf(lambda s: s.astype("category"), "string")("s"))


@case
def wrong_type(spark: SparkSession, make: Maker) -> DataFrame:
    return numbers(spark, partitions=1).select(make.pandas_udf(lambda s: s, "long")("s"))


@case
def not_a_series(spark: SparkSession, make: Maker) -> DataFrame:
    return numbers(spark).select(make.pandas_udf(lambda x: 3, "long")("id"))


@case
def too_few_rows(spark: SparkSession, make: Maker) -> DataFrame:
    # One partition: with more, the error is that of whichever fails first, and they differ in length.
    return numbers(spark, partitions=1).select(make.pandas_udf(lambda x: x[:-1], "long")("id"))


@case
def missing_column_of_a_struct(spark: SparkSession, make: Maker) -> DataFrame:
    made = make.pandas_udf(lambda x: pd.DataFrame({"a": x, "c": x}), "a long, b long")
    return numbers(spark).select(made("id"))


@case
def raises_on_row_7(spark: SparkSession, make: Maker) -> DataFrame:
    def check(value: int) -> int:
        if value == 7:
            raise ValueError(f"row {value} is rotten: ü")
        return value

    @make.pandas_udf("long")
    def checked(x: pd.Series) -> pd.Series:
        return x.map(check)

    return numbers(spark).select(checked("id"))


@case
def raises_its_own_class_from_another(spark: SparkSession, make: Maker) -> DataFrame:
    class RottenError(Exception):
        def __init__(self, row: int, why: str) -> None:
            super().__init__(f"{row}: {why}")

    @make.pandas_udf("long")
    def checked(x: pd.Series) -> pd.Series:
        try:
            raise KeyError("inner")
        except KeyError as exc:
            raise RottenError(7, "outer") from exc

    return numbers(spark, partitions=1).select(checked("id"))


@case
def raises_stop_iteration(spark: SparkSession, make: Maker) -> DataFrame:
    return numbers(spark, partitions=1).select(make.pandas_udf(lambda x: next(iter([])), "long")("id"))


@case
def moments_in_the_session_time_zone(spark: SparkSession, make: Maker) -> DataFrame:
    told = make.pandas_udf(lambda x: x.map(str) + str(x.dtype), "string")
    hour = make.pandas_udf(lambda x: x + pd.Timedelta(hours=1), "timestamp")
    row = make.udf(lambda x: None if x is None else x + datetime.timedelta(hours=1), "timestamp")
    base = "timestamp'2024-11-03 06:30:00Z' + make_interval(0,0,0,0,id)"
    frame = spark.range(0, 5, 1, 2).selectExpr("id", f"{base} as at", f"cast({base} as date) as day")
    return frame.select("id", told("at"), hour("at"), row("at"), told("day"))


@case
def decimals_of_many_digits(spark: SparkSession, make: Maker) -> DataFrame:
    plus = make.pandas_udf(lambda x: x + Decimal("0.000000000000000001"), "decimal(38,18)")
    row = make.udf(lambda x: x * 2, "decimal(38,18)")
    frame = spark.range(3).selectExpr("cast('12345678901234567890.123456789012345678' as decimal(38,18)) + id as d")
    return frame.select("d", plus(F.col("d").cast("decimal(38,18)")), row(F.col("d").cast("decimal(38,18)")))


@case
def reads_the_task_context(spark: SparkSession, make: Maker) -> DataFrame:
    def told(x: Any) -> str:
        context = TaskContext.get()
        assert context is not None
        return f"{context.partitionId()} {context.cpus()} {context.getLocalProperty('callSite.short') is None}"

    spark.sparkContext.setLocalProperty("udf.case", "7")
    batch = make.pandas_udf(lambda x: x.map(told), "string")
    return numbers(spark).select("id", batch("id"), make.udf(told, "string")("id"))


@case
def closes_over_a_broadcast(spark: SparkSession, make: Maker) -> DataFrame:
    names = spark.sparkContext.broadcast({n: f"name {n}" for n in range(0, 100, 2)})
    return numbers(spark).select(
        make.pandas_udf(lambda x: x.map(names.value.get), "string")("id"),
        make.udf(lambda x: names.value.get(x), "string")("id"),
    )


@case
def closes_over_a_megabyte(spark: SparkSession, make: Maker) -> DataFrame:
    table = np.arange(400_000)
    return numbers(spark).select(make.pandas_udf(lambda x: x.map(lambda i: int(table[i])), "long")("id"))


# Iterators


@case
def iterator_keeps_state(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("long")
    def running(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        before = 0
        for batch in batches:
            yield batch.cumsum() + before
            before += int(batch.sum())

    return numbers(spark, rows=25_000, partitions=2).select("id", running("id"))


@case
def iterator_of_tuples(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("string")
    def joined(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        for x, s in batches:
            yield s + x.astype(str)

    return numbers(spark).select(joined("id", "s"))


@case
def iterator_over_empty_partitions(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("long")
    def same(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from batches

    scalar = make.pandas_udf(lambda x: x, "long")
    return spark.createDataFrame(spark.sparkContext.parallelize([(1,), (2,)], 5), "x long").select(
        same("x"), scalar("x")
    )


@case
def iterator_returns_too_few(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("long")
    def first(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            yield batch[:-1]

    return numbers(spark, partitions=1).select(first("id"))


@case
def iterator_leaves_rows(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("long")
    def first(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield next(batches)

    return numbers(spark, rows=30_000, partitions=1).select(first("id"))


@case
def iterator_raises_on_row_7(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("long")
    def checked(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            if (batch == 7).any():
                raise ValueError("row 7 is rotten")
            yield batch

    return numbers(spark).select(checked("id"))


# Rows


@case
def rows_with_nulls_and_no_coercion(spark: SparkSession, make: Maker) -> DataFrame:
    kinds = ("long", "double", "string", "boolean")
    return numbers(spark, 350).select("id", *[make.udf(lambda n: n, kind)("n") for kind in kinds])


@case
def rows_with_arrow(spark: SparkSession, make: Maker) -> DataFrame:
    kinds = ("long", "double", "string")
    return numbers(spark).select("id", *[make.udf(lambda n: n, kind, useArrow=True)("n") for kind in kinds])


@case
def rows_of_structs_maps_and_bytes(spark: SparkSession, make: Maker) -> DataFrame:
    @make.udf("struct<text:string,pairs:map<string,int>,raw:binary>")
    def built(row: Any) -> Any:
        return repr(row), {row.s: row.n}, bytearray(row.s.encode())

    return numbers(spark).select(built(F.struct("id", "n", "s")).alias("b")).select("b.*")


@case
def row_raises(spark: SparkSession, make: Maker) -> DataFrame:
    @make.udf("long")
    def checked(x: int) -> int:
        return 10 // (x - 7)

    return numbers(spark).select(checked("id"))


@case
def registered_for_sql(spark: SparkSession, make: Maker) -> DataFrame:
    numbers(spark).createOrReplaceTempView("numbers_of_case")
    spark.udf.register("plus_one", make.pandas_udf(lambda x: x + 1, "long"))
    spark.udf.register("twice", make.udf(lambda s: s * 2, "string").asNondeterministic())
    return spark.sql("select plus_one(id), twice(s) from numbers_of_case where plus_one(id) > 3")


@case
def predicts_in_batches(spark: SparkSession, make: Maker) -> DataFrame:
    def load() -> Any:
        return lambda x, y: {"sum": x + y.sum(axis=1), "rows": np.full(len(x), len(x))}

    made = make.predict_batch_udf(
        load,
        return_type=t.StructType([t.StructField("sum", t.DoubleType()), t.StructField("rows", t.IntegerType())]),
        batch_size=9,
        input_tensor_shapes=[None, [2]],
    )
    frame = numbers(spark).select(
        F.col("id").cast("double").alias("x"), F.array("id", "id").cast("array<double>").alias("y")
    )
    return frame.select(made("x", "y").alias("p")).select("p.*")
