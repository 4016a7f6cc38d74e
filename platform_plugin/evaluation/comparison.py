"""A model against the baseline: difference, interval, p-value, verdict; from values over resamples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
LEVEL = 0.95
NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Interval:
    """A value, and where 95 % of the resamples have it; NaN where it is not known."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Comparison:
    """One metric of a model minus that of the baseline, paired by row.

    Attributes:
        difference: with its 95 % interval.
        p: of no difference, two-sided; `p_holm` is corrected for the number of metrics. NaN where it is not tested.
        least: whether p is the least that so many resamples can show.
        verdict: "better", "worse" or "no evidence"; "different" where the metric has no better side; "not tested".
        wins, ties, losses: rows in which the model is better than the baseline, equal, worse; None where a row's own
            score says nothing, as of an F1 over classes.
    """

    model: str
    baseline: str
    metric: str
    difference: Interval
    p: float
    p_holm: float
    verdict: str
    wins: int | None = None
    ties: int | None = None
    losses: int | None = None
    least: bool = False


def interval(values: Values, rows: int = 0) -> Interval:
    """Return a value with its percentile interval, from ``Sums.values``.

    Args:
        rows: of a share, how many it is of: where all of them are alike, the interval is the exact one of Clopper and
            Pearson. 0 for what is no share: rows that are alike then have no interval.
    """
    resampled = values[1:][~np.isnan(values[1:])]
    # Resamples of rows that are all alike know nothing of rows that are not.
    if not len(resampled) or np.ptp(resampled) == 0:
        value = float(values[0])
        if len(resampled) and rows and value in (0.0, 1.0):
            least = ((1 - LEVEL) / 2) ** (1 / rows)
            return Interval(value, *((0.0, 1 - least) if value == 0 else (least, 1.0)))
        return Interval(value)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(values[0]), float(low), float(high))


def p_value(differences: Values) -> float:
    """Return the share of resamples, moved to a difference of 0, that are as far off as the data are; two-sided.

    Args:
        differences: over all rows, then one a resample.
    """
    observed, resampled = differences[0], differences[1:]
    resampled = resampled[~np.isnan(resampled)]
    if np.isnan(observed) or not len(resampled):
        return math.nan
    if observed == 0:
        return 1.0
    # A hair wider than the observed: equal differences must not fall on either side by their last digit.
    far = np.abs(resampled - observed) >= abs(observed) * (1 - 1e-9)
    return float((1 + far.sum()) / (1 + len(resampled)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method, in the order given; NaN stays, and does not count."""
    known = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    made = [math.nan] * len(p_values)
    most = 0.0
    for rank, (p, place) in enumerate(known):
        most = max(most, min(1.0, p * (len(known) - rank)))
        made[place] = most
    return made


def verdict(difference: float, p: float, better: str) -> str:
    """Return what a difference says of a model, at the level of 5 %."""
    if math.isnan(p) or p >= 1 - LEVEL or difference == 0:
        return "no evidence"
    if better == "neither":
        return "different"
    return "better" if (difference > 0) == (better == "higher") else "worse"


def compare(
    model: str,
    baseline: str,
    metrics: Sequence[tuple[str, str, bool]],
    values: Sequence[tuple[Values, Values]],
    pairs: Sequence[tuple[int, int, int] | None],
    rows: int,
) -> list[Comparison]:
    """Return one comparison a metric, with Holm's correction over those that are tested.

    Args:
        metrics: name and better side of each, and whether it is tested.
        values: of the model and of the baseline, over all rows and then over the same resamples.
        pairs: wins, ties, losses; None where they are not counted.
        rows: that are compared.
    """
    # What is not tested has no resamples, and so no interval and no p.
    differences = [
        (ours - theirs)[: None if tested else 1] for (_, _, tested), (ours, theirs) in zip(metrics, values, strict=True)
    ]
    # Few rows cannot say much, and resamples of rows that are all alike would say that they are sure: the least is the
    # p of so many rows that all fall on one side.
    differing = [rows if pair is None else pair[0] + pair[2] for pair in pairs]
    p_values = [max(p_value(d), min(1.0, 2.0 ** (1 - n))) for d, n in zip(differences, differing, strict=True)]
    corrected = holm(p_values)
    made = []
    for place, ((name, better, tested), d, p) in enumerate(zip(metrics, differences, p_values, strict=True)):
        wins, ties, losses = (pairs[place] if tested else None) or (None, None, None)
        made.append(
            Comparison(
                model=model,
                baseline=baseline,
                metric=name,
                difference=interval(d),
                p=p,
                p_holm=corrected[place],
                verdict=verdict(float(d[0]), corrected[place], better) if tested else NOT_TESTED,
                wins=wins,
                ties=ties,
                losses=losses,
                least=p * int(np.count_nonzero(~np.isnan(d))) <= 1 + 1e-9,
            )
        )
    return made
