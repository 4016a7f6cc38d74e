"""Quality gates: what a metric must reach before a model goes on."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from platform_plugin.errors import ConfigError, near

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_TEXT = re.compile(r"\s*(>=|<=|>|<)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*")


@dataclass(frozen=True)
class Gate:
    """One condition of one metric."""

    metric: str
    sign: str
    bound: float

    def passes(self, value: float) -> bool:
        """Return whether a value meets it; a value that is not known does not."""
        return not math.isnan(value) and _SIGNS[self.sign](value, self.bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound:g}"


def read_gates(require: Mapping[str, float | str], better: Mapping[str, str]) -> list[Gate]:
    """Return the gates of ``require={"macro_f1": 0.6, "error_rate": "<0.01"}``.

    A bare number is the least of a metric that is better when higher, and the most of one that is better when lower.

    Args:
        better: metric -> its better side, of the metrics that are computed.

    Raises:
        ConfigError: a metric that is not computed, or a condition that cannot be read.
    """
    made = []
    for name, condition in require.items():
        if name not in better:
            raise ConfigError(
                f"require has {name!r}, which is not among the metrics: {', '.join(better)}.{near(name, better)} "
                "Add it to metrics, or leave the gate out."
            )
        if isinstance(condition, str):
            found = _TEXT.fullmatch(condition)
            if found is None:
                raise ConfigError(
                    f"require[{name!r}]={condition!r} is no condition; write one such as '>=0.6', '<0.01'."
                )
            made.append(Gate(name, found[1], float(found[2])))
        elif isinstance(condition, bool) or not isinstance(condition, int | float) or math.isnan(condition):
            raise ConfigError(f"require[{name!r}]={condition!r} is no number and no text such as '<0.01'.")
        elif better[name] == "neither":
            raise ConfigError(f"require[{name!r}]={condition!r}: {name} has no better side; write '>=...' or '<=...'.")
        else:
            made.append(Gate(name, ">=" if better[name] == "higher" else "<=", float(condition)))
    return made


def failures(gates: list[Gate], values: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return one line for each model and gate that is not met.

    Args:
        values: model -> metric -> value.
    """
    return [
        f"{model}: {gate.metric} = {found[gate.metric]:.4g}, wanted {gate.sign} {gate.bound:g}"
        for model, found in values.items()
        for gate in gates
        if not gate.passes(found[gate.metric])
    ]
