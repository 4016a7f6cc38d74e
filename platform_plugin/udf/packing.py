"""Functions and what Spark makes of them, as bytes: packed on the driver, unpacked once a process of an actor."""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Callable
from typing import Any

from platform_plugin.errors import UnsupportedUdfError

_TOO_DRIVER = {
    "SparkContext": "a SparkContext",
    "SparkSession": "a SparkSession",
    "DataFrame": "a DataFrame",
    "RDD": "an RDD",
    "Accumulator": "an accumulator",
}
_REMEDY = {
    "SparkContext": "Compute what it needs on the driver, and let the function close over the value or a broadcast.",
    "Accumulator": "Return the count as a column and sum it, or leave this UDF on Spark (udf_compat.on_spark).",
}


def pack(function: Callable[..., Any], name: str) -> bytes:
    """Return `function` as bytes. Runs on: driver.

    Raises:
        UnsupportedUdfError: the function holds what has no meaning on an actor, or what does not pickle; named.
    """
    pickler: Any = _cloudpickle().CloudPickler

    class Packer(pickler):  # type: ignore[misc]
        def reducer_override(self, obj: Any) -> Any:
            check_value(obj, name)
            return super().reducer_override(obj)

    out = io.BytesIO()
    try:
        Packer(out).dump(function)
    except UnsupportedUdfError:
        raise
    except Exception as exc:
        raise UnsupportedUdfError(
            f"UDF {name!r} cannot be sent to an actor: {type(exc).__name__}: {exc}{_culprits(function)}\n"
            "Open what cannot be pickled (a lock, a connection, a model) inside the function, once, and keep it there."
        ) from exc
    return out.getvalue()


def unpack(packed: bytes, shared_prologue: bool) -> Callable[..., Any]:
    """Return the function, loaded once a process. Runs on: Ray actor."""
    return _loaded(digest(packed), shared_prologue, _Held(packed))


class _Held:
    """Bytes that play no part in the key of a cache."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@functools.cache
def _loaded(_: str, shared_prologue: bool, packed: _Held) -> Callable[..., Any]:
    from platform_plugin.udf.prologue import SharedPrologue

    function: Callable[..., Any] = loads(packed.data)
    return SharedPrologue(function) if shared_prologue else function


def dumps(value: Any) -> bytes:
    """Pickle as Spark does: functions and classes of ``__main__`` by value."""
    data: bytes = _cloudpickle().dumps(value)
    return data


def loads(data: Any) -> Any:
    """Read what `dumps` wrote."""
    return _cloudpickle().loads(data)


def _cloudpickle() -> Any:
    from pyspark import cloudpickle

    return cloudpickle


def digest(data: bytes) -> str:
    """Return 16 hex digits that are equal exactly for equal bytes."""
    return hashlib.sha256(data).hexdigest()[:16]


def check_function(function: Callable[..., Any], name: str) -> None:
    """Raise UnsupportedUdfError for what a function names, now, that has no meaning on an actor. Runs on: driver.

    Looks at closures and globals, also of the functions it calls; what it holds deeper is found by `pack`.
    """
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        check_value(one, name)
        one = getattr(one, "func", one) if isinstance(one, functools.partial) else one
        one = getattr(one, "__func__", one)
        if hasattr(one, "__code__"):
            waiting += _named(one).values()


def _named(function: Any) -> dict[str, Any]:
    """Return the values of a function's globals and closure, by name, as far as they are set."""
    code = function.__code__
    names = _cloudpickle().cloudpickle._extract_code_globals(code)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    return found


def check_value(value: Any, name: str) -> None:
    """Raise UnsupportedUdfError for a value that lives on the driver only."""
    kinds = {kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("pyspark.")}
    hit = next((kind for kind in _TOO_DRIVER if kind in kinds), None)
    if hit is None:
        return
    raise UnsupportedUdfError(
        f"UDF {name!r} uses {_TOO_DRIVER[hit]}, which does not reach a function on a Ray actor.\n"
        + _REMEDY.get(hit, _REMEDY["SparkContext"])
    )


def _culprits(function: Any) -> str:
    found = []
    for name, value in _named(function).items() if hasattr(function, "__code__") else ():
        try:
            dumps(value)
        except Exception:
            found.append(f"{name} ({type(value).__name__})")
    return f"\nIt closes over {', '.join(found)}." if found else ""
