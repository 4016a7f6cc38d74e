"""What stands before the engines: passes batches on, many at once; asks again where an engine dies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import random
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from platform_plugin import pool
from platform_plugin.config import Ask
from platform_plugin.engines import answer_schema, error_row
from platform_plugin.errors import CancelledError
from platform_plugin.monitor import Watch
from platform_plugin.replica import COUNTERS
from platform_plugin.tally import Tally

# A block goes to each replica in so many runs of neighbours: few, so that a prefix meets its cache; not one, so that
# a single block keeps all replicas busy.
SPANS_PER_REPLICA = 4


@dataclass(frozen=True)
class Limits:
    """Rows of a batch, batches that one forwarder has in flight, and the most replicas that they go to."""

    batch_rows: int
    in_flight: int
    replicas: int


class Forwarder:
    """Passes batches to the engine, and asks again where an engine dies. Runs on: Ray actor (Ray Data), Spark executor.

    Every call in flight fails with its engine, so most batches that fail are innocent. A batch is blamed only for a
    death in which it was alone on the replica: one that was there twice is asked alone, one that dies alone is
    halved until the row is found.
    """

    def __init__(self, app: str, ask: Ask, watch: Watch, output: pa.DataType, limits: Limits) -> None:
        self._handle = pool.handle(app)
        self._ask = ask
        self._watch = watch
        self._schema = answer_schema(output)
        self._limits = limits
        # Not all forwarders begin with the same replica.
        self._spans = itertools.count(random.randrange(1000))
        self._free = asyncio.Semaphore(limits.in_flight)
        self._stopped: asyncio.Future[str] | None = None

    async def __call__(self, block: pa.Table) -> pa.Table:
        """Answer a block; batches of all blocks at hand are in flight together, so that the engine never drains."""
        if self._stopped is None:
            self._stopped = asyncio.ensure_future(_value(self._watch.tell("stopped")))
        rows = self._limits.batch_rows
        batches = [block.slice(i, rows) for i in range(0, block.num_rows, rows)]
        length = math.ceil(len(batches) / (self._limits.replicas * SPANS_PER_REPLICA))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._batch(batch, span))
                for start, span in zip(range(0, len(batches), max(length, 1)), self._spans, strict=False)
                for batch in batches[start : start + length]
            ]
        return pa.concat_tables([self._schema.empty_table(), *(task.result() for task in tasks)])

    @property
    def ended(self) -> bool:
        """Whether the run was stopped or is over; what is asked from then on is refused."""
        return self._stopped is not None and self._stopped.done()

    def close(self) -> None:
        """Let go of the way to the replicas; nothing may be in flight."""
        with contextlib.suppress(Exception):  # one that never sent a batch has nothing to let go of
            self._handle.shutdown()  # type: ignore[no-untyped-call]

    async def _batch(self, batch: pa.Table, span: int) -> pa.Table:
        async with self._free:
            return await self._answer(batch, span, deaths=0)

    async def _answer(self, batch: pa.Table, span: int, deaths: int) -> pa.Table:
        from ray.exceptions import RayActorError

        key = batch["key"][0].as_py()
        while True:
            alone = deaths >= 2
            try:
                answers = await self._call(batch, span, alone)
            except RayActorError:
                blamed = await self._watch.tell("lost", key)
                deaths += 1
                if not (alone and blamed):
                    continue
                if batch.num_rows == 1:
                    return self._killer(batch)
                half = batch.num_rows // 2
                halves = (batch.slice(0, half), batch.slice(half))
                parts = [await self._answer(part, span, deaths) for part in halves]
                return pa.concat_tables(parts)
            riders = json.loads((answers.schema.metadata or {})[COUNTERS])
            return self._counted(answers.replace_schema_metadata(None), riders)

    def _counted(self, answers: pa.Table, riders: dict[str, Any] | None) -> pa.Table:
        part = Tally()
        part.add(answers)
        self._watch.tell("add", part, riders)
        return answers

    async def _call(self, batch: pa.Table, span: int, alone: bool) -> pa.Table:
        assert self._stopped is not None
        handle = self._handle if self._limits.replicas == 1 else self._handle.options(session_id=str(span))
        response = handle.infer.remote(batch, self._ask, self._watch if alone else None)
        call = asyncio.ensure_future(_value(response))
        await asyncio.wait({call, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        if call.done():
            return call.result()
        response.cancel()  # type: ignore[no-untyped-call]
        call.cancel()
        # That it was cancelled is what Serve answers; nobody needs to hear of it.
        call.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        raise CancelledError(self._stopped.result())

    def _killer(self, batch: pa.Table) -> pa.Table:
        error = error_row(
            "engine",
            "EngineDiedError",
            "the engine's process dies each time it answers this row alone",
            False,
        )
        row = {"key": batch["key"][0].as_py(), "error": error, "truncated": False}
        return self._counted(pa.Table.from_pylist([row], schema=self._schema), None)


async def _value(awaitable: Any) -> Any:
    return await awaitable
