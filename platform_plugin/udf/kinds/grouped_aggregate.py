"""A grouped aggregate pandas UDF: columns of a group, or of a window, to one value."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind(
    "grouped aggregate pandas UDF",
    (PythonEvalType.SQL_GROUPED_AGG_PANDAS_UDF, PythonEvalType.SQL_WINDOW_AGG_PANDAS_UDF),
    ArrowFraming,
)
