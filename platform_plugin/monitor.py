"""How far a run is, and whether it goes on: one actor a run, which the workers tell and the driver asks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from platform_plugin.tally import Tally


@dataclass
class Standing:
    """How far a run is, as its monitor knows it; counts a batch twice where a lost worker's work was done again."""

    tally: Tally = field(default_factory=Tally)
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    last: dict[str, dict[str, float]] = field(default_factory=dict)
    lost: int = 0
    """Calls that ended with their engine, and were made again."""

    @property
    def busy_share(self) -> float | None:
        """Share of the time between a replica's first and last batch in which it had work, over all replicas."""
        spans = [
            (self.last[r]["busy_s"] - f["busy_s"], self.last[r]["time"] - f["time"]) for r, f in self.first.items()
        ]
        total = sum(span for _, span in spans)
        return min(1.0, sum(busy for busy, _ in spans) / total) if total > 0 else None


class Monitor:
    """Sums what comes back and tells the workers of a run to stop. Runs on: Ray actor, one a run."""

    def __init__(self) -> None:
        self._standing = Standing()
        self._stop = asyncio.Event()
        self._reason = ""
        self._began: set[bytes] = set()

    async def add(self, part: Tally, riders: dict[str, Any] | None) -> None:
        """Add one batch, and the counters of its replica before and after, where an engine answered it."""
        standing = self._standing
        standing.tally.merge(part)
        if riders is None:
            return
        standing.first.setdefault(riders["replica"], riders["before"])
        standing.last[riders["replica"]] = riders["after"]

    async def standing(self) -> Standing:
        """Return the sums as they are now."""
        return self._standing

    async def began(self, key: bytes) -> None:
        """Note that the batch that starts with `key` runs alone on its replica."""
        self._began.add(key)

    async def lost(self, key: bytes) -> bool:
        """Note a lost call; return whether the batch that starts with `key` was running alone when it was lost."""
        self._standing.lost += 1
        try:
            self._began.remove(key)
        except KeyError:
            return False
        return True

    async def stop(self, reason: str) -> None:
        """Have every worker of the run abort what it has in flight and end."""
        self._reason = reason
        self._stop.set()

    async def stopped(self) -> str:
        """Return the reason once `stop` is called."""
        await self._stop.wait()
        return self._reason
