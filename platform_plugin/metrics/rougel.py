"""ROUGE-L: the longest sequence of words that an answer has in common with its label."""

from __future__ import annotations

from collections.abc import Sequence

from platform_plugin.overlap import Overlap, longest
from platform_plugin.rouge import tokens


class RougeL(Overlap):
    """Mean F1 of the longest common subsequence, as rouge-score's rougeL without a stemmer; 0 for a failed row."""

    name = "rougel"
    unit = "score"

    def tokens(self, text: str) -> Sequence[str]:
        """Return the words as rouge-score splits them."""
        return tokens(text)

    def common(self, prediction: Sequence[str], label: Sequence[str]) -> tuple[int, int, int]:
        """Return the length in common, of the prediction, of the label."""
        return longest(prediction, label), len(prediction), len(label)


METRIC = RougeL
