"""ROUGE-1: words in common with the label."""

from __future__ import annotations

from platform_plugin.rouge import RougeN


class Rouge1(RougeN):
    """Mean F1 of words in common, as rouge-score's rouge1 without a stemmer; 0 for a failed row."""

    name = "rouge1"
    n = 1


METRIC = Rouge1
