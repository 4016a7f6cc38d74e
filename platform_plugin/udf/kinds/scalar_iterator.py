"""A scalar iterator pandas UDF: one call a partition, with a prologue and state of its own."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind(
    "scalar iterator pandas UDF", (PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,), ArrowFraming, whole=True, resizable=True
)
