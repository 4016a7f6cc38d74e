"""How long Spark takes over frames that are read to their end and go nowhere."""

from __future__ import annotations

import statistics
import time
from typing import Any


def in_turns(ours: Any, theirs: Any, times: int) -> tuple[float, float, float]:
    """Return seconds of our first run, and of both sides' the medians of so many further ones, in turns."""
    cold = seconds(ours)
    seconds(theirs)
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(times)]
    return cold, statistics.median(p[0] for p in pairs), statistics.median(p[1] for p in pairs)


def seconds(frame: Any) -> float:
    """Return the seconds of one run."""
    began = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began
