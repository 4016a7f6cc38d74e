"""How much of one text is in another: words and n-grams in common, the longest common subsequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from platform_plugin.measure import Mean, Values, texts


class Overlap(Mean):
    """The mean F1 of what a prediction and its label have in common; 0 for a row without a prediction."""

    def tokens(self, text: str) -> Sequence[str]:
        """Return the tokens of a text. To be defined by the metric."""
        raise NotImplementedError

    def common(self, prediction: Sequence[str], label: Sequence[str]) -> tuple[int, int, int]:
        """Return sizes: in common, of the prediction, of the label. To be defined by the metric."""
        raise NotImplementedError

    def values(self, batch: pa.Table) -> Values:
        """Return F1 of each row; NaN without a label. Equal pairs are computed once a batch."""
        pairs = list(zip(texts(batch, "prediction"), texts(batch, "label"), strict=True))
        known = {pair: self._value(*pair) for pair in set(pairs)}
        return np.fromiter((known[pair] for pair in pairs), np.float64, len(pairs))

    def _value(self, prediction: str | None, label: str | None) -> float:
        if label is None:
            return np.nan
        if prediction is None:
            return 0.0
        common, said, wanted = self.common(self.tokens(prediction), self.tokens(label))
        return f1(common, said, wanted)


def f1(common: int, said: int, wanted: int) -> float:
    """Return the harmonic mean of precision and recall; 0 where nothing is in common."""
    return 2 * common / (said + wanted) if common else 0.0


def ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """Count the n-grams."""
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def shared(left: Counter[tuple[str, ...]], right: Counter[tuple[str, ...]]) -> int:
    """Return how many n-grams two texts have in common, each as often as in both."""
    if len(right) < len(left):
        left, right = right, left
    return sum(min(count, right[gram]) for gram, count in left.items() if gram in right)


def longest(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    A row of the usual table is one integer of as many bits as `left` has tokens (Hyyrö 2004): one addition a token of
    `right` where the table takes a step a pair.
    """
    places: dict[str, int] = {}
    for place, token in enumerate(left):
        places[token] = places.get(token, 0) | 1 << place
    mask = (1 << len(left)) - 1
    row = mask
    for token in right:
        match = row & places.get(token, 0)
        row = (row + match | row - match) & mask
    return len(left) - row.bit_count()
