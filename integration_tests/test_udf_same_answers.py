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


@pytest.mark.parametrize("name", CASES)
def test_ray_answers_as_spark_does(spark: SparkSession, name: str) -> None:
    wanted = outcome(CASES[name](spark, SPARK))
    if name in FAILS:
        assert re.search(FAILS[name], "\n".join(wanted[1])), wanted
    else:
        assert isinstance(wanted[0], Counter), wanted
    assert outcome(CASES[name](spark, RAY)) == wanted


def same(column: Any) -> Any:
    return column


@pytest.mark.parametrize("name", TYPES)
def test_every_type_goes_through_as_on_spark(spark: SparkSession, typed: DataFrame, name: str) -> None:
    kind, frame = TYPES[name][0], typed.select("id", name)

    def asked(make: Maker) -> list[tuple[Any, ...]]:
        ways = (make.pandas_udf, make.udf, lambda f, kind: make.udf(f, kind, useArrow=True))
        found: list[tuple[Any, ...]] = []
        for way in ways:
            try:
                found.append(outcome(frame.select("id", way(same, kind)(name).alias("y"))))
            except Exception as exc:  # a type that PySpark refuses when the UDF is made
                found.append((type(exc).__name__, str(exc).splitlines()[0]))
        return found

    assert asked(RAY) == asked(SPARK)
