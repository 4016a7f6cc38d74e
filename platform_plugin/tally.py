"""The running sums of a transform's answers: they merge and pickle, since many processes sum them.

Rates and words are made of them in the report.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Self

from platform_plugin.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

# From 1 ms to 2.3 h in steps of 2 ** (1/4): a quantile is off by a tenth at most.
BOUNDS_S: tuple[float, ...] = tuple(0.001 * 2 ** (i / 4) for i in range(93))
"""Upper bounds of the buckets in seconds; what is longer counts in the last one."""

MESSAGES_KEPT = 5


@dataclass
class Histogram:
    """Counts of latencies in fixed log-spaced buckets (`BOUNDS_S`): any two can be added."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BOUNDS_S))

    @property
    def total(self) -> int:
        """How many latencies were added."""
        return sum(self.counts)

    def add(self, seconds: pa.Array | pa.ChunkedArray) -> None:
        """Count every latency of a float64 array, in seconds; nulls and NaN are left out."""
        import numpy as np

        values = seconds.drop_null().to_numpy()
        places = np.searchsorted(BOUNDS_S, values[~np.isnan(values)]).clip(max=len(BOUNDS_S) - 1)
        found = np.bincount(places, minlength=len(BOUNDS_S)).tolist()
        self.counts = [a + b for a, b in zip(self.counts, found, strict=True)]

    def merge(self, other: Histogram) -> None:
        """Add the counts of `other`."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]

    def quantile(self, q: float) -> float | None:
        """Return the seconds that a share `q` of all latencies stays within; None of none."""
        if not 0 <= q <= 1:
            raise ConfigError(f"quantile({q}): a share from 0 to 1 is wanted; 0.99 for the p99.")
        if not self.total:
            return None
        rank = q * self.total
        reached = list(accumulate(self.counts))
        # The first bucket that holds anything, for q=0.
        place = bisect.bisect_left(reached, max(rank, 1e-9))
        high = BOUNDS_S[place]
        low = BOUNDS_S[place - 1] if place else high / 2
        inside = (rank - (reached[place] - self.counts[place])) / self.counts[place]
        return float(low * (high / low) ** inside)

    def to_dict(self) -> dict[str, Any]:
        """Return the buckets that hold anything, as [upper bound in seconds, count]."""
        filled = zip(BOUNDS_S, self.counts, strict=True)
        return {"buckets": [[bound, n] for bound, n in filled if n]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        made = cls()
        for bound, n in values["buckets"]:
            # A hair below the bound, so that a bound that lost its last digit stays in its bucket.
            made.counts[bisect.bisect_left(BOUNDS_S, bound * (1 - 1e-9))] += n
        return made


@dataclass
class Tally:
    """The running sums of one transform. Runs on: driver and Ray actors; without a lock."""

    answered: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    truncated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    latency: Histogram = field(default_factory=Histogram)
    first_s: float | None = None
    last_s: float | None = None

    def add(self, answers: pa.Table, now_s: float | None = None) -> None:
        """Add a table in ``engines.answer_schema(...)`` that came at `now_s` (epoch seconds)."""
        if not answers.num_rows:
            return
        import pyarrow.compute as pc

        error = answers["error"]
        good = error.is_null()
        seconds = answers["seconds"].filter(good)
        now_s = time.time() if now_s is None else now_s
        # The first request began as long ago as the slowest of the first batch took.
        began_s = now_s - (pc.max(seconds).as_py() or 0.0)
        sums: dict[str, Any] = {
            name: pc.sum(answers[name]).as_py() or 0
            for name in ("truncated", "prompt_tokens", "cached_tokens", "output_tokens")
        }
        part = Tally(answered=pc.sum(good).as_py(), first_s=began_s, last_s=now_s, **sums)
        part.latency.add(seconds)
        if part.answered < answers.num_rows:
            bad = error.filter(pc.invert(good))
            kinds = pc.fill_null(pc.struct_field(bad, "type"), "Error")
            part.failed = {e["values"]: e["counts"] for e in kinds.value_counts().to_pylist()}
            told = pc.struct_field(bad.slice(0, MESSAGES_KEPT), "message")
            part.messages = pc.fill_null(told, "").to_pylist()
        self.merge(part)

    def merge(self, other: Tally) -> None:
        """Add the sums of `other`."""
        self.answered += other.answered
        self.failed = dict(Counter(self.failed) + Counter(other.failed))
        self.messages = (self.messages + other.messages)[:MESSAGES_KEPT]
        self.truncated += other.truncated
        self.prompt_tokens += other.prompt_tokens
        self.cached_tokens += other.cached_tokens
        self.output_tokens += other.output_tokens
        self.latency.merge(other.latency)
        firsts = [s for s in (self.first_s, other.first_s) if s is not None]
        lasts = [s for s in (self.last_s, other.last_s) if s is not None]
        self.first_s = min(firsts, default=None)
        self.last_s = max(lasts, default=None)

    @property
    def done(self) -> int:
        """Requests that came back, answered or failed."""
        return self.answered + sum(self.failed.values())

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first request to the last answer."""
        return 0.0 if self.first_s is None or self.last_s is None else self.last_s - self.first_s

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens per second while requests were answered."""
        return self.output_tokens / self.seconds if self.seconds > 0 else None

    def snapshot(self) -> dict[str, Any]:
        """Return the sums as they are now, as JSON values that later additions do not change."""
        return dataclasses.asdict(self) | {"latency": self.latency.to_dict()}
