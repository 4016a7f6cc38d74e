"""Kinds of UDF: how Spark calls each, and so how its stream may be cut and spread over actors.

To add one, write a file ``kinds/<name>.py`` that defines ``KIND``, a `Kind`. What a kind does with its rows is not said
here: PySpark's own worker code for it is run on the actor.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from platform_plugin.errors import UnsupportedUdfError
from platform_plugin.udf.framing import Framing

WITH_STATE = 208


@dataclass(frozen=True)
class Kind:
    """One way in which Spark calls a Python function.

    Args:
        eval_types: Spark's numbers for it (``pyspark.rdd.PythonEvalType``).
        framing: what cuts the JVM's stream.
        whole: whether all rows of a partition belong to one call, on one actor; else each frame stands alone.
        resizable: whether ``batch_rows`` may change the frames: they are batches, not groups.
        arrow_out: whether the answer is an Arrow stream; else lists, one after the other.
    """

    name: str
    eval_types: tuple[int, ...]
    framing: Callable[[], Framing]
    whole: bool = False
    resizable: bool = False
    arrow_out: bool = True


@functools.cache
def find_kinds() -> dict[int, Kind]:
    """Return all kinds by Spark's numbers."""
    found: dict[int, Kind] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        kind: Kind = importlib.import_module(f"{__name__}.{module}").KIND
        found.update(dict.fromkeys(kind.eval_types, kind))
    return found


def kind_of(eval_type: int, name: str) -> Kind:
    """Return the kind of Spark's number. Raises UnsupportedUdfError, with the way out, where it is not carried over."""
    kinds = find_kinds()
    if eval_type in kinds:
        return kinds[eval_type]
    what = "applyInPandasWithState, whose state Spark keeps" if eval_type == WITH_STATE else f"Spark's kind {eval_type}"
    raise UnsupportedUdfError(
        f"{name!r} is a function for {what}; that is not carried over to Ray actors (carried over: "
        f"{', '.join(dict.fromkeys(kind.name for kind in kinds.values()))}).\n"
        "Leave it on Spark: mark it with udf_compat.on_spark(function), or use PySpark's own import."
    )
