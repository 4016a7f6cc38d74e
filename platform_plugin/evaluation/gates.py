"""Quality gates: what a metric must reach before a model goes on."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from platform_plugin.errors import ConfigError, near

_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
CONSTANT = "constant"
"""A bound: what always answering the most frequent label would reach."""
_TEXT = re.compile(rf"\s*(>=|<=|>|<)\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?|{CONSTANT})\s*")


@dataclass(frozen=True)
class Gate:
    """One condition of one metric; `bound` is a number, or CONSTANT."""

    metric: str
    sign: str
    bound: float | str

    def passes(self, value: float, bound: float) -> bool:
        """Return whether a value meets it; what is not known does not."""
        return not math.isnan(value) and not math.isnan(bound) and _SIGNS[self.sign](value, bound)

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.bound if isinstance(self.bound, str) else format(self.bound, 'g')}"


def read_gates(
    require: Mapping[str, float | str], better: Mapping[str, str], constants: Collection[str] = ()
) -> list[Gate]:
    """Return the gates of ``require={"macro_f1": 0.6, "error_rate": "<0.01", "accuracy": ">constant"}``.

    A bare number is the least of a metric that is better when higher, and the most of one that is better when lower.

    Args:
        better: metric -> its better side, of the metrics that are computed.
        constants: the metrics of which a constant's value is known.

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
                    f"require[{name!r}]={condition!r} is no condition; write one such as '>=0.6', '<0.01', '>constant'."
                )
            if found[2] == CONSTANT and name not in constants:
                raise ConfigError(
                    f"require[{name!r}]={condition!r}: {name} does not compare with labels, so a constant has no value "
                    "of it; write a number."
                )
            made.append(Gate(name, found[1], CONSTANT if found[2] == CONSTANT else float(found[2])))
        elif isinstance(condition, bool) or not isinstance(condition, int | float) or math.isnan(condition):
            raise ConfigError(f"require[{name!r}]={condition!r} is no number and no text such as '<0.01'.")
        elif better[name] == "neither":
            raise ConfigError(f"require[{name!r}]={condition!r}: {name} has no better side; write '>=...' or '<=...'.")
        else:
            made.append(Gate(name, ">=" if better[name] == "higher" else "<=", float(condition)))
    return made


def failures(gates: list[Gate], values: Mapping[str, Mapping[str, float]], constants: Mapping[str, float]) -> list[str]:
    """Return one line for each model and gate that is not met.

    Args:
        values: model -> metric -> value.
        constants: metric -> what always answering the most frequent label reaches.
    """
    made = []
    for model, found in values.items():
        for gate in gates:
            bound = constants.get(gate.metric, math.nan) if isinstance(gate.bound, str) else gate.bound
            if not gate.passes(found[gate.metric], bound):
                told = f"{gate.sign} {bound:.4g}{' (constant)' if isinstance(gate.bound, str) else ''}"
                made.append(f"{model}: {gate.metric} = {found[gate.metric]:.4g}, wanted {told}")
    return made
