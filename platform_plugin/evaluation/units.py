"""How values are read: shares in percent and their differences in points, the rest with three digits that count.

A value and the ends of its interval have the same decimals: the widest of them decides.
"""

from __future__ import annotations

import math

from platform_plugin.evaluation.comparison import Comparison, Interval


def shown(value: float, unit: str) -> str:
    """Return a value; of the units only % is said, the others stand in the head of a table."""
    return _value(value, unit, [value])


def interval(found: Interval, unit: str) -> tuple[str, str]:
    """Return a value and its interval ("8.4 %", "4.4 to 13.2 %"); "" where it has none."""
    whole = [found.value, found.low, found.high]
    if math.isnan(found.low):
        return _value(found.value, unit, whole), ""
    return _value(found.value, unit, whole), f"{_number(found.low, unit, whole)} to {_value(found.high, unit, whole)}"


def difference(found: Interval, unit: str) -> tuple[str, str]:
    """Return a difference with its unit, and its interval without ("+5.2 points", "-0.7 to +11.4")."""
    whole = [found.value, found.low, found.high]
    value, low, high = (_number(number, unit, whole, "+") for number in whole)
    word = "points" if unit == "share" else said(unit)
    return f"{value} {word}".strip(), "" if math.isnan(found.low) else f"{low} to {high}"


def p_text(found: Comparison, name: str = "") -> str:
    """Return `name` and the corrected p, with a sign where so many resamples can show no smaller; "" without a p."""
    sign = "\u2264 " if found.least else ""
    return "" if math.isnan(found.p_holm) else f"{name}{sign}{found.p_holm:.3f}"


def said(unit: str) -> str:
    """Return the words of a unit that stand in a head; "" for a share, whose % is beside it, and for a score."""
    return "" if unit in ("share", "score") else unit


def titled(metric: str, unit: str) -> str:
    """Return a metric with its unit: "latency (s)"."""
    return f"{metric} ({said(unit)})" if said(unit) not in ("", metric) else metric


def _value(value: float, unit: str, whole: list[float]) -> str:
    return _number(value, unit, whole) + (" %" if unit == "share" and not math.isnan(value) else "")


def _number(value: float, unit: str, whole: list[float], sign: str = "") -> str:
    if math.isnan(value):
        return "-"
    scale = 100 if unit == "share" else 1
    most = scale * max(abs(v) for v in whole if not math.isnan(v))
    if unit == "share" and (most == 0 or most >= 0.1):
        # On which side of 0 the end of a difference lies is what matters of it.
        digits = 2 if sign and any(0 < abs(scale * v) < 0.05 for v in whole) else 1
    elif most == 0 or most >= 1000:
        digits = 0
    else:
        digits = 1 if most >= 10 else 2 - math.floor(math.log10(most))
    # "z": no minus before what is rounded to 0.
    return format(scale * value, f"{sign}z,.{digits}f" if digits < 9 else f"{sign}z.2e")
