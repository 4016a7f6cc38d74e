"""What a judge thinks of the answers."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from platform_plugin.measure import Mean, Values, numbers


class JudgeScore(Mean):
    """Mean score of the judge over the rows that it judged: 1 to 5, or in pairs 1 a win, 0.5 a tie, 0 a loss."""

    name = "judge_score"
    unit = "score"
    takes: ClassVar = {"judge": ("number",)}

    def values(self, batch: pa.Table) -> Values:
        """Return the score; NaN where the judge gave none."""
        return numbers(batch, "judge")


METRIC = JudgeScore
