"""What an engine has done since its start, as sums and counts; rates and averages belong to the report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_TOKENS = ("prompt_tokens", "cached_tokens", "output_tokens")


class Meter:
    """Counts answers and the seconds with at least one request in flight. For one event loop, not for threads."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._in_flight = 0
        self._busy_s = 0.0
        self._since = 0.0

    @contextmanager
    def flight(self) -> Iterator[None]:
        """Hold one request in flight."""
        if self._in_flight == 0:
            self._since = time.monotonic()
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._busy_s += time.monotonic() - self._since

    def count(self, answer: Mapping[str, Any]) -> None:
        """Add one answer, good or bad."""
        self._sums["requests"] += 1
        self._sums["failed"] += answer.get("error") is not None
        for name in _TOKENS:
            self._sums[name] += answer.get(name) or 0

    def read(self) -> dict[str, float]:
        """Return the sums; `in_flight` is a gauge, and `busy_s` includes the running stretch."""
        running = time.monotonic() - self._since if self._in_flight else 0.0
        sums = {name: float(self._sums[name]) for name in ("requests", "failed", *_TOKENS)}
        return sums | {"busy_s": self._busy_s + running, "in_flight": float(self._in_flight)}
