"""Finds the rows of a batch that a function raises for: it is called on halves until they stand alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Part:
    """Rows `start` to `stop` of a batch with what the function returned; or one row with what it raised."""

    start: int
    stop: int
    value: Any = None
    error: Exception | None = None


def by_halves(call: Callable[[int, int], Any], rows: int) -> list[Part]:
    """Return the parts of a batch in order; one part where nothing is raised.

    A batch with one bad row is called about twice log2 of its rows; one in which all are bad twice its rows.

    Args:
        call: takes the first row and the one behind the last.
    """
    found: list[Part] = []
    waiting = [(0, rows)]
    while waiting:
        start, stop = waiting.pop()
        try:
            found.append(Part(start, stop, call(start, stop)))
        except Exception as exc:
            if stop - start <= 1:
                found.append(Part(start, stop, error=exc))
                continue
            middle = (start + stop) // 2
            waiting += [(middle, stop), (start, middle)]
    return found
