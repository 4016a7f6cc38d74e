"""bridge_over_raydp, bridge_over_parquet: a million rows of 1 KB there and back, over RayDP's own calls and parquet."""

from __future__ import annotations

import sys
import tempfile
import time
from typing import Any

from integration_tests.bench import Bench
from platform_plugin import release_answers
from platform_plugin.bridges import load_bridge

ROWS = 1_000_000


def run(bench: Bench) -> None:
    """Time the legs of each way; RayDP's own return leg is set against ours too."""
    from pyspark.sql import functions as F

    frame: Any = bench.spark.range(0, ROWS, 1, 32).select(
        "id", F.repeat(F.md5(F.col("id").cast("string")), 31).alias("text")
    )
    # The first to fill the object store waits for its pages: once around before the clock counts.
    _ours(frame, "raydp", None)
    ours = _ours(frame, "raydp", None)
    with tempfile.TemporaryDirectory(prefix="platform-plugin-bench-") as folder:
        files = _ours(frame, "parquet", folder)
    bench.record("bridge_over_parquet", sum(files) / sum(ours), "ratio", ours_s=sum(ours), parquet_s=sum(files))
    try:
        theirs = _raydp(frame, bench.spark)
    except Exception as exc:
        sys.stdout.write(f"bridge_over_raydp: RayDP's own way failed on {ROWS} rows: {type(exc).__name__}: {exc}\n")
        return
    legs = {"ours_there_s": ours[0], "ours_back_s": ours[1], "raydp_there_s": theirs[0], "raydp_back_s": theirs[1]}
    bench.record("bridge_over_raydp", sum(theirs) / sum(ours), "ratio", **legs)
    bench.record("bridge_back_over_raydp", theirs[1] / ours[1], "ratio", **legs)


def _ours(frame: Any, name: str, folder: str | None) -> tuple[float, float]:
    bridge = load_bridge(name, folder)
    began = time.monotonic()
    with bridge.to_ray(frame) as dataset:
        there = time.monotonic()
        kept = dataset.map_batches(lambda t: t, batch_format="pyarrow", batch_size=None).materialize()
        copied = time.monotonic()
        back = bridge.to_spark(kept, frame.schema, frame.sparkSession)
        _read(back)
    ended = time.monotonic()
    release_answers(back)
    return there - began, ended - copied


def _raydp(frame: Any, spark: Any) -> tuple[float, float]:
    import ray
    from raydp.spark.dataset import from_spark_recoverable, release_spark_recoverable  # noqa: F401

    began = time.monotonic()
    dataset = ray.data.from_spark(frame)
    there = time.monotonic()
    _read(dataset.to_spark(spark))
    ended = time.monotonic()
    return there - began, ended - there


def _read(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()
