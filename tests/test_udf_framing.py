"""The JVM's streams are cut and joined without a look at their values."""

from __future__ import annotations

import io
import struct
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType

from platform_plugin.udf.framing import (
    END_OF_ARROW,
    START_OF_ARROW,
    ArrowFraming,
    CogroupFraming,
    Framing,
    Load,
    PickleFraming,
    batches,
)
from platform_plugin.udf.rebatching import rebatched

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string()), ("a", pa.list_(pa.struct([("x", pa.decimal128(38, 18))])))])


def batch(start: int, rows: int) -> pa.RecordBatch:
    columns = [list(range(start, start + rows)), [None if i % 3 else "ü" * i for i in range(rows)], [None] * rows]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def stream(*found: pa.RecordBatch) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, SCHEMA) as writer:
        for one in found:
            writer.write_batch(one)
    made: bytes = out.getvalue().to_pybytes()
    return made


def loads(framing: Framing, data: bytes, frames: int) -> tuple[list[Load], bytes]:
    """Cut `data` into loads of `frames` frames; return them and what was left unread."""
    source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    found, more = [], True
    while more:
        load = Load()
        framing.begin(source, load, not found)
        while load.frames < frames and (more := framing.add(source, load)):
            pass
        framing.end(load)
        found.append(load)
    return found, source.read()


@pytest.mark.parametrize("frames", [1, 2, 5])
def test_arrow_loads_are_whole_streams_and_hold_all_rows(frames: int) -> None:
    whole = [batch(0, 10), batch(10, 0), batch(10, 3_000), batch(3_010, 1)]
    found, left = loads(ArrowFraming(), stream(*whole) + b"END!", frames)
    assert left == b"END!"
    tables = [pa.ipc.open_stream(load.buffer()).read_all() for load in found]
    assert [load.rows for load in found] == [table.num_rows for table in tables]
    assert pa.concat_tables(tables) == pa.Table.from_batches(whole)


def test_arrow_stream_without_batches_gives_one_load_without_frames() -> None:
    found, _ = loads(ArrowFraming(), stream(), 1)
    assert [load.frames for load in found] == [0]
    assert pa.ipc.open_stream(found[0].buffer()).read_all() == SCHEMA.empty_table()


def test_a_stream_that_breaks_off_is_no_end() -> None:
    with pytest.raises(EOFError):
        loads(ArrowFraming(), stream(batch(0, 10))[:-20], 1)


def test_pairs_of_a_cogroup_stay_together() -> None:
    pairs = [(batch(0, 3), batch(5, 2)), (batch(7, 1), batch(9, 0))]
    data = b"".join(struct.pack("!i", 2) + stream(left) + stream(right) for left, right in pairs)
    found, left = loads(CogroupFraming(), data + struct.pack("!i", 0) + b"END!", 1)
    assert left == b"END!"
    from pyspark.sql.pandas.serializers import CogroupUDFSerializer

    serializer = CogroupUDFSerializer("UTC", False, True)
    read: list[Any] = [group for load in found for group in serializer.load_stream(io.BytesIO(load.buffer()))]
    assert [(len(a[0]), len(b[0])) for a, b in read] == [(3, 2), (1, 0)]


def test_pickled_lists_stay_whole() -> None:
    data = b"".join(struct.pack("!i", len(x)) + x for x in (b"one", b"", b"three"))
    found, left = loads(PickleFraming(), data + struct.pack("!i", -1) + b"END!", 2)
    assert left == b"END!"
    assert b"".join(load.buffer().to_pybytes()[:-4] for load in found) == data
    assert all(load.buffer().to_pybytes()[-4:] == struct.pack("!i", -1) for load in found)


def test_what_pyspark_writes_is_taken_apart_into_messages() -> None:
    import pandas as pd
    from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer
    from pyspark.sql.pandas.types import to_arrow_type

    out = pa.BufferOutputStream()
    kind = to_arrow_type(LongType())
    serializer = ArrowStreamPandasUDFSerializer("UTC", False, True)
    serializer.dump_stream(iter([(pd.Series([1, 2]), kind), (pd.Series([3]), kind)]), out)
    written = out.getvalue().to_pybytes()
    assert written.startswith(START_OF_ARROW)
    schema, messages = batches(memoryview(written)[len(START_OF_ARROW) :])
    again = schema + b"".join(messages) + END_OF_ARROW
    assert again == written[len(START_OF_ARROW) :]


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_batches_of_another_size_hold_the_same_rows(rows: int) -> None:
    whole = [batch(0, 10), batch(10, 5)]
    read = pa.ipc.open_stream(rebatched(pa.py_buffer(stream(*whole)), rows))
    found = list(read)
    assert pa.Table.from_batches(found) == pa.Table.from_batches(whole)
    assert len(found) == -(-15 // rows)
    assert max(b.num_rows for b in found) <= rows
