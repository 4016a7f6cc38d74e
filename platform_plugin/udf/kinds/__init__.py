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

from platform_plugin.udf.framing import Framing


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
