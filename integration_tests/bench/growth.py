"""driver_memory_growth, rows_growth: what a row costs as rows grow a hundredfold; with the echo engine."""

from __future__ import annotations

import threading
from typing import Any

import psutil

from integration_tests.bench import Bench
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
        with _Peak() as memory:
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


class _Peak:
    """The most memory that this process had while the context was open, sampled ten times a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._over.wait(0.1):
            self.bytes = max(self.bytes, process.memory_info().rss)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
