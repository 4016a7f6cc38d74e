"""One replica of an engine: what Ray Serve runs. How replicas are deployed and found is `pool`'s."""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa

from platform_plugin import credentials
from platform_plugin.config import Ask
from platform_plugin.engines import Engine, EngineSpec
from platform_plugin.errors import EngineDiedError, EngineStartError

COUNTERS = b"__pp_counters"


class Gate:
    """Lets batches in together, or one alone: so that a death can be blamed on the batch that was alone."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._inside = 0
        self._waiting_alone = 0
        self._alone = False

    @asynccontextmanager
    async def enter(self, alone: bool) -> AsyncIterator[None]:
        """Wait until this batch may run; one that wants to be alone goes before those that do not."""
        async with self._changed:
            if alone:
                self._waiting_alone += 1
                try:
                    await self._changed.wait_for(lambda: self._inside == 0)
                finally:
                    self._waiting_alone -= 1
                self._alone = True
            else:
                await self._changed.wait_for(lambda: not (self._alone or self._waiting_alone))
            self._inside += 1
        try:
            yield
        finally:
            async with self._changed:
                self._inside -= 1
                self._alone = False if alone else self._alone
                self._changed.notify_all()


class Replica:
    """Holds one engine and answers batches with it. Runs on: Ray actor (a Serve replica).

    A start that fails is kept and told to whoever asks: an error in a constructor would be retried by Serve, and
    its words reach nobody in one piece.
    """

    def __init__(self, spec: EngineSpec) -> None:
        self._id = uuid.uuid4().hex[:12]
        self._engine: Engine | None = None
        self._failure: EngineStartError | None = None
        self._gate = Gate()
        credentials.fetch()
        try:
            self._engine = spec.build()
        except EngineStartError as exc:
            self._failure = exc

    async def ready(self) -> str:
        """Return the replica's id once its engine is loaded; raises EngineStartError in the engine's own words."""
        self._started()
        return self._id

    async def infer(self, batch: pa.Table, ask: Ask, alone: Any = None) -> pa.Table:
        """Answer a batch; the counters before and after ride on the schema's metadata.

        `alone`: the run's `monitor.Watch`, where the batch is to have the replica to itself; it is told from when until
        when it does.
        """
        engine = self._started()
        async with self._gate.enter(alone is not None):
            if alone is not None:
                await alone.tell("began", batch["key"][0].as_py())
            before = self._counters(engine)
            try:
                answers = await engine.infer(batch, ask)
            except EngineDiedError:
                # Serve replaces a replica that is gone; every batch in flight on it is asked again.
                os._exit(1)
            if alone is not None:
                # Its answers may be lost on their way, by the death of the batch after it.
                await alone.tell("ended", batch["key"][0].as_py())
        riders = {"replica": self._id, "before": before, "after": self._counters(engine)}
        return answers.replace_schema_metadata({COUNTERS: json.dumps(riders)})

    async def prefixes(self) -> tuple[str, list[str]]:
        """Return the replica's id and the prefixes that its engine saw, where the engine remembers them (echo)."""
        return self._id, getattr(self._started(), "prefixes", list)()

    async def close(self) -> None:
        """Stop the engine and its processes."""
        if self._engine is not None:
            await self._engine.close()

    async def __del__(self) -> None:
        await self.close()

    def _started(self) -> Engine:
        if self._failure is not None:
            raise self._failure
        assert self._engine is not None
        return self._engine

    @staticmethod
    def _counters(engine: Engine) -> dict[str, float]:
        return {**engine.counters(), "time": time.time()}
