"""The share of rows without an answer."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from platform_plugin.measure import Mean, Values, numbers


class ErrorRate(Mean):
    """Share of rows that have no prediction: failed, refused by the engine, or lost."""

    name = "error_rate"
    better = "lower"
    takes: ClassVar = {}

    def values(self, batch: pa.Table) -> Values:
        """Return 1 or 0."""
        return numbers(batch, "failed")


METRIC = ErrorRate
