"""A user's exception looks after its journey as it looked before."""

from __future__ import annotations

import linecache
import pickle
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.util import try_simplify_traceback

from platform_plugin.udf.failure import Failure


class KeptError(Exception):
    pass


class TwoArgumentsError(Exception):
    def __init__(self, row: int, why: str) -> None:
        super().__init__(f"row {row}: {why}")


class HoldsALockError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def plain() -> None:
    raise ValueError("row 7 is rotten: ü")


def deep() -> None:
    numbers = {"a": 1}
    [numbers[key] for key in ("a", "b")]


def own_class() -> None:
    raise KeptError("kept")


def odd_constructor() -> None:
    raise TwoArgumentsError(7, "odd")


def unpicklable() -> None:
    raise HoldsALockError("holds a lock")


def with_notes() -> None:
    error = KeyError("noted")
    error.add_note("look at the sensor")
    raise error


def with_a_cause() -> None:
    try:
        deep()
    except KeyError as exc:
        raise RuntimeError("outer") from exc


def without_its_context() -> None:
    try:
        deep()
    except KeyError:
        raise RuntimeError("outer") from None


def with_a_context() -> None:
    try:
        deep()
    finally:
        int("while that was handled")


def in_a_multi_line_call() -> None:
    max(
        1,
        int("not a number"),
    )


def exits() -> None:
    raise SystemExit(3)


ALL = [
    plain,
    deep,
    own_class,
    odd_constructor,
    unpicklable,
    with_notes,
    with_a_cause,
    without_its_context,
    with_a_context,
]
ALL += [in_a_multi_line_call, exits]


def caught(function: Callable[[], None]) -> BaseException:
    with pytest.raises(BaseException) as found:  # noqa: PT011 - any of them, SystemExit too
        function()
    trace = found.value.__traceback__
    assert trace is not None
    return found.value.with_traceback(trace.tb_next)


@pytest.mark.parametrize("function", ALL)
def test_printed_traceback_is_the_same(function: Callable[[], None]) -> None:
    error = caught(function)
    back = pickle.loads(pickle.dumps(Failure.of(error, "nowhere.py"))).exception()
    assert traceback.format_exception(back) == traceback.format_exception(error)


@pytest.mark.parametrize("function", ALL)
def test_simplified_traceback_of_pyspark_is_the_same(function: Callable[[], None]) -> None:
    def simple(error: BaseException) -> list[str]:
        assert error.__traceback__ is not None
        trace = try_simplify_traceback(error.__traceback__)
        return traceback.format_exception(type(error), error, trace)

    error = caught(function)
    assert simple(pickle.loads(pickle.dumps(Failure.of(error, "nowhere.py"))).exception()) == simple(error)


def test_class_is_the_users_own_where_it_pickles() -> None:
    assert type(Failure.of(caught(own_class), "").exception()) is KeptError


def test_our_own_lines_at_the_head_are_left_out() -> None:
    assert [line.name for line in Failure.of(caught(plain), "nowhere.py").lines] == ["plain"]
    assert Failure.of(caught(plain), __file__).lines == []


def test_an_exception_that_is_its_own_context_ends() -> None:
    error = ValueError("loop")
    other = KeyError("back")
    error.__context__, other.__context__ = other, error
    assert "loop" in traceback.format_exception(Failure.of(error, "").exception())[-1]


def test_lines_of_a_file_that_is_not_here_are_told(tmp_path: Path) -> None:
    path = tmp_path / "shipped.py"
    path.write_text("def inner():\n    return [].rotten\n\ndef outer():\n    return inner()\n")
    space: dict[str, Any] = {"__name__": "shipped"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    error = caught(space["outer"])
    wanted = traceback.format_exception(error)
    failure = Failure.of(error, "nowhere.py")
    path.unlink()
    linecache.clearcache()
    assert traceback.format_exception(failure.exception()) == wanted
    assert any("return [].rotten" in line for line in wanted)


def test_native_code_shows_no_lines() -> None:
    def native() -> None:
        pa.array(["a"], pa.int64())

    error = caught(native)
    assert traceback.format_exception(Failure.of(error, "nowhere.py").exception()) == traceback.format_exception(error)
