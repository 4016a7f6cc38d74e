"""A partition on an actor: what is lent of its input, which memory its output uses again; no actors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.udf import partition
from platform_plugin.udf.framing import Load
from platform_plugin.udf.partition import Partition

ROWS = 20_000
Batches = Iterator[pa.RecordBatch]


class Serializer:
    """Reads and writes Arrow streams as PySpark's do."""

    def load_stream(self, stream: Any) -> Batches:
        yield from pa.ipc.open_stream(stream)

    def dump_stream(self, batches: Batches, stream: Any) -> None:
        writer = None
        for batch in batches:
            writer = writer or pa.RecordBatchStreamWriter(stream, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()


class NoTask:
    split = 0

    def enter(self) -> None:
        pass


def batch(start: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(range(start, start + ROWS), pa.int64())})


def stream(*batches: pa.RecordBatch) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema) as writer:
        for one in batches:
            writer.write_batch(one)
    return out.getvalue()


def made(function: Callable[[Batches], Batches], outputs: list[Load] | None = None) -> Partition:
    task: Any = NoTask()
    return Partition(lambda _, rows: function(rows), Serializer(), task, outputs=outputs)


def keeping(kept: list[pa.RecordBatch], which: slice = slice(None)) -> Callable[[Batches], Batches]:
    """Return a function that changes nothing, and keeps those batches."""

    def keep(batches: Batches) -> Batches:
        for number, one in enumerate(batches):
            kept.extend([one] * (number in range(100)[which]))
            yield one

    return keep


def run(of: Partition, *loads: pa.Buffer) -> list[int]:
    """Return what a partition yields; each answer is copied before the next step, as Ray does."""
    answers = [bytes(of.step(load, False)[1]) for load in loads]
    state, last = of.step(None, True)
    assert state == "ended"
    found: list[int] = pa.ipc.open_stream(b"".join([*answers, bytes(last)])).read_all()["x"].to_pylist()
    return found


def test_answers_are_whole_in_memory_that_is_used_again() -> None:
    loads = [stream(batch(start), batch(start + ROWS)) for start in (0, 2 * ROWS, 4 * ROWS)]
    first = made(lambda batches: batches)
    assert run(first, *loads) == list(range(6 * ROWS))
    second = made(lambda batches: batches, first.outputs)
    assert run(second, *loads[:2]) == list(range(4 * ROWS))


def test_input_is_lent_up_to_a_bound_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8 * ROWS
    monkeypatch.setattr(partition, "MOST_LENT", 2 * size + size // 2)
    kept: list[pa.RecordBatch] = []
    of = made(keeping(kept))
    assert run(of, *[stream(batch(i * ROWS)) for i in range(4)]) == list(range(4 * ROWS))
    gc.collect()
    # Two loads are held by their batches; the others, beyond the bound, were copied.
    assert sum(of._held.values()) // size == 2
    assert [one["x"].to_pylist()[0] for one in kept] == [i * ROWS for i in range(4)]
    kept.clear()
    gc.collect()
    assert of._held == {}


def test_load_is_held_whole_by_a_part_of_it() -> None:
    kept: list[pa.RecordBatch] = []
    of = made(keeping(kept, slice(2, 3)))
    load = stream(*[batch(i * ROWS) for i in range(5)])
    size = load.size
    assert run(of, load) == list(range(5 * ROWS))
    del load
    gc.collect()
    assert list(of._held.values()) == [size]
    kept.clear()
    gc.collect()
    assert of._held == {}


def test_small_input_is_copied() -> None:
    kept: list[pa.RecordBatch] = []
    of = made(keeping(kept))
    assert run(of, stream(pa.record_batch({"x": [1, 2]}))) == [1, 2]
    gc.collect()
    assert of._held == {}


def test_memory_of_a_giant_answer_is_let_go() -> None:
    load = Load()
    load.write(bytes(65 * 2**20))
    load.clear()
    load.write(b"x")
    assert len(load._bytes) < 2**20
    assert load.buffer().to_pybytes() == b"x"
