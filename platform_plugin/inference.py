"""Step 8: the requests stream through the engine. The only ``map_batches`` that calls engines.

Runs on the driver (`infer`), in Ray Data's actors (`Forwarder`) and in one actor a run (`Monitor`). Where engines
come from is `pool`'s; what becomes of the answers is the bridge's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin import pool
from platform_plugin.config import Ask
from platform_plugin.engines import answer_schema, error_row
from platform_plugin.errors import CancelledError, EngineError, HandOffError, PlatformPluginError
from platform_plugin.replica import COUNTERS
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    import ray.data

# In flight per replica: with 64 rows a batch, as many as an engine schedules at once, so that it never waits for us.
BATCHES_IN_FLIGHT = 16
# Blocks that a forwarder works on at once: the next one's batches fill the engine while the last ones of this end.
BLOCKS_IN_FLIGHT = 4
REPLICAS_PER_FORWARDER = 8
POLL_S = 0.25
CANCEL_S = 30.0


@dataclass
class Standing:
    """How far a run is, as its monitor knows it; counts a batch twice where a lost worker's work was done again."""

    tally: Tally = field(default_factory=Tally)
    first: dict[str, dict[str, float]] = field(default_factory=dict)
    last: dict[str, dict[str, float]] = field(default_factory=dict)
    deaths: int = 0

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

    async def add(self, part: Tally, riders: dict[str, Any]) -> None:
        """Add one batch."""
        standing = self._standing
        standing.tally.merge(part)
        standing.first.setdefault(riders["replica"], riders["before"])
        standing.last[riders["replica"]] = riders["after"]

    async def standing(self) -> Standing:
        """Return the sums as they are now."""
        return self._standing

    async def began(self, key: bytes) -> None:
        """Note that the batch that starts with `key` runs alone on its replica."""
        self._began.add(key)

    async def died(self, key: bytes) -> bool:
        """Note a death; return whether the batch that starts with `key` was running alone in it."""
        self._standing.deaths += 1
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


@dataclass(frozen=True)
class Limits:
    """Rows of a batch, and batches that one forwarder has in flight."""

    batch_rows: int
    in_flight: int


class Forwarder:
    """Passes batches to the engine, and asks again where an engine dies. Runs on: Ray actor (Ray Data).

    Every call in flight fails with its engine, so most batches that fail are innocent. A batch is blamed only for a
    death in which it was alone on the replica: one that was there twice is asked alone, one that dies alone is
    halved until the row is found.
    """

    def __init__(self, app: str, ask: Ask, monitor: Any, output: pa.DataType, limits: Limits) -> None:
        self._handle = pool.handle(app)
        self._ask = ask
        self._monitor = monitor
        self._schema = answer_schema(output)
        self._batch_rows = limits.batch_rows
        self._free = asyncio.Semaphore(limits.in_flight)
        self._stopped: asyncio.Future[str] | None = None

    async def __call__(self, block: pa.Table) -> pa.Table:
        """Answer a block; batches of all blocks at hand are in flight together, so that the engine never drains."""
        if self._stopped is None:
            self._stopped = asyncio.ensure_future(_value(self._monitor.stopped.remote()))
        starts = range(0, block.num_rows, self._batch_rows)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._batch(block.slice(i, self._batch_rows))) for i in starts]
        return pa.concat_tables([self._schema.empty_table(), *(task.result() for task in tasks)])

    async def _batch(self, batch: pa.Table) -> pa.Table:
        async with self._free:
            return await self._answer(batch, deaths=0)

    async def _answer(self, batch: pa.Table, deaths: int) -> pa.Table:
        from ray.exceptions import RayActorError

        key = batch["key"][0].as_py()
        while True:
            alone = deaths >= 2
            try:
                answers = await self._call(batch, alone)
            except RayActorError:
                blamed = await self._monitor.died.remote(key)
                deaths += 1
                if not (alone and blamed):
                    continue
                if batch.num_rows == 1:
                    return self._killer(batch)
                half = batch.num_rows // 2
                parts = [await self._answer(part, deaths) for part in (batch.slice(0, half), batch.slice(half))]
                return pa.concat_tables(parts)
            riders = json.loads((answers.schema.metadata or {})[COUNTERS])
            answers = answers.replace_schema_metadata(None)
            part = Tally()
            part.add(answers)
            self._monitor.add.remote(part, riders)
            return answers

    async def _call(self, batch: pa.Table, alone: bool) -> pa.Table:
        assert self._stopped is not None
        response = self._handle.infer.remote(batch, self._ask, self._monitor if alone else None)
        call = asyncio.ensure_future(_value(response))
        await asyncio.wait({call, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        if call.done():
            return call.result()
        response.cancel()  # type: ignore[no-untyped-call]
        call.cancel()
        raise CancelledError(self._stopped.result())

    def _killer(self, batch: pa.Table) -> pa.Table:
        error = error_row(
            "engine",
            "EngineDiedError",
            "the engine's process dies each time it answers this row alone",
            False,
        )
        row = {"key": batch["key"][0].as_py(), "error": error, "truncated": False}
        answers = pa.Table.from_pylist([row], schema=self._schema)
        part = Tally()
        part.add(answers)
        riders = {
            "replica": "",
            "before": {"busy_s": 0.0, "time": 0.0},
            "after": {"busy_s": 0.0, "time": 0.0},
        }
        self._monitor.add.remote(part, riders)
        return answers


def infer(
    requests: ray.data.Dataset,
    app: str,
    ask: Ask,
    output: pa.DataType,
    *,
    batch_size: int,
    max_replicas: int,
    watch: Callable[[Standing], None],
) -> tuple[ray.data.Dataset, Standing]:
    """Answer every request and return the materialized answers with the run's last standing. Runs on: driver.

    `watch` is called about four times a second with how far the run is; what it raises ends the run, as Ctrl-C does:
    the workers are told to stop, the engine aborts what is in flight, and the engine stays warm.

    Raises:
        EngineStartError: a replica that was lost could not be replaced.
        HandOffError: a block of requests came back with another number of rows.
    """
    import ray
    from ray.data import ActorPoolStrategy

    asked = requests.count()
    monitor: Any = ray.remote(Monitor).options(num_cpus=0, max_concurrency=1000).remote()
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    limits = Limits(batch_size, BATCHES_IN_FLIGHT * min(max_replicas, REPLICAS_PER_FORWARDER))
    answers = requests.map_batches(
        Forwarder,
        fn_constructor_args=(app, ask, monitor, output, limits),
        batch_size=None,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            size=math.ceil(max_replicas / REPLICAS_PER_FORWARDER),
            max_concurrent_calls_per_actor=BLOCKS_IN_FLIGHT,
        ),
        num_cpus=0,
    )
    answers.context.enable_progress_bars = False
    worker = _Worker(answers)
    try:
        while not worker.done.wait(POLL_S):
            watch(ray.get(monitor.standing.remote()))
    except BaseException as exc:
        ray.get(monitor.stop.remote(type(exc).__name__))
        worker.done.wait(CANCEL_S)
        raise
    if worker.error is not None:
        raise _own(worker.error) from worker.error
    standing = ray.get(monitor.standing.remote())
    watch(standing)
    made = worker.result
    assert made is not None
    if made.count() != asked:
        raise HandOffError(f"{asked} requests were handed to Ray and {made.count()} answers came back.")
    return made, standing


def count(answers: ray.data.Dataset) -> tuple[Tally, int]:
    """Sum what the answers say, each exactly once, where they lie; also their size in bytes. Runs on: driver."""
    import ray

    @ray.remote(num_cpus=0)
    def one(block: pa.Table) -> tuple[Tally, int]:
        part = Tally()
        part.add(block)
        return part, block.nbytes

    tally, size = Tally(), 0
    for part, size_bytes in ray.get([one.remote(ref) for ref in answers.to_arrow_refs()]):
        tally.merge(part)
        size += size_bytes
    return tally, size


class _Worker:
    """Materializes a dataset in a thread, so that the driver's own thread can watch, and can be interrupted."""

    def __init__(self, dataset: ray.data.Dataset) -> None:
        self._dataset = dataset
        self.result: ray.data.Dataset | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._run, name="platform-plugin-inference", daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._dataset.materialize()
        except BaseException as exc:
            self.error = exc
        finally:
            self.done.set()


async def _value(awaitable: Any) -> Any:
    return await awaitable


def _own(exc: BaseException) -> BaseException:
    """Return the error of ours that Ray wrapped, or an EngineError with the last words of what it wrapped."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [exc]
    while queue:
        found = queue.pop(0)
        if found is None or found in seen:
            continue
        seen.append(found)
        if isinstance(found, PlatformPluginError):
            return type(found)(*found.args)
        queue += [getattr(found, "cause", None), found.__cause__, found.__context__]
    return EngineError(f"the run ended: {type(seen[-1]).__name__}: {seen[-1]}")
