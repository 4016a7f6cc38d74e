"""driver_memory_growth, rows_growth: what a row costs as rows grow a hundredfold; with the echo engine."""

from __future__ import annotations

from typing import Any

from integration_tests.bench import Bench
from integration_tests.bench._peak import Peak
from platform_plugin import LLMPredictor, release_answers


def run(bench: Bench) -> None:
    """Transform 10^4, 10^5 and 10^6 rows, each after one like it, and count the rows that come back."""
    from pyspark.sql import functions as F

    stage = LLMPredictor(inputCol="message", engine="echo", batchSize=1024)
    seconds: dict[int, float] = {}
    peak: dict[int, float] = {}
    for rows in (10_000, 100_000, 1_000_000):
        frame: Any = bench.spark.range(0, rows, 1, max(2, rows // 25_000)).select(
            F.concat(F.lit("message "), F.col("id").cast("string")).alias("message")
        )
        if rows == 10_000:
            release_answers(stage.transform(frame))
        with Peak() as memory:
            answered = stage.transform(frame)
        report = stage.lastReport
        assert report is not None
        if answered.where("prediction IS NOT NULL").count() != rows:
            raise SystemExit("rows are missing")
        release_answers(answered)
        seconds[rows], peak[rows] = report.seconds, memory.bytes
        print(f"  {rows:,} rows in {report.seconds:.1f} s {report.steps}")
    bench.record(
        "driver_memory_growth",
        peak[1_000_000] / peak[10_000],
        "ratio",
        **{f"bytes_{rows}": value for rows, value in peak.items()},
    )
    per_row = {rows: s / rows for rows, s in seconds.items()}
    bench.record(
        "rows_growth",
        per_row[1_000_000] / per_row[100_000],
        "ratio",
        **{f"us_per_row_{rows}": value * 1e6 for rows, value in per_row.items()},
    )
