"""chrF of the whole corpus: characters in common, which says more than words where words are inflected."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from platform_plugin.measure import Measure, Values, ratio, texts

_ORDER = 6
_BETA = 2


class Chrf(Measure):
    """Corpus chrF2, 0 to 100, as sacrebleu's CHRF() computes it; a failed row is an empty answer."""

    name = "chrf"
    unit = "score"

    def statistics(self, batch: pa.Table) -> Values:
        """Return n-grams of the answer, of the label, and in both, of 1 to 6 characters; zeros without a label."""
        made = np.zeros((batch.num_rows, 3 * _ORDER))
        known: dict[tuple[str | None, str], list[int]] = {}
        for row, (said, label) in enumerate(zip(texts(batch, "prediction"), texts(batch, "label"), strict=True)):
            if label is None:
                continue
            if (said, label) not in known:
                known[said, label] = _counts(said or "", label)
            made[row] = known[said, label]
        return made

    def finish(self, sums: Values) -> Values:
        """Return F2 of the mean precision and recall, over the orders that both sides have; NaN without a label."""
        said, wanted, both = np.split(sums, 3, axis=-1)
        orders = (said > 0) & (wanted > 0)
        count = orders.sum(axis=-1).astype(np.float64)
        precision, recall = (
            ratio(np.where(orders, np.nan_to_num(ratio(both, side)), 0.0).sum(axis=-1), count)
            for side in (said, wanted)
        )
        top, low = (1 + _BETA**2) * precision * recall, _BETA**2 * precision + recall
        score = 100 * np.divide(top, low, out=np.zeros_like(top), where=np.nan_to_num(low) > 0)
        return np.where(wanted[..., 0] > 0, score, np.nan)


def _counts(said: str, label: str) -> list[int]:
    said, label = "".join(said.split()), "".join(label.split())
    sizes, wanted, both = [], [], []
    for n in range(1, _ORDER + 1):
        left, right = _grams(said, n), _grams(label, n)
        wanted.append(right.total())
        # As sacrebleu counts: without a label of this order, an answer's n-grams count for nothing.
        sizes.append(left.total() if right else 0)
        both.append((left & right).total())
    return [*sizes, *wanted, *both]


def _grams(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


METRIC = Chrf
