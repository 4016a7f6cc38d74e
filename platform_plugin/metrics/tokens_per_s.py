"""How fast an answer is written."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from platform_plugin.measure import Measure, Values, numbers, ratio


class TokensPerS(Measure):
    """Output tokens for each second that their request took: what one reader sees, not what the engine does at once."""

    name = "tokens_per_s"
    unit = "tokens/s"
    tested = False
    takes: ClassVar = {"output_tokens": ("number",), "seconds": ("number",)}

    def statistics(self, batch: pa.Table) -> Values:
        """Return tokens and seconds; zeros where one of them is not known."""
        made = np.stack([numbers(batch, "output_tokens"), numbers(batch, "seconds")], axis=1)
        return np.where(np.isnan(made).any(axis=1, keepdims=True), 0.0, made)

    def finish(self, sums: Values) -> Values:
        """Return tokens over seconds."""
        return ratio(sums[..., 0], sums[..., 1])


METRIC = TokensPerS
