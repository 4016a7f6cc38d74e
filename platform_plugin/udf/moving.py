"""PySpark's UDFs, made again with their function on Ray actors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from platform_plugin.udf.carried import carry
from platform_plugin.udf.kinds import kind_of
from platform_plugin.udf.options import UdfOptions


def moved(
    made: Any,
    options: UdfOptions,
    *,
    function: Callable[..., Any] | None = None,
    return_type: Any = None,
    deterministic: bool | None = None,
) -> Any:
    """Return PySpark's UDF `made` with its function on actors: the same name, type, kind and determinism.

    Args:
        function, return_type, deterministic: in place of its own, where given.

    Raises:
        UnsupportedUdfError: its kind is not carried over.
    """
    original = plain(made)
    kind_of(original.evalType, original._name)
    cls = type(original) if type(original).__module__.startswith("pyspark.sql.connect") else _udf_class()
    own_type = getattr(original, "_returnType", None) or original.returnType
    again = cls(
        carry(original.func if function is None else function, options),
        returnType=own_type if return_type is None else return_type,
        name=original._name,
        evalType=original.evalType,
        deterministic=original.deterministic if deterministic is None else deterministic,
    )
    return again._wrapped()


def plain(made: Any) -> Any:
    """Return the object behind what ``pandas_udf`` or ``udf`` returned; it has ``func`` and ``evalType``."""
    return getattr(made, "_unwrapped", made)


def _udf_class() -> Any:
    from platform_plugin.udf.spark_udf import RayUserDefinedFunction

    return RayUserDefinedFunction
