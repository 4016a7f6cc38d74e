"""Labels as classes: the counts that F1 and kappa are made of. The values of the counts belong to the metrics."""

from __future__ import annotations

import copy
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.errors import ConfigError
from platform_plugin.measure import Facts, Measure, Values

MOST_CLASSES = 1000
"""Distinct labels at most: more are no classes, but texts."""


class ClassCounts(Measure):
    """Counts of hits, labels and predictions of each class, side by side: (rows, 3 x classes).

    A class is a label that occurs. A prediction that is none of them, or none at all, is a miss of its label and counts
    for no class: a model that writes free text cannot lower the mean by inventing classes.
    """

    needs_classes = True
    takes: ClassVar = {"label": ("text", "number", "boolean"), "prediction": ("text", "number", "boolean")}
    truth: ClassVar[str] = "label"
    guess: ClassVar[str] = "prediction"
    classes: tuple[str, ...] = ()

    def bind(self, facts: Facts) -> Self:
        """Return the metric for these labels. Raises ConfigError where there are more than MOST_CLASSES."""
        if len(facts.classes) > MOST_CLASSES:
            raise ConfigError(
                f"metric {self.name!r}: the label has more than {MOST_CLASSES} distinct values, which are no classes.\n"
                "Take exact_match or token_f1, or another label."
            )
        made = copy.copy(self)
        made.classes = facts.classes
        return made

    def statistics(self, batch: pa.Table) -> Values:
        """Return hits, labels and predictions of each class; zeros for a row without a label."""
        truth, guess = self._codes(batch.column(self.truth)), self._codes(batch.column(self.guess))
        rows, width = batch.num_rows, len(self.classes)
        made = np.zeros((rows, 3 * width))
        place = np.arange(rows)
        has, hit = truth >= 0, (truth >= 0) & (truth == guess)
        said = has & (guess >= 0)
        made[place[hit], truth[hit]] = 1
        made[place[has], width + truth[has]] = 1
        made[place[said], 2 * width + guess[said]] = 1
        return made

    def _codes(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Return the place of each value in `classes`, -1 for what is none of them."""
        trimmed = pc.utf8_trim_whitespace(column)
        found = pc.fill_null(pc.index_in(trimmed, pa.array(self.classes, pa.string())), -1)
        made: npt.NDArray[np.int64] = np.asarray(found.to_numpy(), dtype=np.int64)
        return made


def f1(sums: Values) -> tuple[Values, Values]:
    """Return F1 and labels of each class, (..., classes) both, from counts of `ClassCounts`."""
    hits, labels, guesses = np.split(sums, 3, axis=-1)
    whole = labels + guesses
    return np.divide(2 * hits, whole, out=np.zeros_like(hits), where=whole > 0), labels
