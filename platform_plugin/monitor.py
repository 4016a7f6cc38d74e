"""How far a run is, and whether it goes on: an actor that the workers tell and the driver asks, warm for all runs."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from platform_plugin.actors import warm_actor
from platform_plugin.errors import PlatformPluginError
from platform_plugin.tally import Tally


@dataclass
class Standing:
    """How far a run is, as its monitor knows it; counts a batch twice where a lost worker's work was done again."""

    tally: Tally = field(default_factory=Tally)
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    last: dict[str, dict[str, float]] = field(default_factory=dict)
    lost: int = 0
    """Calls that ended with their engine, and were made again."""
    rows: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """Rows of a stream, and those of them that were not asked, by type."""
    error: PlatformPluginError | None = None
    """Why a Spark task of the run failed, where one did."""

    @property
    def busy_share(self) -> float | None:
        """Share of the time between a replica's first and last batch in which it had work, over all replicas."""
        spans = [
            (self.last[r]["busy_s"] - f["busy_s"], self.last[r]["time"] - f["time"]) for r, f in self.first.items()
        ]
        total = sum(span for _, span in spans)
        return min(1.0, sum(busy for busy, _ in spans) / total) if total > 0 else None


class Watched:
    """One run, as the monitor sees it."""

    def __init__(self) -> None:
        self.standing = Standing()
        self.stop = asyncio.Event()
        self.reason = ""
        self.alone: set[bytes] = set()


class Monitor:
    """Sums what comes back and tells the workers of a run to stop. Runs on: Ray actor, one a driver."""

    def __init__(self) -> None:
        self._runs: defaultdict[str, Watched] = defaultdict(Watched)
        self._released: set[str] = set()

    async def add(self, run: str, part: Tally, riders: dict[str, Any] | None) -> None:
        """Add one batch, and the counters of its replica before and after, where an engine answered it."""
        standing = self._runs[run].standing
        standing.tally.merge(part)
        if riders is not None:
            standing.first.setdefault(riders["replica"], riders["before"])
            standing.last[riders["replica"]] = riders["after"]

    async def standing(self, run: str) -> Standing:
        """Return the sums as they are now."""
        return self._runs[run].standing

    async def began(self, run: str, key: bytes) -> None:
        """Note that the batch that starts with `key` runs alone on its replica."""
        self._runs[run].alone.add(key)

    async def ended(self, run: str, key: bytes) -> None:
        """Note that the batch that starts with `key` has its answers, and its replica goes on to others."""
        self._runs[run].alone.discard(key)

    async def lost(self, run: str, key: bytes) -> bool:
        """Note a lost call; return whether the batch that starts with `key` was running alone when it was lost."""
        watched = self._runs[run]
        watched.standing.lost += 1
        was_alone = key in watched.alone
        watched.alone.discard(key)
        return was_alone

    async def seen(self, run: str, rows: int, refused: dict[str, int]) -> None:
        """Add rows of a stream, and those of them that are not asked, by type."""
        standing = self._runs[run].standing
        standing.rows += rows
        standing.refused = dict(Counter(standing.refused) + Counter(refused))

    async def failed(self, run: str, error: PlatformPluginError) -> None:
        """Keep why a task of the run failed: what Spark says of it has lost its type."""
        self._runs[run].standing.error = error

    async def stop(self, run: str, reason: str) -> None:
        """Have every worker of the run abort what it has in flight and end."""
        self._runs[run].reason = reason
        self._runs[run].stop.set()

    async def stopped(self, run: str) -> str:
        """Return the reason once `stop` is called."""
        watched = self._runs[run]
        await watched.stop.wait()
        return watched.reason

    async def forget(self, run: str) -> None:
        """Let go of a run that has ended, and of those that wait for its stop."""
        watched = self._runs.pop(run, None)
        if watched is not None:
            watched.stop.set()

    async def release(self, run: str) -> None:
        """Note that the answers of a run are released: nobody is to ask for them again."""
        self._released.add(run)

    async def released(self, run: str) -> bool:
        """Return whether the answers of a run were released."""
        return run in self._released


@dataclass(frozen=True)
class Watch:
    """One run's side of the monitor; pickles to the workers."""

    run: str
    actor: Any
    name: str

    @classmethod
    def start(cls) -> Watch:
        """Return the watch of a new run, in this driver's warm monitor. Runs on: driver."""
        import ray

        name = f"__pp_monitor_{ray.get_runtime_context().get_job_id()}"
        return cls(uuid.uuid4().hex[:12], warm_actor(Monitor, name, max_concurrency=1000), name)

    @classmethod
    def find(cls, run: str, name: str) -> Watch:
        """Return a run's watch by the name of its monitor; ValueError if that has ended. Runs on: Spark executor."""
        import ray

        return cls(run, ray.get_actor(name), name)

    def tell(self, method: str, *args: Any) -> Any:
        """Call a method of the monitor for this run and return the reference."""
        return getattr(self.actor, method).remote(self.run, *args)
