"""ROUGE's words and n-grams, for the metrics of that name; its tokens are those of the package rouge-score."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar

from rouge_score import tokenize

from platform_plugin.overlap import Overlap, ngrams, shared


class RougeN(Overlap):
    """Mean F1 of the n-grams in common, as rouge-score without a stemmer."""

    n: ClassVar[int]
    unit = "score"

    def tokens(self, text: str) -> Sequence[str]:
        """Return the words as rouge-score splits them."""
        return tokens(text)

    def common(self, prediction: Sequence[str], label: Sequence[str]) -> tuple[int, int, int]:
        """Return n-grams in common, of the prediction, of the label."""
        sizes = [max(0, len(words) - self.n + 1) for words in (prediction, label)]
        return shared(ngrams(prediction, self.n), ngrams(label, self.n)), sizes[0], sizes[1]


@lru_cache(maxsize=10_000)
def tokens(text: str) -> tuple[str, ...]:
    """Return the words of a text; kept, since three metrics ask for them."""
    return tuple(tokenize.tokenize(text, None))
