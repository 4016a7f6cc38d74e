"""How much memory processes take while something runs."""

from __future__ import annotations

import threading

import psutil

from integration_tests.processes import processes


class Peak:
    """The most memory of its own that this process had while the context was open, sampled ten times a second.

    Not what it shares with others: libraries, and Ray's object store, of which each process has what it ever touched.

    Args:
        title: of processes under this one, whose sum is taken in place of this process's.
    """

    def __init__(self, title: str | None = None) -> None:
        self.bytes = 0
        self._processes = [psutil.Process()] if title is None else processes(title)
        if not self._processes:
            raise SystemExit(f"no process {title!r} to watch")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            found = [process.memory_info() for process in self._processes]
            self.bytes = max(self.bytes, sum(one.rss - one.shared for one in found))

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
