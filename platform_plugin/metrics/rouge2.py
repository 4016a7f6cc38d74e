"""ROUGE-2: pairs of words in common with the label."""

from __future__ import annotations

from platform_plugin.rouge import RougeN


class Rouge2(RougeN):
    """Mean F1 of pairs of words in common, as rouge-score's rouge2 without a stemmer; 0 for a failed row."""

    name = "rouge2"
    n = 2


METRIC = Rouge2
