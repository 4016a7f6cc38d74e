"""How much memory the driver takes while something runs."""

from __future__ import annotations

import threading

import psutil


class Peak:
    """The most memory that this process had while the context was open, sampled ten times a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        process = psutil.Process()
        while not self._over.wait(0.1):
            self.bytes = max(self.bytes, process.memory_info().rss)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
