"""How many words an answer has in common with its label, as SQuAD counts them."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache

from platform_plugin.overlap import Overlap, ngrams, shared

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


class TokenF1(Overlap):
    """Mean F1 of the words in common; case, punctuation and English articles are not looked at, as in SQuAD.

    Two texts without a word are equal: 1.
    """

    name = "token_f1"

    def tokens(self, text: str) -> Sequence[str]:
        """Return the words."""
        return words(text)

    def common(self, prediction: Sequence[str], label: Sequence[str]) -> tuple[int, int, int]:
        """Return words in common, of the prediction, of the label."""
        if not prediction and not label:
            return 1, 1, 1
        return shared(ngrams(prediction, 1), ngrams(label, 1)), len(prediction), len(label)


@lru_cache(maxsize=10_000)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, plain."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


METRIC = TokenF1
