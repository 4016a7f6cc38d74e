"""A function of a cogroup's applyInPandas: the frames of two groups of one key to a frame."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import CogroupFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("cogroup applyInPandas function", (PythonEvalType.SQL_COGROUPED_MAP_PANDAS_UDF,), CogroupFraming)
