"""Cases of functions for groups, windows and whole frames; see `udf_cases`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from integration_tests.udf_cases import Maker, case, numbers

# Groups and windows


@case
def aggregates_of_groups_and_windows(spark: SparkSession, make: Maker) -> DataFrame:
    @make.pandas_udf("double")
    def mean(x: pd.Series) -> float:
        return float(x.mean())

    frame = numbers(spark).withColumn("k", F.col("id") % 5)
    over = Window.partitionBy("k").orderBy("id")
    slid = frame.select("k", mean("n").over(over.rowsBetween(-1, 1)), mean("n").over(Window.partitionBy("k")))
    return frame.groupBy("k").agg(mean("n"), mean("id")).join(slid, "k")


@case
def apply_in_pandas(spark: SparkSession, make: Maker) -> DataFrame:
    def centered(key: tuple[Any, ...], group: pd.DataFrame) -> pd.DataFrame:
        return group.assign(n=group.n - group.n.mean(), k=key[0])

    groups = numbers(spark).withColumn("k", F.col("id") % 5).groupBy("k")
    return groups.applyInPandas(make.frame_function(centered), "id long, n double, s string, k long")


@case
def apply_in_pandas_with_wrong_columns(spark: SparkSession, make: Maker) -> DataFrame:
    groups = numbers(spark).groupBy("id")
    return groups.applyInPandas(make.frame_function(lambda group: group[["id", "s"]]), "id long, n double")


@case
def apply_in_pandas_of_a_cogroup(spark: SparkSession, make: Maker) -> DataFrame:
    def merged(key: tuple[Any, ...], left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"k": [key[0]], "left": [len(left)], "right": [right["s"].str.cat()]})

    left = numbers(spark).withColumn("k", F.col("id") % 5)
    right = numbers(spark).where("id < 43").withColumn("k", F.col("id") % 7)
    groups = left.groupBy("k").cogroup(right.groupBy("k"))
    return groups.applyInPandas(make.frame_function(merged), "k long, left long, right string")


# Frames


@case
def map_in_pandas(spark: SparkSession, make: Maker) -> DataFrame:
    def even(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for _ in range(3):
                yield frame[frame.id % 2 == 0]

    return numbers(spark).mapInPandas(make.frame_function(even), "id long, n double, s string")


@case
def map_in_pandas_makes_many_rows_of_one(spark: SparkSession, make: Maker) -> DataFrame:
    def many(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for number in range(40):
                yield pd.DataFrame({"id": np.arange(60_000) + 60_000 * number, "of": frame.id.iloc[0]})

    return (
        spark.range(0, 1, 1, 1)
        .mapInPandas(make.frame_function(many), "id long, of long")
        .agg(F.sum("id"), F.count("of"))
    )


@case
def map_in_pandas_stops_early(spark: SparkSession, make: Maker) -> DataFrame:
    def first(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield next(frames)[:3]

    return numbers(spark, rows=50_000, partitions=2).mapInPandas(
        make.frame_function(first), "id long, n double, s string"
    )


@case
def map_in_arrow(spark: SparkSession, make: Maker) -> DataFrame:
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    frame = numbers(spark)
    return frame.mapInArrow(make.frame_function(same), frame.schema)
