"""A function of applyInPandas: the frame of a group to a frame."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("applyInPandas function", (PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF,), ArrowFraming)
