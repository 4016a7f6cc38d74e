"""How long Spark takes over frames that are read to their end and go nowhere."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def apart(spark: Any) -> Iterator[None]:
    """Give the functions whose columns and frames are made in this context Python workers of their own.

    Spark keeps its workers: those that ran our tasks have joined Ray and do less between tasks, and those that ran the
    other side's may keep torch, which slows ours. Apart, each side has what a program of its own would have.
    """
    environment = spark.sparkContext.environment
    environment["BENCH_SIDE"] = "theirs"
    try:
        yield
    finally:
        del environment["BENCH_SIDE"]


def in_turns(ours: Any, theirs: Any, times: int) -> tuple[float, float, float]:
    """Return seconds of our first run, and of both sides' the medians of so many further ones, in turns."""
    cold = seconds(ours)
    seconds(theirs)
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(times)]
    return cold, statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def median(frame: Any, times: int) -> float:
    """Return the median of so many runs after one."""
    seconds(frame)
    return statistics.median(seconds(frame) for _ in range(times))


def seconds(frame: Any) -> float:
    """Return the seconds of one run."""
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
