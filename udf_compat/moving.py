"""UDFs and functions of PySpark, given to Ray's actors or left on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from platform_plugin.udf.carried import carry
from platform_plugin.udf.moving import moved
from platform_plugin.udf.settings import options_with

STAYS = "__udf_compat_on_spark__"


def on_ray(function: Any, **options: Any) -> Any:
    """Return a function, or a UDF, that runs on Ray actors.

    Runs on: driver. Give the function to ``mapInPandas``, ``mapInArrow``, ``groupBy().applyInPandas`` or
    ``cogroup().applyInPandas`` in place of your own; a UDF is used as before.

    Args:
        function: a function, or what ``pandas_udf`` or ``udf`` returned.
        options: as `udf_compat.configure`, over what that set. ``shared_prologue=True`` changes what an iterator
            function means: what stands before its loop (a model that is loaded) runs once an actor and not once a
            partition, the loop goes on over the batches of all partitions, what follows it is never run, and each
            batch must be answered with exactly one. State that is kept from batch to batch then mixes partitions.

    Raises:
        UnsupportedUdfError: the function uses what has no meaning on an actor; named, with the way out.
        ConfigError: an option is not known or not valid.
    """
    checked = options_with(options)
    if hasattr(function, "asNondeterministic"):
        return moved(function, checked)
    return carry(function, checked)


def on_spark(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function that stays on Spark's executors where `install` or ``python -m udf_compat`` moves all others."""
    setattr(function, STAYS, True)
    return function
