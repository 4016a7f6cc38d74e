"""The share of answers that are their label, letter by letter."""

from __future__ import annotations

import string

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.measure import Mean, Values, labelled

_MARKS = f"[{''.join(chr(92) + c for c in string.punctuation)}]"


class ExactMatch(Mean):
    """Share of labelled rows whose prediction equals the label; a failed row does not.

    Args:
        ignore_case: compare without regard to case.
        ignore_punctuation: compare without ASCII punctuation.
    """

    name = "exact_match"

    def __init__(self, ignore_case: bool = False, ignore_punctuation: bool = False) -> None:
        self._case, self._marks = ignore_case, ignore_punctuation

    def values(self, batch: pa.Table) -> Values:
        """Return 1 or 0; NaN without a label."""
        same = pc.fill_null(pc.equal(self._plain(batch, "prediction"), self._plain(batch, "label")), False)
        return np.where(labelled(batch), same.to_numpy().astype(np.float64), np.nan)

    def _plain(self, batch: pa.Table, column: str) -> pa.ChunkedArray:
        text = batch.column(column)
        if self._case:
            text = pc.utf8_lower(text)
        return pc.replace_substring_regex(text, _MARKS, "") if self._marks else text


METRIC = ExactMatch
