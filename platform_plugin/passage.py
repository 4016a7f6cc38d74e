"""How the requests of one run get to the engine and its answers back to Spark: by a bridge, or `inline`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from platform_plugin import inference, sample
from platform_plugin.bridges import Bridge
from platform_plugin.config import Ask
from platform_plugin.monitor import Standing
from platform_plugin.supervision import Watcher
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    import ray.data
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Question:
    """What is asked of each request, in batches of so many rows, of an engine with at most so many replicas."""

    ask: Ask
    output: pa.DataType
    batch_rows: int
    max_replicas: int


class Passage(Protocol):
    """The requests of one run on their way; each method is called once, in this order. Runs on: driver."""

    asked: int

    def draw_requests(self, rows: int) -> None:
        """Begin to draw a few requests; `sample` wants them with their answers."""
        ...

    def infer(self, app: str, question: Question, watch: Watcher) -> Standing:
        """Answer every request; see `supervise` for `watch`."""
        ...

    def count(self) -> tuple[Tally, int]:
        """Sum what the answers say, each exactly once, where they lie; also their size in bytes."""
        ...

    def sample(self, rows: int) -> pa.Table | None:
        """Return a few answers, with their prompts where the requests were drawn."""
        ...

    def answers(self, schema: StructType) -> DataFrame:
        """Return the answers as a frame of `schema`, which `release_answers` lets go of."""
        ...


@dataclass
class Bridged:
    """The requests in a Ray Dataset."""

    bridge: Bridge
    requests: ray.data.Dataset
    spark: Any
    asked: int
    _drawn: list[Any] = field(default_factory=list)
    _made: ray.data.Dataset | None = None

    def draw_requests(self, rows: int) -> None:
        """See `Passage`."""
        self._drawn = sample.draw(self.requests, rows)

    def infer(self, app: str, question: Question, watch: Watcher) -> Standing:
        """See `Passage`."""
        self._made, standing = inference.infer(
            self.requests,
            app,
            question.ask,
            question.output,
            batch_rows=question.batch_rows,
            max_replicas=question.max_replicas,
            watch=watch,
        )
        return standing

    def count(self) -> tuple[Tally, int]:
        """See `Passage`."""
        assert self._made is not None
        return inference.count(self._made)

    def sample(self, rows: int) -> pa.Table | None:
        """See `Passage`."""
        assert self._made is not None
        shown = sample.collect(sample.draw(self._made, rows), rows)
        return sample.joined(shown, sample.collect(self._drawn, rows))

    def answers(self, schema: StructType) -> DataFrame:
        """See `Passage`."""
        assert self._made is not None
        return self.bridge.to_spark(self._made, schema, self.spark)


@contextmanager
def bridged(bridge: Bridge, frame: DataFrame) -> Iterator[Passage]:
    """Hand a frame of requests to Ray; leaving the context frees what it pinned."""
    with bridge.to_ray(frame) as dataset:
        yield Bridged(bridge, dataset, frame.sparkSession, dataset.count())
