"""Rows that a stage's function has had, added up in the actor's process and told to the run's monitor after each load.

A function notes what it did, row by row maybe; `flush` tells the sums before the load's answer leaves the actor. So the
report of a run is whole once Spark has its rows.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from platform_plugin.monitor import Watch
from platform_plugin.tally import MESSAGES_KEPT, Tally


@dataclass(frozen=True)
class RunName:
    """A run and the monitor that knows it; pickles with the function."""

    run: str
    monitor: str


@dataclass
class _Sums:
    """What was noted of a run since the last flush; plain numbers, since a function of rows notes each of them."""

    first_s: float
    last_s: float = 0.0
    rows: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)

    def tally(self) -> Tally:
        """Return the sums as a report takes them."""
        return Tally(
            answered=self.rows - self.failed.total(),
            failed=dict(self.failed),
            messages=self.messages,
            first_s=self.first_s,
            last_s=self.last_s,
        )


_noted: dict[RunName, _Sums] = {}
_lock = threading.Lock()


def note(run: RunName | None, rows: int, began_s: float, errors: Iterable[Mapping[str, Any]] = ()) -> None:
    """Add rows that the function had, `errors` for those of them that failed. Runs on: Ray actor.

    Args:
        run: None where nobody reports.
        began_s: when the function began with them, in seconds of the epoch.
    """
    if run is None:
        return
    with _lock:
        sums = _noted.get(run)
        if sums is None:
            sums = _noted[run] = _Sums(began_s)
        sums.rows += rows
        sums.last_s = time.time()
        for error in errors:
            sums.failed[error["type"]] += 1
            if len(sums.messages) < MESSAGES_KEPT:
                sums.messages.append(error["message"])


def flush() -> None:
    """Tell each run's monitor what was noted since, and wait until it knows. Runs on: Ray actor."""
    if not _noted:
        return
    with _lock:
        told = dict(_noted)
        _noted.clear()
    import ray

    for name, sums in told.items():
        # A report is no reason to fail rows: its driver may be gone.
        with contextlib.suppress(ValueError, ray.exceptions.RayError):
            watch = Watch.find(name.run, name.monitor)
            ray.get([watch.tell("seen", sums.rows, {}), watch.tell("add", sums.tally(), None)])
