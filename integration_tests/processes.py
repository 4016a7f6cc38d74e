"""The processes that tests and benches look at, under their own."""

from __future__ import annotations

import psutil


def processes(title: str) -> list[psutil.Process]:
    """Return the processes under this one whose title has `title` in it."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if title in " ".join(process.cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found
