"""A function of mapInArrow: an iterator of record batches to an iterator of such, one call a partition."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("mapInArrow function", (PythonEvalType.SQL_MAP_ARROW_ITER_UDF,), ArrowFraming, whole=True, resizable=True)
