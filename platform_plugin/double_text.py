"""The text of a double, the same from Spark as from Python.

Each step is one IEEE operation, or the reading of a decimal, which both languages specify to the bit:
e = floor(log10 |x|), put right where log10 is off by one; n = the first 15 digits as a whole number.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def double_text(x: float) -> str:
    """Return the text of `x`: as ``repr`` writes it after rounding to 15 significant digits."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"
    a = abs(x)
    if a < 2**53 and a == math.floor(a):
        return f"{int(x)}.0"
    e = math.floor(math.log10(a))
    e += (a >= float(f"1e{e + 1}")) - (a < float(f"1e{e}"))
    if e > 14:
        scaled = a / float(f"1e{e - 14}")
    elif e < -290:
        scaled = a * 1e200 * float(f"1e{-186 - e}")
    else:
        scaled = a * float(f"1e{14 - e}")
    n = math.floor(scaled + 0.5)
    up = int(n >= 10**15)
    point = decimal.Decimal(n).scaleb(-14 - up)
    if -4 <= e + up <= 15:
        whole, _, fraction = format(point.scaleb(e + up), "f").partition(".")
        text = f"{whole}.{fraction.rstrip('0') or '0'}"
    else:
        digits = format(point, "f").rstrip("0").rstrip(".")
        text = f"{digits}e{'-' if e + up < 0 else '+'}{abs(e + up):02d}"
    return "-" + text if x < 0 else text


def double_column(x: Column) -> Column:
    """Return the text of the double column `x`, null where it is null. Runs on: driver."""
    from pyspark.sql import functions as F

    a = F.abs(x)

    def let(value: Column, body: Callable[[Column], Column]) -> Column:
        return F.transform(F.array(value), body)[0]

    def power(k: Column) -> Column:
        return F.concat(F.lit("1e"), k.cast("string")).cast("double")

    def exponent(guess: Column) -> Column:
        return guess + (a >= power(guess + 1)).cast("int") - (a < power(guess)).cast("int")

    def whole(e: Column) -> Column:
        tiny = a * F.lit(1e200) * power(-e - 186)
        scaled = F.when(e > 14, a / power(e - 14)).when(e < -290, tiny)
        return F.floor(scaled.otherwise(a * power(-e + 14)) + 0.5)

    def shown(n: Column, shift: Column, pattern: str) -> Column:
        exact = F.concat(n.cast("string"), F.lit("e"), shift.cast("string")).cast("decimal(38,18)")
        return F.call_function("format_number", exact, F.lit(pattern))

    def text(e: Column, n: Column, up: Column) -> Column:
        size = F.abs(e + up).cast("string")
        scientific = F.concat(
            shown(n, -up - 14, "0." + "#" * 14),
            F.when(e + up < 0, "e-").otherwise("e+"),
            F.when(F.length(size) < 2, F.concat(F.lit("0"), size)).otherwise(size),
        )
        plain = shown(n, e - 14, "0.0" + "#" * 17)
        return F.when((e + up).between(-4, 15), plain).otherwise(scientific)

    digits = let(
        F.floor(F.log10(a)).cast("int"),
        lambda guess: let(
            exponent(guess),
            lambda e: let(whole(e), lambda n: text(e, n, (n >= 10**15).cast("int"))),
        ),
    )
    is_whole = (a < 2**53) & (a == F.floor(a).cast("double"))
    return (
        F.when(x.isNull(), F.lit(None))
        .when(F.isnan(x), "NaN")
        .when(a == math.inf, F.when(x > 0, "Infinity").otherwise("-Infinity"))
        .when(is_whole, F.concat(x.cast("bigint").cast("string"), F.lit(".0")))
        .otherwise(F.concat(F.when(x < 0, "-").otherwise(""), digits))
    )
