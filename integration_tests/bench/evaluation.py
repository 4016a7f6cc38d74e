"""evaluation_growth: what a row of an evaluation costs, and what the driver holds, as rows grow a hundredfold."""

from __future__ import annotations

import time

from pyspark.sql import functions as F

from integration_tests.bench import Bench
from integration_tests.bench._peak import Peak
from platform_plugin import evaluate

METRICS = ["accuracy", "macro_f1", "rougeL", "token_f1", "error_rate"]
TEXT = "my card has not arrived yet and the money that I sent was charged twice by the shop"


def run(bench: Bench) -> None:
    """Evaluate 10^4, 10^5 and 10^6 rows of existing predictions: five metrics, two models, 1,000 resamples."""
    spark = bench.spark
    words = F.split(F.lit(TEXT), " ")
    seconds: dict[int, float] = {}
    peak: dict[int, float] = {}
    for rows in (10_000, 100_000, 1_000_000):
        places = (F.col("id"), F.col("id") * 7)
        label, other = (F.array_join(F.slice(words, place % 9 + 1, 10), " ") for place in places)
        frame = spark.range(0, rows, 1, max(2, rows // 50_000)).select(
            "id",
            label.alias("label"),
            F.when(F.col("id") % 3 > 0, label).otherwise(other).alias("a"),
            F.when(F.col("id") % 4 > 0, label).alias("b"),
        )
        if rows == 10_000:
            evaluate({"a": "a", "b": "b"}, frame, "label", METRICS, baseline="a", key="id", track=False)
        with Peak() as memory:
            began = time.monotonic()
            result = evaluate({"a": "a", "b": "b"}, frame, "label", METRICS, baseline="a", key="id", track=False)
            seconds[rows] = time.monotonic() - began
        if result.rows != rows or round(result.metrics["b"]["error_rate"], 9) != 0.25:
            raise SystemExit(f"rows are missing: {result}")
        peak[rows] = memory.bytes
        print(f"  {rows:,} rows in {seconds[rows]:.1f} s, driver {memory.bytes / 2**20:,.0f} MB")
    bench.record(
        "evaluation_growth",
        (seconds[1_000_000] / 1_000_000) / (seconds[100_000] / 100_000),
        "ratio of seconds a row",
        **{f"seconds_{rows}": value for rows, value in seconds.items()},
    )
    bench.record(
        "evaluation_driver_memory_growth",
        peak[1_000_000] / peak[10_000],
        "ratio",
        **{f"bytes_{rows}": value for rows, value in peak.items()},
    )
