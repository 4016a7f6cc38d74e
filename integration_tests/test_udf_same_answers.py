"""Each case of `udf_cases` on Spark's own executors and on Ray's actors: the same rows and types, or the same error."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import Any

import pytest
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import integration_tests.udf_frame_cases  # noqa: F401 - adds its cases
import udf_compat
from integration_tests.conftest import TYPES
from integration_tests.udf_cases import CASES, Maker
from udf_compat import functions as on_actors

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

SPARK = Maker(F.pandas_udf, F.udf, predict_batch_udf, lambda function: function)
# One pool, so that the cases do not wait for actors of their own.
_ON: dict[str, Any] = {"on_ray": {"pool": "cases"}}
RAY = Maker(
    partial(on_actors.pandas_udf, **_ON),
    partial(on_actors.udf, **_ON),
    partial(on_actors.predict_batch_udf, **_ON),
    partial(udf_compat.on_ray, pool="cases"),
)
TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?P<lines>.*?)(?:\n\s*\n|\Z)", re.DOTALL)
FAILS = {
    "wrong_type": "ArrowTypeError|ArrowInvalid|PySparkTypeError|PySparkValueError",
    "not_a_series": "UDF_RETURN_TYPE|pandas.Series",
    "too_few_rows": "Result vector from pandas_udf was not the required length",
    "missing_column_of_a_struct": "KeyError: 'b'",
    "raises_on_row_7": "row 7 is rotten: ü",
    "raises_its_own_class_from_another": "RottenError: 7: outer",
    "raises_stop_iteration": "StopIteration",
    "iterator_returns_too_few": "the length of output was 99 and the length of input was 100",
    "iterator_leaves_rows": "pandas iterator UDF should exhaust the input iterator",
    "iterator_raises_on_row_7": "row 7 is rotten",
    "apply_in_pandas_with_wrong_columns": "Missing: n. Unexpected: s",
    "row_raises": "ZeroDivisionError",
}
"""The cases that fail on Spark too, and words of their errors: a case that fails by accident would prove nothing."""

REFUSED: dict[str, list[str]] = {
    "pandas": ["vector", "matrix"],
    "rows": [],
    "rows by Arrow": ["span", "vector", "matrix"],
}
"""Types that Spark itself refuses, by the kind of UDF."""


def outcome(frame: DataFrame) -> tuple[Any, ...]:
    """Return the rows with their exact types, in no order, or the error as the user sees it."""
    try:
        rows = frame.collect()
    except Exception as exc:
        found = TRACEBACK.search(str(exc))
        assert found is not None, str(exc)
        return type(exc).__name__, own_lines(found["lines"].splitlines())
    return Counter(repr(row) for row in rows), frame.schema.simpleString()


def own_lines(lines: list[str]) -> tuple[str, ...]:
    """Leave out what PySpark's worker says of its own files, whose paths differ from process to process."""
    kept, ours = [], True
    for line in lines:
        if not line.startswith("    "):
            ours = "/pyspark/" not in line
        if ours:
            kept.append(line)
    return tuple(kept)


# What fails is slow, as Spark tries a task again.
SOON = {"too_few_rows", "raises_on_row_7", "apply_in_pandas_with_wrong_columns", "row_raises"}
LATER = FAILS.keys() - SOON


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LATER else name for name in CASES]
)
def test_ray_answers_as_spark_does(spark: SparkSession, name: str) -> None:
    wanted = outcome(CASES[name](spark, SPARK))
    if name in FAILS:
        assert re.search(FAILS[name], "\n".join(wanted[1])), wanted
    else:
        assert isinstance(wanted[0], Counter), wanted
    assert outcome(CASES[name](spark, RAY)) == wanted


def ways(make: Maker) -> dict[str, Any]:
    """Return the identity as each kind of UDF of columns, by name; a lambda, since annotations would be looked at."""
    return {
        "pandas": lambda kind: make.pandas_udf(lambda column: column, kind),
        "rows": lambda kind: make.udf(lambda value: value, kind),
        "rows by Arrow": lambda kind: make.udf(lambda value: value, kind, useArrow=True),
    }


@pytest.mark.parametrize("way", ["pandas", "rows", "rows by Arrow"])
def test_every_type_goes_through_as_on_spark(spark: SparkSession, typed: DataFrame, way: str) -> None:
    def asked(make: Maker, names: list[str]) -> tuple[Any, ...]:
        made = [ways(make)[way](TYPES[name][0])(name).alias(name) for name in names]
        return outcome(typed.select("id", *made))

    names = [name for name in TYPES if name not in REFUSED[way]]
    wanted = asked(SPARK, names)
    assert isinstance(wanted[0], Counter), wanted
    assert asked(RAY, names) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(("way", "name"), [(way, name) for way, names in REFUSED.items() for name in names])
def test_type_that_spark_refuses_is_refused_in_its_words(
    spark: SparkSession, typed: DataFrame, way: str, name: str
) -> None:
    def asked(make: Maker) -> str:
        with pytest.raises(Exception, match=r"\w") as caught:
            typed.select("id", ways(make)[way](TYPES[name][0])(name)).collect()
        trace = TRACEBACK.search(str(caught.value))
        text = trace["lines"].splitlines()[-1] if trace else str(caught.value).splitlines()[0]
        return f"{caught.type.__name__}: {re.sub('[0-9]+', 'N', text)}"

    assert asked(RAY) == asked(SPARK)
