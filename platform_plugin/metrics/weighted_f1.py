"""The mean F1 of the classes, each as often as it occurs among the labels."""

from __future__ import annotations

from platform_plugin.classes import ClassCounts, f1
from platform_plugin.measure import Values, ratio


class WeightedF1(ClassCounts):
    """As scikit-learn's ``f1_score(average="weighted", labels=<those of the label column>, zero_division=0)``."""

    name = "weighted_f1"

    def finish(self, sums: Values) -> Values:
        """Return the mean weighted by the labels of each class."""
        scores, labels = f1(sums)
        return ratio((scores * labels).sum(axis=-1), labels.sum(axis=-1))


METRIC = WeightedF1
