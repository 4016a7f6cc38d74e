"""udf_memory_growth_*: peak memory of driver, Spark's Python workers and actors, at 10^7 rows over that at 10^5."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pandas as pd

from integration_tests.bench import Bench
from integration_tests.bench._peak import Peak
from udf_compat import functions as on_actors

SIZES = (100_000, 1_000_000, 10_000_000)
PARTITIONS = 16
PLACES = {"driver": None, "spark_workers": "pyspark.daemon", "actors": "ray::UdfReplica"}


def run(bench: Bench) -> None:
    """Run a UDF that adds one over ever more longs, after runs that start what is kept warm."""

    def plus(x: pd.Series) -> pd.Series:
        return x + 1

    spark = bench.spark  # a UDF wants a session
    added = on_actors.pandas_udf(plus, "long")

    def read(rows: int) -> None:
        frame: Any = spark.range(0, rows, 1, PARTITIONS).select(added("id"))
        frame.write.format("noop").mode("overwrite").save()

    for _ in range(3):
        read(SIZES[0])
    peaks: dict[str, dict[int, int]] = {place: {} for place in PLACES}
    for rows in SIZES:
        with ExitStack() as stack:
            watched = {place: stack.enter_context(Peak(title)) for place, title in PLACES.items()}
            read(rows)
        for place, peak in watched.items():
            peaks[place][rows] = peak.bytes
    for place, found in peaks.items():
        sides = {f"bytes_{rows}": float(value) for rows, value in found.items()}
        bench.record(f"udf_memory_growth_{place}", found[SIZES[-1]] / found[SIZES[0]], "ratio", **sides)
