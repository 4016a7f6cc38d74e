"""How the stream that Spark's JVM sends to a Python worker is cut into loads, without a look at the values in it.

A load is a whole stream of its own, so that PySpark's serializer reads it on the actor as it would read the JVM's.
Values are never converted here: that is PySpark's business, on the actor.
"""

from __future__ import annotations

import struct
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CONTINUATION = b"\xff\xff\xff\xff"
END_OF_ARROW = CONTINUATION + b"\x00\x00\x00\x00"
END_OF_DATA = -1
"""What the JVM writes in place of a length after the last pickled batch."""
START_OF_ARROW = struct.pack("!i", -6)
"""What a Python worker writes before its Arrow stream."""

SCHEMA, RECORD_BATCH = 1, 3
_LAID_OUT = 64 * 1024
_MOST_REUSED = 64 * 2**20


class Load:
    """Bytes of a stream on their way between a task and an actor, gathered in one buffer that Ray takes as it is.

    Args:
        expected: bytes; where there are more, those before are copied once more.
    """

    closed = False

    def __init__(self, expected: int = 0) -> None:
        self._bytes: npt.NDArray[np.uint8] = np.empty(max(expected, _LAID_OUT), np.uint8)
        self.size = 0
        self.frames = 0
        self.rows = 0

    def clear(self) -> None:
        """Begin anew in the same memory; nobody may read what was gathered before."""
        self.size = self.frames = self.rows = 0
        if len(self._bytes) > _MOST_REUSED:
            self._bytes = np.empty(_LAID_OUT, np.uint8)

    def write(self, data: Any) -> int:
        """Append `data`, anything that has bytes; the file that pyarrow and PySpark write to."""
        view = memoryview(data).cast("B")
        self._room(len(view))[:] = view
        return len(view)

    def flush(self) -> None:
        """Nothing is held back."""

    def read_from(self, stream: IO[bytes], size: int) -> memoryview:
        """Append `size` bytes of `stream` and return a view of them. Raises EOFError where it ends before."""
        view = self._room(size)
        done = 0
        while done < size:
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError
            done += count
        return view

    def buffer(self) -> pa.Buffer:
        """Return what was gathered."""
        return pa.py_buffer(self._bytes[: self.size])

    def _room(self, size: int) -> memoryview:
        start, self.size = self.size, self.size + size
        if self.size > len(self._bytes):
            # More than a whole frame: what ends the stream comes after it.
            grown = np.empty(max(self.size + _LAID_OUT, 2 * len(self._bytes)), np.uint8)
            grown[:start] = self._bytes[:start]
            self._bytes = grown
        return self._bytes.data[start : self.size]


class Framing(Protocol):
    """Cuts one stream of the JVM. Holds the state of that stream."""

    def begin(self, stream: IO[bytes], load: Load, first: bool) -> None:
        """Write into `load` what must stand at its head; `first`: the load is the first of this stream."""
        ...

    def add(self, stream: IO[bytes], load: Load) -> bool:
        """Move one frame, the smallest unit that a UDF sees, into `load`; return False at the stream's end."""
        ...

    def end(self, load: Load) -> None:
        """Write into `load` what must stand at its end."""
        ...


class ArrowFraming:
    """One Arrow stream; a frame is a batch (of grouped kinds: a group)."""

    def __init__(self) -> None:
        self._schema = b""

    def begin(self, stream: IO[bytes], load: Load, first: bool) -> None:
        """Repeat the schema at the head of each load."""
        if first:
            held = Load()
            read_message(stream, held)
            self._schema = held.buffer().to_pybytes()
        load.write(self._schema)

    def add(self, stream: IO[bytes], load: Load) -> bool:
        """Move one batch."""
        before = load.size
        rows = read_message(stream, load)
        if rows is None:
            load.size = before
            return False
        load.frames += 1
        load.rows += rows
        return True

    def end(self, load: Load) -> None:
        """End the stream."""
        load.write(END_OF_ARROW)


class CogroupFraming:
    """Pairs of Arrow streams, each after an integer 2; a frame is a pair; an integer 0 ends them."""

    def begin(self, stream: IO[bytes], load: Load, first: bool) -> None:
        """Nothing stands at the head."""

    def add(self, stream: IO[bytes], load: Load) -> bool:
        """Move one pair of groups."""
        count = stream.read(4)
        if len(count) < 4 or not struct.unpack("!i", count)[0]:
            return False
        load.write(count)
        for _ in range(struct.unpack("!i", count)[0]):
            while (rows := read_message(stream, load)) is not None:
                load.rows += rows
        load.frames += 1
        return True

    def end(self, load: Load) -> None:
        """End the pairs."""
        load.write(struct.pack("!i", 0))


class PickleFraming:
    """Pickled lists of rows, each after its length; a frame is such a list."""

    def begin(self, stream: IO[bytes], load: Load, first: bool) -> None:
        """Nothing stands at the head."""

    def add(self, stream: IO[bytes], load: Load) -> bool:
        """Move one list."""
        length = stream.read(4)
        if len(length) < 4 or struct.unpack("!i", length)[0] == END_OF_DATA:
            return False
        load.write(length)
        load.read_from(stream, struct.unpack("!i", length)[0])
        load.frames += 1
        return True

    def end(self, load: Load) -> None:
        """End the lists."""
        load.write(struct.pack("!i", END_OF_DATA))


def read_message(stream: IO[bytes], load: Load) -> int | None:
    """Move one Arrow message into `load`, and return its rows (0 for a schema), or None for the stream's end."""
    head = bytes(load.read_from(stream, 8))
    if head[:4] != CONTINUATION:
        raise ValueError("this Spark writes Arrow's format from before 0.15; unset ARROW_PRE_0_15_IPC_FORMAT.")
    length = struct.unpack("<i", head[4:])[0]
    if not length:
        return None
    _, body, rows = describe(load.read_from(stream, length))
    load.read_from(stream, body)
    return rows


def batches(stream: memoryview) -> tuple[bytes, list[memoryview]]:
    """Return the schema's message of a whole Arrow stream, and the messages after it up to its end."""
    schema, found, at = b"", [], 0
    while at < len(stream):
        length = struct.unpack_from("<i", stream, at + 4)[0]
        if not length:
            break
        kind, body, _ = describe(stream[at + 8 : at + 8 + length])
        end = at + 8 + length + body
        if kind == SCHEMA:
            schema = bytes(stream[at:end])
        else:
            found.append(stream[at:end])
        at = end
    return schema, found


def describe(metadata: memoryview) -> tuple[int, int, int]:
    """Return kind, body length in bytes, and rows of an Arrow message, from its flatbuffer."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    kind = metadata[_field(metadata, message, 1)] if _field(metadata, message, 1) else 0
    at = _field(metadata, message, 3)
    body = struct.unpack_from("<q", metadata, at)[0] if at else 0
    rows = 0
    if kind == RECORD_BATCH:
        at = _field(metadata, message, 2)
        batch = at + struct.unpack_from("<I", metadata, at)[0]
        at = _field(metadata, batch, 0)
        rows = struct.unpack_from("<q", metadata, at)[0] if at else 0
    return kind, body, rows


def _field(data: memoryview, table: int, number: int) -> int:
    """Return where a flatbuffer table keeps its field `number`, or 0 where it has none."""
    offsets = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, offsets)[0]:
        return 0
    offset = struct.unpack_from("<H", data, offsets + 4 + 2 * number)[0]
    return table + offset if offset else 0
