"""The mean F1 of the classes, each with the same weight."""

from __future__ import annotations

import numpy as np

from platform_plugin.classes import ClassCounts, f1
from platform_plugin.measure import Values, ratio


class MacroF1(ClassCounts):
    """As scikit-learn's ``f1_score(average="macro", labels=<those of the label column>, zero_division=0)``.

    In a slice or a resample, the mean is over the labels that occur there.
    """

    name = "macro_f1"

    def finish(self, sums: Values) -> Values:
        """Return the mean over the classes that have a label."""
        scores, labels = f1(sums)
        present = labels > 0
        return ratio(np.where(present, scores, 0.0).sum(axis=-1), present.sum(axis=-1).astype(np.float64))


METRIC = MacroF1
