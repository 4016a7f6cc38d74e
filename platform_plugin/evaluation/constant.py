"""What always answering the most frequent label would reach: a model's values are read beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from platform_plugin.measure import COLUMNS
from platform_plugin.metrics import Metric

_READS = {"label", "prediction"}


@dataclass(frozen=True)
class Constant:
    """The most frequent label.

    Attributes:
        rows: that have it, of `labelled`.
        values: metric -> its value, where all rows had this prediction; of the metrics that `fits` says yes to.
    """

    label: str
    rows: int
    labelled: int
    values: dict[str, float]

    @property
    def name(self) -> str:
        """What stands where others have their names."""
        return f"always {self.label!r}"


def fits(metric: Metric) -> bool:
    """Return whether a metric compares predictions with labels, and reads nothing else."""
    return set(getattr(metric, "takes", ())) == _READS


def constant(metrics: Mapping[str, Metric], counts: Mapping[str, int]) -> Constant:
    """Return what the most frequent label would reach; of equally frequent ones, the first by name.

    Args:
        metrics: bound; those that do not fit are left out.
        counts: label -> rows.
    """
    labels = sorted(counts)
    top = max(labels, key=counts.__getitem__)
    columns: dict[str, Sequence[object]] = {
        "label": labels,
        "prediction": [top] * len(labels),
        "failed": [False] * len(labels),
    }
    # One row a label, which weighs what its rows weigh: a value is made of sums and of nothing else.
    table = pa.table({f.name: pa.array(columns.get(f.name, [None] * len(labels)), f.type) for f in COLUMNS})
    weights = np.array([counts[label] for label in labels], dtype=np.float64)
    found = {name: m.finish(weights @ m.statistics(table)) for name, m in metrics.items() if fits(m)}
    return Constant(top, counts[top], sum(counts.values()), {name: float(value) for name, value in found.items()})
