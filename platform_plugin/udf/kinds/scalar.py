"""A scalar pandas UDF: columns to a column, batch by batch."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("scalar pandas UDF", (PythonEvalType.SQL_SCALAR_PANDAS_UDF,), ArrowFraming, resizable=True)
