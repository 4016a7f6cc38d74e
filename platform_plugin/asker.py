"""A Spark task's way to the engine: what it has to know, its event loop, and one forwarder for all tasks of a run.

What a task does with it is `inline`'s.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from platform_plugin.connection import Connection
from platform_plugin.errors import HandOffError
from platform_plugin.forwarder import Forwarder, Limits
from platform_plugin.inference import BATCHES_IN_FLIGHT, REPLICAS_PER_FORWARDER
from platform_plugin.known import Known
from platform_plugin.monitor import Watch
from platform_plugin.passage import Question
from platform_plugin.supervision import own_error

TELL_S = 1.0


@dataclass(frozen=True)
class Call:
    """What a Spark task has to know in order to ask; pickles into the functions that Spark runs."""

    connection: Connection
    monitor: str
    run: str
    app: str
    question: Question

    @classmethod
    def of(cls, run: Watch, app: str, question: Question) -> Call:
        """Return the call of a run of this process. Runs on: driver."""
        return cls(Connection.of_driver(), run.name, run.run, app, question)

    @property
    def limits(self) -> Limits:
        """What one task has in flight."""
        replicas = self.question.max_replicas
        return Limits(self.question.batch_rows, BATCHES_IN_FLIGHT * min(replicas, REPLICAS_PER_FORWARDER), replicas)


class Begun(NamedTuple):
    """A batch that was begun: `wait` returns it once `future`, if it waits for any, has its answers."""

    future: Future[pa.Table] | None
    wait: Callable[[], pa.Table]

    @property
    def ready(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.future is None or self.future.done()


class Asker:
    """A Spark task's way to the engine: one loop a Python worker, one forwarder a run. Runs on: Spark executor.

    Attributes:
        known: answers that this Python worker has already, in whichever task of the run.
    """

    def __init__(self, call: Call) -> None:
        self._ray = call.connection.open()
        try:
            self.watch = Watch.find(call.run, call.monitor)
        except ValueError as exc:
            raise HandOffError(
                "the process that asked for these answers has ended, or its Ray; run transform again."
            ) from exc
        self._loop = _loop()
        self._forwarder = _forwarder(call, self.watch)
        self.known = _known_of(call.run)
        self._rows = 0
        self._refused: Counter[str] = Counter()
        self._told_s = time.monotonic()

    def released(self) -> bool:
        """Return whether the answers were released before."""
        return bool(self._ray.get(self.watch.tell("released")))

    def ask(self, requests: pa.Table) -> Future[pa.Table]:
        """Send requests to the engine; the answers come in their order."""
        return asyncio.run_coroutine_threadsafe(self._forwarder(requests), self._loop)

    def seen(self, rows: int, refused: Mapping[str, int]) -> None:
        """Count rows of a stream, and those of them that are not asked, by type; the driver is told once a second."""
        self._rows += rows
        self._refused.update(refused)
        if time.monotonic() - self._told_s > TELL_S:
            self.close()

    def close(self) -> None:
        """Tell the driver of the rows that it was not told of."""
        if self._rows:
            self.watch.tell("seen", self._rows, dict(self._refused))
        self._rows, self._told_s = 0, time.monotonic()
        self._refused.clear()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Tell the driver of what fails here: what Spark tells has lost its type."""
        try:
            yield
        except Exception as exc:
            error = own_error(exc)
            self._ray.get(self.watch.tell("failed", error))
            raise error from exc


_known: dict[str, Known] = {}
_loops: list[asyncio.AbstractEventLoop] = []
_forwarders: dict[str, Forwarder] = {}


def _known_of(run: str) -> Known:
    """Return what this process knows of a run; of an earlier one, nothing is kept."""
    if run not in _known:
        _known.clear()
        _known[run] = Known()
    return _known[run]


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process, which runs in a thread of its own."""
    if not _loops:
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="platform-plugin-inline", daemon=True).start()
        _loops.append(loop)
    return _loops[0]


def _forwarder(call: Call, watch: Watch) -> Forwarder:
    """Return the run's forwarder in this process; a new one where the run is another, or was ended meanwhile."""
    found = _forwarders.get(call.run)
    if found is None or found.ended:
        for old in _forwarders.values():
            old.close()
        _forwarders.clear()
        question = call.question
        found = _forwarders[call.run] = Forwarder(call.app, question.ask, watch, question.output, call.limits)
    return found
