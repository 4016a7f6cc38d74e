from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest
from rich.console import Console

from platform_plugin.errors import ConfigError
from platform_plugin.progress import Progress
from platform_plugin.view import LinesView, NotebookView, State, TerminalView, find_view


class Clock:
    """Seconds that pass only when a test says so."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Recorder:
    """A view that keeps what it was shown."""

    def __init__(self, tick_s: float = 3600.0) -> None:
        self.tick_s = tick_s
        self.texts: list[str] = []
        self.shown = threading.Semaphore(0)

    def open(self, state: State) -> None:
        self.texts.append("open")

    def show(self, state: State, now_s: float) -> None:
        self.texts.append(state.text(now_s))
        self.shown.release()

    def wait_for(self, moments: int) -> None:
        """Wait until it is shown so many more than it has been so far."""
        while self.shown.acquire(blocking=False):
            pass
        assert all(self.shown.acquire(timeout=10) for _ in range(moments))

    def close(self, state: State, now_s: float) -> None:
        self.texts.append(state.text(now_s))


def moment(progress: Progress, clock: Clock) -> str:
    return progress._state.text(clock())


def test_a_phase_ticks_by_itself() -> None:
    clock = Clock()

    def passing() -> float:
        clock.now_s += 1
        return clock.now_s

    recorder = Recorder(tick_s=0.001)
    with Progress("predict", view=recorder, clock=passing) as progress:
        progress.phase("starting engine smollm2-135m")
        recorder.wait_for(4)
    phases = [text for text in recorder.texts if text.startswith("starting engine")]
    assert len(set(phases)) >= 3, "the seconds must go on without updates"


def test_the_text_tells_share_rates_failures_and_time_left() -> None:
    clock = Clock()
    with Progress("predict", 10_000, view=Recorder(), clock=clock) as progress:
        progress.phase("starting engine smollm2-135m")
        clock.now_s += 12
        assert moment(progress, clock) == "starting engine smollm2-135m ... 12 s"
        progress.update(0)
        assert moment(progress, clock) == "0/10,000"
        clock.now_s += 20
        progress.update(4000, tokens_per_s=4960.4, failed=3)
        assert moment(progress, clock) == ("4,000/10,000  200/s  4,960 tokens/s  3 failed  30 s left")


def test_the_time_left_does_not_count_the_start_of_the_engine() -> None:
    clock = Clock()
    with Progress("predict", 100, view=Recorder(), clock=clock) as progress:
        clock.now_s += 500
        progress.update(0)
        clock.now_s += 10
        progress.update(50)
        assert moment(progress, clock) == "50/100  5.0/s  10 s left"


def test_a_total_may_come_late_or_never() -> None:
    clock = Clock()
    with Progress("predict", view=Recorder(), clock=clock) as progress:
        progress.update(5)
        assert moment(progress, clock) == "5"
        progress.update(5, total=20)
        assert moment(progress, clock) == "5/20"


def test_the_last_line_tells_how_it_ended() -> None:
    clock = Clock()
    recorder = Recorder()
    with Progress("predict", 10, view=recorder, clock=clock) as progress:
        progress.update(0)
        clock.now_s += 3725
        progress.update(10)
    assert recorder.texts == ["open", "10/10  0.0/s  done after 1:02:05"]


def test_the_last_line_tells_that_the_user_stopped_it() -> None:
    clock = Clock()
    recorder = Recorder()

    def interrupted() -> None:
        with Progress("predict", 10, view=recorder, clock=clock):
            clock.now_s += 65
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert recorder.texts == ["open", "0/10  stopped after 1:05"]


def test_a_view_that_breaks_ends_no_run() -> None:
    class Broken(Recorder):
        def show(self, state: State, now_s: float) -> None:
            self.shown.release()
            raise OSError("stderr is closed")

        def close(self, state: State, now_s: float) -> None:
            raise OSError("stderr is closed")

    broken = Broken(tick_s=0.001)
    with Progress("predict", view=broken):
        assert broken.shown.acquire(timeout=10)


def test_a_view_that_cannot_open_is_replaced_by_lines(capsys: pytest.CaptureFixture[str]) -> None:
    class Taken(Recorder):
        def open(self, state: State) -> None:
            raise RuntimeError("only one live display may be active at once")

    with Progress("predict", view=Taken()) as progress:
        progress.update(3)
    assert capsys.readouterr().err.startswith("predict: 3")


def test_lines_come_every_30_s_and_at_the_end() -> None:
    stream = io.StringIO()
    lines = LinesView(stream=stream)
    state = State("predict", 100, begun_s=1000.0, done=7)
    lines.open(state)
    for now_s in range(1001, 1070):
        lines.show(state, float(now_s))
    assert stream.getvalue() == "predict: 7/100\n" * 2
    lines.close(state, 1070.0)
    assert stream.getvalue() == "predict: 7/100\n" * 3


def test_lines_go_to_stderr_and_nothing_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("predict", view=LinesView(every_s=0)) as progress:
        progress.update(1)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("predict: 1")


def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def test_several_bars_share_one_live_display() -> None:
    shared = console()
    both = threading.Barrier(4)

    def run(label: str) -> None:
        with Progress(label, 100, view=TerminalView(0.001, shared)) as progress:
            both.wait(10)
            assert TerminalView._open == 4
            for done in range(101):
                progress.update(done)
            both.wait(10)

    threads = [threading.Thread(target=run, args=(f"stage{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    shown = shared.file.getvalue()  # type: ignore[attr-defined]
    assert [shown.count(f"stage{n}  100/100") for n in range(4)] == [1] * 4
    assert TerminalView._live is None


def test_a_terminal_shows_bar_and_phase_and_leaves_one_line() -> None:
    terminal = console()
    bars = TerminalView(console=terminal)
    state = State("predict", 10, begun_s=1000.0, phase="starting engine", phase_s=1000.0)
    bars.open(state)
    bars.show(state, 1012.0)
    bars._bars.refresh()
    bars.close(State("predict", 10, begun_s=1000.0, done=10, ended="done"), 1020.0)
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "starting engine ... 12 s" in shown
    assert "predict  10/10  done after 20 s\n" in shown


def test_a_terminal_leaves_stdout_to_the_results() -> None:
    bars = TerminalView(console=console())
    state = State("predict", 10, begun_s=0.0)
    before = sys.stdout
    bars.open(state)
    try:
        assert sys.stdout is before
    finally:
        bars.close(state, 1.0)


def test_a_notebook_bar_is_escaped_html_that_ends_without_a_bar() -> None:
    notebook = NotebookView()
    running = notebook._bundle(State("a<b", 10, begun_s=0.0, done=4), 1.0)
    assert 'value="4" max="10"' in running["text/html"]
    assert "a&lt;b" in running["text/html"]
    waiting = notebook._bundle(State("a", 10, begun_s=0.0, phase="starting"), 1.0)
    assert "<progress style" in waiting["text/html"]
    ended = notebook._bundle(State("a", 10, begun_s=0.0, done=10, ended="done"), 1.0)
    assert "<progress" not in ended["text/html"]
    assert ended["text/plain"] == "a: 10/10  done after 1 s"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "stream", "wanted"),
    [
        ("auto", Screen(), TerminalView),
        ("", Screen(), TerminalView),
        ("auto", io.StringIO(), LinesView),
        ("lines", Screen(), LinesView),
        ("off", Screen(), type(None)),
    ],
)
def test_the_view_fits_the_variable_and_the_stream(
    monkeypatch: pytest.MonkeyPatch, mode: str, stream: Any, wanted: type
) -> None:
    monkeypatch.setenv("PLATFORM_PLUGIN_PROGRESS", mode)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert type(find_view()) is wanted


def test_a_notebook_kernel_gets_the_notebook_view(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shell:
        kernel = object()

    class IPython:
        get_ipython = staticmethod(Shell)

    monkeypatch.setenv("PLATFORM_PLUGIN_PROGRESS", "auto")
    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert type(find_view()) is NotebookView


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_PLUGIN_PROGRESS", "on")
    with pytest.raises(ConfigError, match="'on' is not known; set it to auto, lines or off"):
        Progress("predict")


def test_a_silenced_progress_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLATFORM_PLUGIN_PROGRESS", "off")
    with Progress("predict") as progress:
        progress.update(1)
        assert progress._ticker is None
