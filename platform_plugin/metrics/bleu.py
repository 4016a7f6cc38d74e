"""BLEU of the whole corpus: its counts add up, its value does not."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from sacrebleu.metrics.bleu import BLEU

from platform_plugin.errors import ConfigError
from platform_plugin.measure import Measure, Values, texts

_ORDER = 4


class Bleu(Measure):
    """Corpus BLEU, 0 to 100, as sacrebleu computes it (13a, smoothing exp); a failed row is an empty answer.

    Args:
        tokenize: a tokenizer of sacrebleu: "13a", "intl", "char", "zh", "none".
        lowercase: whether case is not looked at.
    """

    name = "bleu"
    unit = "score"

    def __init__(self, tokenize: str = "13a", lowercase: bool = False) -> None:
        if tokenize not in BLEU.TOKENIZERS:
            raise ConfigError(f"bleu: tokenize={tokenize!r} is not one of {', '.join(sorted(BLEU.TOKENIZERS))}.")
        self._options: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase}

    @cached_property
    def _bleu(self) -> BLEU:
        return BLEU(effective_order=True, **self._options)  # of one sentence; for its counts alone

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options}

    def statistics(self, batch: pa.Table) -> Values:
        """Return lengths of answer and label, then matches and totals of 1- to 4-grams; zeros without a label."""
        made = np.zeros((batch.num_rows, 2 + 2 * _ORDER))
        known: dict[tuple[str | None, str], list[float]] = {}
        for row, (said, label) in enumerate(zip(texts(batch, "prediction"), texts(batch, "label"), strict=True)):
            if label is None:
                continue
            if (said, label) not in known:
                score = self._bleu.sentence_score(said or "", [label])
                known[said, label] = [score.sys_len, score.ref_len, *score.counts, *score.totals]
            made[row] = known[said, label]
        return made

    def finish(self, sums: Values) -> Values:
        """Return BLEU of the counts; NaN without a label."""
        flat = sums.reshape(-1, sums.shape[-1])
        return np.array([_bleu(counts) for counts in flat]).reshape(sums.shape[:-1])


def _bleu(counts: Values) -> float:
    if counts[1] == 0:
        return np.nan
    score = BLEU.compute_bleu(
        correct=list(counts[2 : 2 + _ORDER]),
        total=list(counts[2 + _ORDER :]),
        sys_len=int(counts[0]),
        ref_len=int(counts[1]),
        smooth_method="exp",
    )
    return float(score.score)


METRIC = Bleu
