"""PySpark's UDF object, for a function on Ray actors."""

from __future__ import annotations

from typing import Any

from pyspark.sql.udf import UserDefinedFunction

from platform_plugin import local_ray
from platform_plugin.connection import Connection


class RayUserDefinedFunction(UserDefinedFunction):
    """A UDF whose JVM side knows the actors of the Ray that runs now: a UDF of a module outlives a session."""

    _made_for: Connection | None = None

    @property
    def _judf(self) -> Any:
        local_ray.connect()
        here = Connection.of_driver()
        if self._judf_placeholder is None or self._made_for != here:
            self._judf_placeholder = self._create_judf(self.func)
            self._made_for = here
        return self._judf_placeholder
