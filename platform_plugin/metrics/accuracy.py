"""The share of rows that are given their class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.measure import Mean, Values, labelled


class Accuracy(Mean):
    """Share of labelled rows whose prediction is the label, blanks around texts left out; a failed row is wrong."""

    name = "accuracy"
    takes: ClassVar = {"label": ("text", "number", "boolean"), "prediction": ("text", "number", "boolean")}

    def values(self, batch: pa.Table) -> Values:
        """Return 1 or 0; NaN without a label."""
        trimmed = [pc.utf8_trim_whitespace(batch.column(name)) for name in ("prediction", "label")]
        same = pc.fill_null(pc.equal(*trimmed), False)
        return np.where(labelled(batch), same.to_numpy().astype(np.float64), np.nan)


METRIC = Accuracy
