"""Where progress is shown: a bar in a terminal or in a notebook, or a line now and then in a log.

Nothing here writes to stdout, which is for results.
"""

from __future__ import annotations

import html
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TextIO

from platform_plugin.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars

VARIABLE = "PLATFORM_PLUGIN_PROGRESS"


@dataclass(frozen=True)
class State:
    """What is known at one moment; times are seconds of one monotonic clock."""

    label: str
    total: int | None
    begun_s: float
    phase: str = ""
    phase_s: float = 0.0
    done: int = 0
    first_s: float | None = None
    first_done: int = 0
    tokens_per_s: float | None = None
    failed: int = 0
    ended: str = ""

    def text(self, now_s: float) -> str:
        """Return, without the label, what is done, how fast, and how long it still takes."""
        if self.phase and not self.ended:
            return f"{self.phase} ... {_duration(now_s - self.phase_s)}"
        of = f"/{self.total:,}" if self.total is not None else ""
        parts = [f"{self.done:,}{of}"]
        rate = None
        if self.first_s is not None and now_s > self.first_s:
            # At the end of the whole time, so that it fits what is said to be done, and after how long.
            done, since_s = (0, self.begun_s) if self.ended else (self.first_done, self.first_s)
            rate = (self.done - done) / (now_s - since_s)
            parts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.1f}/s"]
        if self.tokens_per_s is not None and not self.ended:
            parts += [f"{self.tokens_per_s:,.0f} tokens/s"]
        if self.failed:
            parts += [f"{self.failed:,} failed"]
        if self.ended:
            parts += [f"{self.ended} after {_duration(now_s - self.begun_s)}"]
        elif rate and self.total is not None and self.total > self.done:
            parts += [f"{_duration((self.total - self.done) / rate)} left"]
        return "  ".join(parts)


class View(Protocol):
    """A place for progress; `show` is called every `tick_s` seconds, from one thread."""

    tick_s: float

    def open(self, state: State) -> None:
        """Begin to show."""
        ...

    def show(self, state: State, now_s: float) -> None:
        """Show the moment."""
        ...

    def close(self, state: State, now_s: float) -> None:
        """Leave the last line where it can be read."""
        ...


def find_view() -> View | None:
    """Return the view that fits this process, or None where progress is off.

    Raises:
        ConfigError: PLATFORM_PLUGIN_PROGRESS is set to something else than auto, lines or off.
    """
    mode = os.environ.get(VARIABLE, "") or "auto"
    if mode not in ("auto", "lines", "off"):
        raise ConfigError(f"{VARIABLE}={mode!r} is not known; set it to auto, lines or off.")
    if mode == "off":
        return None
    if mode == "lines":
        return LinesView()
    ipython = sys.modules.get("IPython")
    if ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None:
        return NotebookView()
    return TerminalView() if sys.stderr.isatty() else LinesView()


@dataclass
class LinesView:
    """A line every 30 s, and one at the end, for a log."""

    every_s: float = 30.0
    tick_s: float = 1.0
    stream: TextIO | None = None
    _last_s: float = 0.0

    def open(self, state: State) -> None:
        """Count from the start: a run shorter than 30 s has its last line only."""
        self._last_s = state.begun_s

    def show(self, state: State, now_s: float) -> None:
        """Write a line if the last one is old enough."""
        if now_s - self._last_s >= self.every_s:
            self._last_s = now_s
            self._write(state, now_s)

    def close(self, state: State, now_s: float) -> None:
        """Write the last line."""
        self._write(state, now_s)

    def _write(self, state: State, now_s: float) -> None:
        # Not kept at construction: sys.stderr is replaced by test runners and notebooks.
        (self.stream or sys.stderr).write(f"{state.label}: {state.text(now_s)}\n")


class NotebookView:
    """An HTML bar in the cell's output, which stays in the saved notebook and needs no widgets."""

    tick_s = 0.5

    def open(self, state: State) -> None:
        """Put an output in the running cell."""
        from IPython.display import display

        bundle = self._bundle(state, state.begun_s)
        self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def show(self, state: State, now_s: float) -> None:
        """Replace the output."""
        self._handle.update(self._bundle(state, now_s), raw=True)

    close = show

    def _bundle(self, state: State, now_s: float) -> dict[str, str]:
        text = state.text(now_s)
        share = ""
        if state.total is not None and not state.phase:
            share = f' value="{state.done}" max="{max(state.total, 1)}"'
        # No bar at the end: one without a value would run to and fro in the saved notebook.
        bar = "" if state.ended else f'<progress{share} style="width: 12em"></progress> '
        line = f"{bar}<b>{html.escape(state.label)}</b> {html.escape(text)}"
        return {
            "text/html": f'<div style="font-variant-numeric: tabular-nums">{line}</div>',
            "text/plain": f"{state.label}: {text}",
        }


@dataclass
class TerminalView:
    """A bar on stderr; all of a process share one live display, since a terminal holds only one."""

    tick_s: float = 0.25
    console: Console | None = None
    _lock: ClassVar[threading.Lock] = threading.Lock()
    _live: ClassVar[Bars | None] = None
    _open: ClassVar[int] = 0

    def open(self, state: State) -> None:
        """Add a bar, to the display that is already there if there is one."""
        kind = type(self)
        with self._lock:
            if kind._live is None:
                live = _bars(self.console)
                live.start()
                kind._live = live
            kind._open += 1
            self._bars = kind._live
        self._task = self._bars.add_task(state.label, total=None, text="")

    def show(self, state: State, now_s: float) -> None:
        """Move the bar; without a total, or in a phase, it pulses."""
        total = None if state.phase else state.total
        text = state.text(now_s)
        self._bars.update(self._task, total=total, completed=state.done, text=text)

    def close(self, state: State, now_s: float) -> None:
        """Turn the bar into a line above those still running."""
        kind = type(self)
        line = f"{state.label}  {state.text(now_s)}"
        try:
            self._bars.remove_task(self._task)
            self._bars.console.print(line, highlight=False, markup=False)
        finally:
            with self._lock:
                kind._open -= 1
                if not kind._open:
                    kind._live = None
                    self._bars.stop()


def _bars(console: Console | None) -> Bars:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    from rich.table import Column

    cut = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[text]}", markup=False, table_column=cut),
        console=console or Console(stderr=True),
        transient=True,
        # Redirected, a result that the user prints meanwhile would end in stderr.
        redirect_stdout=False,
    )


def _duration(seconds: float) -> str:
    """Return "12 s", "1:05" or "1:02:03"."""
    whole = max(0, round(seconds))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02}"
    return f"{minutes}:{rest:02}" if minutes else f"{whole} s"
