"""How many tokens a row takes."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from platform_plugin.measure import Mean, Values, numbers


class Tokens(Mean):
    """Mean tokens of prompt and answer together, over the rows that were answered."""

    name = "tokens"
    better = "lower"
    unit = "tokens"
    takes: ClassVar = {"prompt_tokens": ("number",), "output_tokens": ("number",)}

    def values(self, batch: pa.Table) -> Values:
        """Return the tokens; NaN where they are not known."""
        return numbers(batch, "prompt_tokens") + numbers(batch, "output_tokens")


METRIC = Tokens
