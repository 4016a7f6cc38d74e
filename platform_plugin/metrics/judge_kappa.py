"""Whether a judge agrees with people."""

from __future__ import annotations

import math
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.classes import ClassCounts
from platform_plugin.measure import Facts, Values, ratio


class JudgeKappa(ClassCounts):
    """Cohen's kappa of a judge's score and the score of a person (`humanCol`), over the rows that have both.

    1 is agreement in every row, 0 as much as chance would give. As scikit-learn's ``cohen_kappa_score``.
    """

    name = "judge_kappa"
    better = "neither"  # it says something of the judge, not of the model
    unit = "score"
    needs_classes = False
    takes: ClassVar = {"judge": ("number",), "human": ("number", "text")}
    truth = "human"
    guess = "judge"
    classes = tuple(f"{score:g}" for score in (0, 0.5, 1, 2, 3, 4, 5))

    def bind(self, facts: Facts) -> Self:  # noqa: ARG002  # the scale of a judge is known
        """Return the metric itself."""
        return self

    def statistics(self, batch: pa.Table) -> Values:
        """Return the counts of `ClassCounts`; zeros where one of the two has no score."""
        columns = [pa.array([plain(v) for v in batch.column(name).to_pylist()], pa.string()) for name in self._pair]
        both = pc.and_(*[pc.is_valid(column) for column in columns])
        made = super().statistics(pa.table(columns, names=list(self._pair)))
        counted: Values = both.to_numpy(zero_copy_only=False).astype(np.float64)[:, None]
        return made * counted

    @property
    def _pair(self) -> tuple[str, str]:
        return self.truth, self.guess

    def finish(self, sums: Values) -> Values:
        """Return (observed - chance) / (1 - chance)."""
        hits, people, judge = np.split(sums, 3, axis=-1)
        rows = people.sum(axis=-1)
        observed = ratio(hits.sum(axis=-1), rows)
        chance = ratio((people * judge).sum(axis=-1), rows * rows)
        return ratio(observed - chance, 1 - chance)


def plain(value: object) -> str | None:
    """Return 4, 4.0 and "4" as "4"; None for what is no number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return None if math.isnan(number) else f"{number:g}"


METRIC = JudgeKappa
