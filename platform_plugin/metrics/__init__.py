"""The metric protocol: what an answer is worth, from sums alone.

To add a metric, write a file ``metrics/<name>.py`` that defines ``METRIC``, a class that satisfies `Metric` (those of
``platform_plugin.measure`` are a start); ``evaluate(..., metrics=["<name>"])`` finds it by its file name. Spark
computes the statistics of each row in Arrow batches on executors and adds them; slices, resamples and 10^8 rows are the
same code, because a value is made of sums and of nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from platform_plugin.errors import ConfigError, MissingDependencyError, UnknownPluginError, near
from platform_plugin.measure import COLUMNS, Facts

__all__ = ["COLUMNS", "Facts", "Metric", "find_metrics", "load_metric"]

Values = npt.NDArray[np.float64]


class Metric(Protocol):
    """What is computed of a model's answers. Runs on: driver (`check`, `bind`) and executors; picklable.

    Attributes:
        better: "higher", "lower", or "neither" where a difference is no verdict.
        unit: how a value is read: "share", "score", "s", "tokens", "characters", "tokens/s", or a currency.
        needs_classes: whether `bind` must be given the distinct labels.
        tested: whether a difference is given a verdict; optional, and True where a metric does not say.
        basis: what a value is computed by beside the rows, for the report; optional.
    """

    better: str
    unit: str
    needs_classes: bool

    def check(self, kinds: Mapping[str, str]) -> None:
        """Raise SchemaError where a column of `COLUMNS` that it reads is absent or of a kind that it does not take.

        Args:
            kinds: column -> "text", "number", "boolean" or "struct"; a column that is not there has no entry.
        """
        ...

    def bind(self, facts: Facts) -> Self:
        """Return the metric for one model, with what is known before its answers are read. Raises ConfigError."""
        ...

    def statistics(self, batch: pa.Table) -> Values:
        """Return the statistics of each row of `COLUMNS`, float64 (rows, k); a row of zeros is left out."""
        ...

    def finish(self, sums: Values) -> Values:
        """Return the values (...) of sums of statistics (..., k); NaN where nothing was summed.

        The value of one row's own statistics is the row's value, by which the worst rows are found; rows are counted
        as wins and losses only for a ``platform_plugin.measure.Mean``, whose value is the mean of them.
        """
        ...


def find_metrics() -> list[str]:
    """Return the names of all metrics, by their file names."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load_metric(name: str, options: Mapping[str, Any] | None = None) -> Metric:
    """Return the metric `name`, case not looked at ("rougeL").

    Args:
        options: of the metric, such as {"schema": ...} for json_validity.

    Raises:
        UnknownPluginError: no file of that name; the names found are listed.
        ConfigError: an option that the metric does not have.
        MissingDependencyError: its package is not installed.
    """
    names = find_metrics()
    if name.lower() not in names:
        raise UnknownPluginError(f"metric {name!r} is not known; found: {', '.join(names)}.{near(name, names)}")
    try:
        made = importlib.import_module(f"{__name__}.{name.lower()}").METRIC
    except MissingDependencyError:
        raise
    except ImportError as exc:
        raise MissingDependencyError(
            f'metric {name!r} needs the package {exc.name}: pip install "platform-plugin[evaluation]"'
        ) from exc
    try:
        metric: Metric = made(**(options or {}))
    except TypeError as exc:
        raise ConfigError(f"metric {name!r} with {dict(options or {})!r}: {exc}; see help({made.__name__}).") from exc
    return metric
