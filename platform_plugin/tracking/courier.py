"""Carries what is tracked to the server, on one thread, so that no server can fail a job or hold it up.

A server is asked for a sign of life before each errand, with seconds and without retries; one that gives none is left
alone for a minute, after one warning. What an errand does is not this file's business.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

WAIT_S = 1.0
"""How long a transform waits at its end for what it logs: a server in good health has it by then."""

PROBE_S = 2.0
REST_S = 60.0
EXIT_S = 5.0
BACKLOG = 1000

Errand = Callable[[], None]
Probe = Callable[[str], None]


class Courier:
    """Runs errands in order on a thread of its own. Runs on: driver.

    Args:
        probe: raises for the URI of a server that cannot be reached; takes PROBE_S at most.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._errands: queue.Queue[tuple[str, Errand, threading.Event]] = queue.Queue(BACKLOG)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._open: set[threading.Event] = set()
        self._late = False
        self._rests_until: dict[str, float] = {}
        self._warned: set[str] = set()
        self.lost = 0
        """Errands that were not done."""

    def send(self, uri: str, errand: Errand, *, wait_s: float = 0.0) -> None:
        """Run `errand` once all earlier ones have run; wait for it, but not once one was waited for in vain."""
        done = threading.Event()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="platform-plugin-tracking", daemon=True)
                self._thread.start()
                atexit.register(self._finish)
            self._open.add(done)
        try:
            self._errands.put_nowait((uri, errand, done))
        except queue.Full:
            self._lose(done)
            self._warn(uri, f"{BACKLOG} transforms wait to be logged")
            return
        if wait_s and not self._late and not done.wait(wait_s):
            self._late = True

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was sent so far is done, for `timeout_s` seconds at most; return whether it is."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            waiting = list(self._open)
        return all(done.wait(max(0.0, deadline - time.monotonic())) for done in waiting)

    def _run(self) -> None:
        while True:
            uri, errand, done = self._errands.get()
            try:
                if self._reach(uri):
                    errand()
                    self._close(done)
                else:
                    self._lose(done)
            except BaseException as exc:  # a thread that ends would take all later errands with it
                self._lose(done)
                self._warn(uri, _words(exc))
                logger.debug("an errand to %s failed", uri, exc_info=True)

    def _reach(self, uri: str) -> bool:
        if time.monotonic() < self._rests_until.get(uri, 0.0):
            return False
        try:
            self._probe(uri)
        except Exception as exc:
            self._rests_until[uri] = time.monotonic() + REST_S
            self._warn(uri, _words(exc))
            return False
        return True

    def _warn(self, uri: str, reason: str) -> None:
        if uri not in self._warned:
            self._warned.add(uri)
            logger.warning(
                "MLflow at %s does not take what is logged (%s); the job goes on without. It is asked again in %d s; "
                "set MLFLOW_TRACKING_URI to a server that runs, or call autolog(disable=True).",
                uri,
                reason,
                REST_S,
            )

    def _close(self, done: threading.Event) -> None:
        with self._lock:
            self._open.discard(done)
            self._late = self._late and bool(self._open)
        done.set()

    def _lose(self, done: threading.Event) -> None:
        self.lost += 1
        self._close(done)

    def _finish(self) -> None:
        if not self.flush(EXIT_S):
            with contextlib.suppress(ValueError):  # stderr may be closed by now
                logger.warning("MLflow took more than %d s at the end: %d things are not logged", EXIT_S, self.waiting)

    @property
    def waiting(self) -> int:
        """Errands that were sent and are neither done nor lost."""
        return len(self._open)


def _words(exc: BaseException) -> str:
    lines = str(exc).strip().splitlines()
    return f"{type(exc).__name__}: {lines[0][:200]}" if lines else type(exc).__name__
