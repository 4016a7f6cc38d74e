"""A user's exception on its way from an actor to the Spark task: class, text, chain and traceback lines stay.

PySpark's worker turns what is raised in it into the text that the user sees; so what is raised there must look as if
the function had run there. Nothing else of this package is to be seen in that text.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any

from platform_plugin.udf.packing import dumps, loads


@dataclass(frozen=True)
class Line:
    """One line of a traceback: where it is, and which part of the line is marked."""

    file: str
    name: str
    number: int
    end: int
    column: int
    end_column: int
    source: str


@dataclass
class Failure:
    """An exception as data. It pickles whatever the exception holds."""

    pickled: bytes | None
    module: str
    qualname: str
    text: str
    notes: list[str]
    lines: list[Line]
    cause: Failure | None = None
    context: Failure | None = None
    suppressed: bool = False

    @classmethod
    def of(cls, error: BaseException, hidden: str, seen: tuple[int, ...] = ()) -> Failure:
        """Take an exception apart. Runs on: Ray actor.

        Args:
            hidden: the file whose lines, at the head of the traceback, are ours and not the user's.
        """
        seen = (*seen, id(error))
        following = {
            name: cls.of(other, hidden, seen) if other is not None and id(other) not in seen else None
            for name, other in (("cause", error.__cause__), ("context", error.__context__))
        }
        return cls(
            pickled=_pickled(error),
            module=type(error).__module__,
            qualname=type(error).__qualname__,
            text=_text(error),
            notes=[str(note) for note in getattr(error, "__notes__", [])],
            lines=_lines(error.__traceback__, hidden),
            suppressed=error.__suppress_context__,
            **following,
        )

    def exception(self) -> BaseException:
        """Put the exception together again, its traceback included. Runs on: Spark executor."""
        error = self._own() or self._stand_in()
        error.__cause__ = self.cause.exception() if self.cause else None
        error.__context__ = self.context.exception() if self.context else None
        error.__suppress_context__ = self.suppressed
        trace = None
        sources: dict[str, dict[int, str]] = {}
        for line in self.lines:
            sources.setdefault(line.file, {})[line.number] = line.source
        for line in reversed(self.lines):
            frame, at = _frame(line, sources[line.file])
            trace = TracebackType(trace, frame, at, line.number)
        return error.with_traceback(trace)

    def _own(self) -> BaseException | None:
        if self.pickled is None:
            return None
        with contextlib.suppress(Exception):
            error = loads(self.pickled)
            if isinstance(error, BaseException) and _text(error) == self.text:
                return error
        return None

    def _stand_in(self) -> BaseException:
        """Return an exception that prints as the user's did, where that one does not survive pickling."""
        text = self.text
        body = {"__module__": self.module, "__qualname__": self.qualname, "__str__": lambda _: text}
        error: BaseException = type(self.qualname.rpartition(".")[2], (Exception,), body)()
        for note in self.notes:
            error.add_note(note)
        return error


def _pickled(error: BaseException) -> bytes | None:
    try:
        dumped = dumps(error)
        back = loads(dumped)
    except Exception:
        return None
    return dumped if type(back).__qualname__ == type(error).__qualname__ else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _lines(trace: TracebackType | None, hidden: str) -> list[Line]:
    while trace is not None and trace.tb_frame.f_code.co_filename == hidden:
        trace = trace.tb_next
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        first, last, column, end_column = _position(code, trace.tb_lasti)
        number = trace.tb_lineno or first or 1
        whole = first != number or column is None
        found.append(
            Line(
                code.co_filename,
                code.co_name,
                number,
                number if whole else last or number,
                -1 if whole or column is None else column,
                -1 if whole or end_column is None else end_column,
                linecache.getline(code.co_filename, number, trace.tb_frame.f_globals),
            )
        )
        trace = trace.tb_next
    return found


def _position(code: CodeType, at: int) -> tuple[int | None, int | None, int | None, int | None]:
    for index, position in enumerate(code.co_positions()):
        if index == at // 2:
            return position
    return None, None, None, None


class _Sources:
    """The loader of a module that this process does not have: tells the lines that the actor saw, and no others."""

    def __init__(self, lines: dict[int, str]) -> None:
        self._lines = lines

    def get_source(self, _: str) -> str | None:
        """Return a text with those lines in their places, or None where the actor saw none, as in native code."""
        if not any(self._lines.values()):
            return None
        return "".join(self._lines.get(number, "\n") or "\n" for number in range(1, max(self._lines) + 1))


def _frame(line: Line, sources: dict[int, str]) -> tuple[FrameType, int]:
    """Return a frame that failed at `line`, and where in its code: PySpark asks the frame itself for its line."""
    call = ast.parse("__fail__()", mode="exec")
    marked = line.column >= 0
    for node in ast.walk(call):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno, node.end_lineno = line.number, line.end
            node.col_offset = line.column if marked else 0
            node.end_col_offset = line.end_column if marked else 0
    code = compile(call, line.file, "exec").replace(co_name=line.name, co_qualname=line.name)
    space: dict[str, Any] = {"__name__": "__udf__", "__loader__": _Sources(sources), "__fail__": _fail}
    try:
        exec(code, space)
    except _FailedError:
        trace = sys.exc_info()[2]
        assert trace is not None
        assert trace.tb_next is not None
        return trace.tb_next.tb_frame, trace.tb_next.tb_lasti if marked else -1
    raise AssertionError("unreachable")


class _FailedError(Exception):
    pass


def _fail() -> None:
    raise _FailedError
