"""The inline path: Spark's own tasks call the engine. The only ``mapInArrow`` that calls engines.

For sessions whose Python workers run on nodes of the Ray cluster (see `probe`): a laptop, RayDP's, Spark beside Ray.
A batch frame's requests are answered inside ``transform`` and kept in Spark's cache; the rows of a stream are answered
as the query runs.
"""

from __future__ import annotations

import math
import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin import remote, sample
from platform_plugin.asker import Asker, Begun, Call
from platform_plugin.engines import answer_schema
from platform_plugin.errors import HandOffError
from platform_plugin.monitor import Standing, Watch
from platform_plugin.passage import Passage, Question
from platform_plugin.schema import answer_type
from platform_plugin.supervision import Watcher, supervise
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ANSWERS = "__pp_inline_"
ROWS_PER_BATCH = 10_000
ROWS_PER_TASK = 10_000
# Batches of Spark's that a task works on at once: the next one's fill the engine while the last of this one end.
BLOCKS_IN_FLIGHT = 3

_kept: dict[str, tuple[DataFrame, Watch]] = {}


@dataclass
class Inline:
    """The requests of one run in Spark's cache; see `Passage`. Runs on: driver."""

    requests: DataFrame
    asked: int
    _call: Call | None = None
    _made: DataFrame | None = None
    _parts: tuple[Tally, int] = (Tally(), 0)
    _prompts: int = 0

    def draw_requests(self, rows: int) -> None:
        """Take note of how many prompts are wanted; see `Passage`."""
        self._prompts = rows

    def infer(self, app: str, question: Question, watch: Watcher) -> Standing:
        """Answer every request and keep the answers in Spark's cache; see `Passage`."""
        from pyspark.sql.pandas.types import from_arrow_type

        run = Watch.start()
        self._call = Call.of(run, app, question)
        made = self.requests.mapInArrow(_answering(self._call), answer_type(from_arrow_type(question.output)))
        self._made = made.persist()
        try:
            job, standing = supervise(remote.in_thread(made.sparkSession, lambda: _sums(made)), run, watch)
            if job.error is not None and standing.error is not None:
                raise standing.error from job.error
            if job.error is not None:
                raise job.error
            watch(standing)
            assert job.result is not None
            self._parts = job.result
            if self._parts[0].done != self.asked:
                raise HandOffError(
                    f"{self.asked} requests were sent to the engine and {self._parts[0].done} answers came back."
                )
        except BaseException:
            made.unpersist()
            raise
        return standing

    def count(self) -> tuple[Tally, int]:
        """See `Passage`."""
        return self._parts

    def sample(self, rows: int) -> pa.Table | None:
        """See `Passage`."""
        assert self._made is not None
        assert self._call is not None
        shown = self._made.orderBy("key").limit(rows)
        drawn = self.requests.orderBy("key").limit(self._prompts).collect() if self._prompts else []
        found = [{**row.asDict(recursive=True), "key": bytes(row["key"])} for row in shown.collect()]
        if not found:
            return None
        prompts = pa.table(
            {"key": [bytes(row["key"]) for row in drawn], "prompt": pa.array([r["prompt"] for r in drawn], pa.string())}
        )
        answers = pa.Table.from_pylist(found, schema=answer_schema(self._call.question.output))
        return sample.joined(answers, prompts if self._prompts else None)

    def answers(self, schema: StructType) -> DataFrame:
        """See `Passage`."""
        assert self._made is not None
        assert self._call is not None
        name = f"{ANSWERS}{uuid.uuid4().hex[:12]}"
        _kept[name] = self._made, Watch.find(self._call.run, self._call.monitor)
        return self._made.select(*schema.names).alias(name)


@contextmanager
def inlined(frame: DataFrame) -> Iterator[Passage]:
    """Compute the requests, once, into Spark's cache; leaving the context frees them there."""
    cached = frame.persist()
    try:
        asked = int(cached.count())
        # A Python task costs a tenth of a second before its first row, and a shuffle leaves 200, most of them empty.
        yield Inline(cached.coalesce(max(1, math.ceil(asked / ROWS_PER_TASK))), asked)
    finally:
        cached.unpersist()


def release(frame: DataFrame) -> None:
    """Drop the answers behind `frame`, if they came inline; evaluating it afterwards fails. Runs on: driver."""
    plan = remote.plan_text(frame) if _kept else ""
    for name in [n for n in _kept if n in plan]:
        answers, run = _kept.pop(name)
        with suppress(Exception):  # a Ray that has ended answers nobody anyway
            run.tell("release")
        answers.unpersist()


def rows_inline(frame: DataFrame, call: Call, answer: RowsAnswered, schema: StructType) -> DataFrame:
    """Answer whole rows as Spark reads them, in their order; nothing runs yet. Runs on: driver.

    Args:
        answer: makes the requests of a batch of rows, and puts their answers to them.
        schema: of what `answer` returns.
    """
    return frame.mapInArrow(_answering_rows(call, answer), schema)


RowsAnswered = Callable[[pa.Table, Asker], Begun]
"""(rows, asker) -> what waits for the answers and returns the rows with them."""


def _answering(call: Call) -> Any:
    def answers(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on: Spark executor. Yields one answer a request, in their order."""
        asker = Asker(call)
        if asker.released():
            raise HandOffError(
                "the answers of this frame were released; run transform again, or write the frame before releasing it."
            )

        def begin(block: pa.Table) -> Begun:
            future = asker.ask(block)
            return Begun(future, future.result)

        yield from _ahead(batches, begin, asker)

    return answers


def _answering_rows(call: Call, answer: RowsAnswered) -> Any:
    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on: Spark executor. Yields the rows with their answers, in their order."""
        asker = Asker(call)
        try:
            yield from _ahead(batches, lambda block: answer(block, asker), asker)
        finally:
            asker.close()

    return rows


def _ahead(
    batches: Iterable[pa.RecordBatch], begin: Callable[[pa.Table], Begun], asker: Asker
) -> Iterator[pa.RecordBatch]:
    """Begin a few batches ahead, so that the engine does not drain, and yield them in their order."""
    begun: deque[Begun] = deque()

    def oldest() -> list[pa.RecordBatch]:
        with asker.telling():
            return list(begun.popleft().wait().to_batches(max_chunksize=ROWS_PER_BATCH))

    for batch in batches:
        if not batch.num_rows:
            continue
        with asker.telling():
            begun.append(begin(pa.Table.from_batches([batch])))
        # What is there already goes on at once: rows that wait are memory.
        while begun and (len(begun) >= BLOCKS_IN_FLIGHT or begun[0].ready):
            yield from oldest()
    while begun:
        yield from oldest()


def _sums(answers: DataFrame) -> tuple[Tally, int]:
    """Compute the answers into the cache, and return their sums and their size in bytes. Runs on: driver, Spark."""
    tally, size = Tally(), 0
    for row in answers.mapInArrow(_tallied, "tally binary, size bigint").collect():
        tally.merge(pickle.loads(row["tally"]))
        size += int(row["size"])
    return tally, size


def _tallied(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs on: Spark executor. Yields the sums of a partition's answers."""
    part, size = Tally(), 0
    for batch in batches:
        part.add(pa.Table.from_batches([batch]))
        size += batch.nbytes
    yield pa.RecordBatch.from_pydict(
        {"tally": pa.array([pickle.dumps(part)], pa.binary()), "size": pa.array([size], pa.int64())}
    )
