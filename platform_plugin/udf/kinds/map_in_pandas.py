"""A function of mapInPandas: an iterator of frames to an iterator of frames, one call a partition."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import ArrowFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("mapInPandas function", (PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,), ArrowFraming, whole=True, resizable=True)
