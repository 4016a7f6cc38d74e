"""What a thousand rows cost, by a table of prices."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa

from platform_plugin.errors import ConfigError
from platform_plugin.measure import Facts, Mean, Values, numbers
from platform_plugin.prices import Price, load_price


class Cost(Mean):
    """Mean cost of 1,000 rows, in the table's currency, over the rows that were answered.

    Args:
        model: the model's name in the table; without it, the one that the stage asks.
        prices: path of the table; without it, that of `evaluate`, or conf/prices.yaml.
    """

    name = "cost"
    better = "lower"
    unit = "per 1,000 rows"
    takes: ClassVar = {"prompt_tokens": ("number",), "output_tokens": ("number",)}
    _price: Price

    def __init__(self, model: str | None = None, prices: str | None = None) -> None:
        self._model = model
        self._table = Path(prices) if prices else None

    def bind(self, facts: Facts) -> Self:
        """Return the metric with the model's price. Raises ConfigError where the table has none."""
        model = self._model or facts.model
        if model is None:
            raise ConfigError(
                "metric 'cost': which model made a prediction column is not known; "
                "name it: {'cost': {'model': <a name in the price table>}}."
            )
        made = copy.copy(self)
        made._price, currency = load_price(model, self._table or facts.prices)
        made.unit = f"{currency} per 1,000 rows"
        price = made._price
        made.basis = (
            f"{currency} {price.input:g} for a million prompt tokens, {price.cached_input:g} where they are cached, "
            f"{price.output:g} for output tokens"
        )
        return made

    def values(self, batch: pa.Table) -> Values:
        """Return the cost of 1,000 rows such as each; NaN where its tokens are not known."""
        prompt, output = numbers(batch, "prompt_tokens"), numbers(batch, "output_tokens")
        cached = np.nan_to_num(numbers(batch, "cached_tokens"))
        price = self._price
        total = (prompt - cached) * price.input + cached * price.cached_input + output * price.output
        return total * 1000 / 1e6


METRIC = Cost
