"""Loads of a fitting size: small where an actor takes long over one, so that all have work; large where it does not."""

from __future__ import annotations

from typing import IO

from platform_plugin.udf.framing import Load
from platform_plugin.udf.kinds import Kind

BRISK_S = 0.1
SMALLEST, LARGEST = 2**18, 2**22
"""Bytes of a load: small at first; larger as long as an actor is through with one in no time."""


class Loads:
    """Cuts the JVM's stream into loads of a fitting size."""

    def __init__(self, kind: Kind, stream: IO[bytes], batch_rows: int | None) -> None:
        self._framing = kind.framing()
        self._stream = stream
        self._batch_rows = batch_rows if kind.resizable else None
        self._begun = False
        self._frame_rows = 0
        self._expected = 0
        self.size = SMALLEST
        self.ended = False

    def next(self) -> Load:
        """Return the next load; it may be without frames, at the end."""
        load = Load(self._expected)
        self._framing.begin(self._stream, load, not self._begun)
        self._begun = True
        while not self._full(load):
            before = load.rows
            if not self._framing.add(self._stream, load):
                self.ended = True
                break
            self._frame_rows = load.rows - before
        self._framing.end(load)
        self._expected = load.size + load.size // 8
        return load

    def took(self, seconds: float) -> None:
        """Hear how long an actor was busy with a load."""
        self.size = min(2 * self.size, LARGEST) if seconds < BRISK_S else max(self.size // 2, SMALLEST)

    def _full(self, load: Load) -> bool:
        if self._batch_rows is not None:
            return load.frames > 0 and load.rows + self._frame_rows > self._batch_rows
        return load.frames > 0 and load.size >= self.size
