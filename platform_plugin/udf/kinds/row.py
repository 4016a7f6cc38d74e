"""A plain UDF: one row's values to a value, in pickled lists of rows."""

from __future__ import annotations

from pyspark.rdd import PythonEvalType

from platform_plugin.udf.framing import PickleFraming
from platform_plugin.udf.kinds import Kind

KIND = Kind("udf", (PythonEvalType.SQL_BATCHED_UDF,), PickleFraming, arrow_out=False)
