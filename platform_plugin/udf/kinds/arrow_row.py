"""A plain UDF that Spark feeds with Arrow (useArrow=True): one row's values to a value."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("udf with useArrow", (PythonEvalType.SQL_ARROW_BATCHED_UDF,), ArrowFraming)
