"""What the stages of `test_mapped` name; importable, as a user's module is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import DoubleType, LongType

NUMBER = 7


def plus(x: pd.Series, y: pd.Series) -> pd.Series:
    return x + y


def size(text: str) -> int:
    return len(text)


def running(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    yield from batches


def mean(x: pd.Series) -> float:
    return float(x.mean())


plus_udf = pandas_udf(plus, LongType())
running_udf = pandas_udf(running, LongType())
mean_udf = pandas_udf(mean, DoubleType())
size_udf = udf(size, LongType())


class Predictor:
    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def predict(self, inputs: dict[str, Any]) -> Any:
        if (inputs["x"] < 0).any():
            raise ValueError("below zero")
        return inputs["x"] * self.factor


class Silent:
    """Neither predicts nor is called."""
