"""What the stages of `test_mapped_stages` name: UDFs of each kind, models of each form."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql.functions import pandas_udf, udf
from pyspark.sql.types import DoubleType, LongType, StringType, StructType


class NegativeError(ValueError):
    """The user's own."""


def plus_one(x: pd.Series) -> pd.Series:
    return x + 1


def root(x: pd.Series) -> pd.Series:
    """Raises for the whole batch, as functions of columns do."""
    bad = x[x < 0]
    if len(bad):
        raise NegativeError(f"{bad.iloc[0]:g} has no root")
    return np.sqrt(x)


def parts(x: pd.Series, text: pd.Series) -> pd.DataFrame:
    if (x < 0).any():
        raise NegativeError("no parts")
    return pd.DataFrame({"letters": text.str.len(), "said": text + "!"})


def reciprocal(x: int) -> float:
    return 1 / x


def word(x: int) -> int:
    """Of another type than it is said to be: Spark makes a text of it."""
    return x * 10


def iterated(batches: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
    for x, text in batches:
        yield text.str.len() + x


def mean(x: pd.Series) -> float:
    return float(x.mean())


def make_predict() -> Any:
    return lambda x: x * 2


_PARTS = StructType().add("letters", LongType()).add("said", StringType())
plus_one_udf = pandas_udf(plus_one, LongType())
root_udf = pandas_udf(root, DoubleType())
parts_udf = pandas_udf(parts, _PARTS)
reciprocal_udf = udf(reciprocal, DoubleType())
word_udf = udf(word, StringType())
iterated_udf = pandas_udf(iterated, DoubleType())
mean_udf = pandas_udf(mean, DoubleType())
batch_udf = predict_batch_udf(make_predict, return_type=DoubleType(), batch_size=10)


class Weighted:
    """A model of two columns; notes in `folder` that it was loaded, and where."""

    def __init__(self, weight: float = 1.0, folder: str | None = None) -> None:
        self.weight = weight
        if folder is not None:
            Path(folder, f"{os.getpid()}-{time.time_ns()}").touch()

    def predict(self, inputs: dict[str, Any]) -> dict[str, Any]:
        value, features = inputs["value"], inputs["features"]
        if (value == 13).any():
            raise NegativeError("13 is bad luck")
        return {"label": np.where(value > 50, "high", "low"), "score": features.sum(axis=1) * self.weight}


class Plain:
    """A model that is called."""

    def __call__(self, inputs: dict[str, Any]) -> Any:
        return inputs["whole"] * 2


class Strange:
    """A model that gives what it was not asked for."""

    def __init__(self, gives: str) -> None:
        self.gives = gives

    def predict(self, inputs: dict[str, Any]) -> Any:
        value = inputs["value"]
        answers: dict[str, Any] = {
            "too few": value[1:],
            "texts": value.astype(str),
            "another name": {"x": value, "y": value},
            "a matrix": np.stack([value, value], axis=1),
            "a number": 7,
        }
        return answers[self.gives]


class Kinds:
    """Tells the arrays that it is given."""

    def predict(self, inputs: dict[str, Any]) -> Any:
        told = "; ".join(f"{name} {a.dtype.kind}{a.ndim}" for name, a in inputs.items())
        return np.array([told] * len(next(iter(inputs.values()))), dtype=object)


class Linear(torch.nn.Module):
    """A module of one layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)
