"""How long the answers are."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.measure import Mean, Values


class Length(Mean):
    """Mean characters of the predictions, over the rows that have one."""

    name = "length"
    better = "neither"
    unit = "characters"
    takes: ClassVar = {"prediction": ("text",)}

    def values(self, batch: pa.Table) -> Values:
        """Return the characters; NaN without a prediction."""
        found = pc.cast(pc.utf8_length(batch.column("prediction")), pa.float64())
        return np.asarray(found.to_numpy(), dtype=np.float64)


METRIC = Length
