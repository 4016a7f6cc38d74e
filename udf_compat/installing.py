"""Runs all UDFs of a program on Ray actors though it imports only PySpark.

All of PySpark's ways to make a UDF end in one method, which gives the function to the JVM; there it is wrapped. So it
does not matter what was imported before.
"""

from __future__ import annotations

import functools
from typing import Any

from platform_plugin.udf.carried import Carried, carry
from platform_plugin.udf.kinds import kind_of
from platform_plugin.udf.settings import configure, options_with
from udf_compat.moving import STAYS

_OWN = ("platform_plugin.", "pyspark.")
_USERS = ("pyspark.ml.functions",)
"""PySpark's modules whose functions run a user's: predict_batch_udf."""
_plain: Any = None


def install(**options: Any) -> None:
    """Run every UDF that Spark is given from now on, in this process, on Ray actors. Runs on: driver.

    Args:
        options: as `udf_compat.configure`.

    Functions marked with `udf_compat.on_spark` stay on Spark. Calling it again changes the options only.
    """
    from pyspark.sql.udf import UserDefinedFunction

    global _plain
    if options:
        configure(**options)
    if _plain is not None:
        return
    _plain = UserDefinedFunction._create_judf

    @functools.wraps(_plain)
    def create(self: Any, func: Any) -> Any:
        return _plain(self, _carried(func, self.evalType, self._name))

    UserDefinedFunction._create_judf = create  # type: ignore[method-assign]


def uninstall() -> None:
    """Leave the UDFs that Spark is given from now on where Spark runs them."""
    from pyspark.sql.udf import UserDefinedFunction

    global _plain
    if _plain is not None:
        UserDefinedFunction._create_judf = _plain  # type: ignore[method-assign]
        _plain = None


def _carried(function: Any, eval_type: int, name: str) -> Any:
    module = getattr(function, "__module__", None) or ""
    ours = f"{module}.".startswith(_OWN) and module not in _USERS
    if isinstance(function, Carried) or ours or getattr(function, STAYS, False):
        return function
    kind_of(eval_type, name)
    return carry(function, options_with(None))
