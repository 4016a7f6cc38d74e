"""How far a run is: what it tells of itself from any thread, shown by a view that ticks.

PLATFORM_PLUGIN_PROGRESS=off silences it, =lines makes it write log lines everywhere.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from platform_plugin.view import LinesView, State, View, find_view

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

logger = logging.getLogger(__name__)


class Progress:
    """A context manager that shows how far one run is; several may be open, in any threads.

    Args:
        label: what runs, such as the stage's name.
        total: how many requests there are, if known yet.
        view: where to show it; by default as `find_view` finds.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        view: View | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._view = view if view is not None else find_view()
        self._state = State(label, total, begun_s=clock())
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._ticker: threading.Thread | None = None

    def phase(self, text: str) -> None:
        """Say what goes on before there is anything to count; its seconds tick by themselves."""
        with self._lock:
            self._state = replace(self._state, phase=text, phase_s=self._clock())

    def update(
        self,
        done: int,
        *,
        total: int | None = None,
        tokens_per_s: float | None = None,
        failed: int = 0,
    ) -> None:
        """Say how many requests have come back, and how many of them failed; ends the phase."""
        changes: dict[str, Any] = {"done": done, "tokens_per_s": tokens_per_s, "failed": failed}
        if total is not None:
            changes["total"] = total
        with self._lock:
            if self._state.first_s is None:
                changes |= {"first_s": self._clock(), "first_done": done}
            self._state = replace(self._state, phase="", **changes)

    def __enter__(self) -> Self:
        view = self._view
        if view is not None and not self._safely(view.open, self._state):
            # The terminal is taken by another live display.
            view = LinesView()
            view.open(self._state)
        if view is not None:
            self._view = view
            self._ticker = threading.Thread(target=self._tick, args=(view,), name="progress", daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        with self._lock:
            self._state = replace(self._state, ended="stopped" if kind else "done")
        self._stop.set()
        if self._ticker is not None and self._view is not None:
            self._ticker.join()
            self._safely(self._view.close, self._state, self._clock())

    def _tick(self, view: View) -> None:
        while not self._stop.wait(view.tick_s):
            if not self._safely(view.show, self._state, self._clock()):
                return

    def _safely(self, show: Callable[..., None], *args: Any) -> bool:
        """Show; a run must not end because its progress cannot be shown (a closed stderr)."""
        try:
            show(*args)
        except Exception:
            logger.debug("progress cannot be shown", exc_info=True)
            return False
        return True
