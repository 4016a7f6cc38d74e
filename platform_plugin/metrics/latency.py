"""How long a row waits for its answer."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from platform_plugin.measure import Mean, Values, numbers


class Latency(Mean):
    """Mean seconds of a request, from when the engine took it, over the rows that were answered."""

    name = "latency"
    better = "lower"
    unit = "s"
    tested = False
    takes: ClassVar = {"seconds": ("number",)}

    def values(self, batch: pa.Table) -> Values:
        """Return the seconds; NaN where they are not known."""
        return numbers(batch, "seconds")


METRIC = Latency
