from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    FloatType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from platform_plugin import schema as columns
from platform_plugin.engines import answer_schema
from platform_plugin.errors import SchemaError


@pytest.mark.parametrize(
    ("arrow", "spark_type"),
    [
        (pa.string(), StringType()),
        (pa.list_(pa.float32()), ArrayType(FloatType())),
    ],
)
def test_answer_type_is_the_engines_answer_schema(arrow: Any, spark_type: Any) -> None:
    assert columns.answer_type(spark_type) == from_arrow_schema(answer_schema(arrow))


def frame(ddl: str) -> StructType:
    schema = _parse_datatype_string(ddl)
    assert isinstance(schema, StructType)
    return schema


MESSAGES = "array<struct<role:string,content:string>>"


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (
            lambda: columns.check_frame(frame("a int, __PP_key binary")),
            ["'__PP_key'", "reserved", "Rename"],
        ),
        (lambda: columns.check_frame(frame("a int, A int")), ["'a', 'A' more than once", "drop"]),
        (lambda: columns.check_outputs(frame("a int"), ["A"]), ["'A' is already in the frame"]),
        (
            lambda: columns.check_outputs(frame("a int"), ["p", "e", "P"]),
            ["'P' is asked for twice"],
        ),
        (lambda: columns.check_outputs(frame("a int"), ["__pp_x"]), ["'__pp_x'", "reserved"]),
        (lambda: columns.check_outputs(frame("a int"), [" "]), ["has no name"]),
        (
            lambda: columns.check_prompt(frame("message string"), "mesage"),
            ["inputCol='mesage'", "has 'message'", "Did you mean 'message'?"],
        ),
        (lambda: columns.check_prompt(frame("a int"), "zzz"), ["Name one of them"]),
        (lambda: columns.check_prompt(frame("a int"), "a"), ["is int", "wanted string", "Cast it"]),
        (
            lambda: columns.check_messages(frame("a string"), "a"),
            ["is string", f"wanted {MESSAGES}"],
        ),
        (lambda: columns.check_messages(frame("a array<string>"), "a"), ["is array<string>"]),
        (
            lambda: columns.check_messages(frame("a array<struct<role:string,content:string,name:string>>"), "a"),
            ["name:string", "no other fields"],
        ),
        (
            lambda: columns.check_messages(frame("a array<struct<role:string,content:int>>"), "a"),
            ["content:int"],
        ),
        (
            lambda: columns.check_messages(frame("a array<struct<role:string,role:string,content:string>>"), "a"),
            ["no other fields"],
        ),
        (
            lambda: columns.check_messages(frame("a array<struct<role:string>>"), "a"),
            ["transform("],
        ),
    ],
)
def test_refused_schema(check: Callable[[], None], words: list[str], spark: SparkSession) -> None:
    with pytest.raises(SchemaError) as caught:
        check()
    for word in words:
        assert word in str(caught.value)


def test_accepted_schema(spark: SparkSession) -> None:
    schema = frame(f"`a.b` string, Text string, m {MESSAGES}, w array<struct<content:string,role:string>>")
    columns.check_frame(schema)
    columns.check_outputs(schema, ["prediction", "prediction_error", "a"])
    columns.check_prompt(schema, "a.b")
    columns.check_prompt(schema, "text")
    columns.check_messages(schema, "m")
    columns.check_messages(schema, "w")


def test_message_about_a_wide_frame_is_short() -> None:
    wide = StructType([StructField(f"c{i}", StringType()) for i in range(1000)])
    with pytest.raises(SchemaError, match="and 980 more") as caught:
        columns.find_field(wide, "x", "inputCol")
    assert len(str(caught.value)) < 500
