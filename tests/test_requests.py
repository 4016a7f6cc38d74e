from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_plugin.errors import ConfigError, SchemaError
from platform_plugin.requests import Requests, Source
from platform_plugin.schema import ERROR, ERROR_TYPE, KEY, PROMPT
from platform_plugin.template import PromptTemplate

INPUT = Source(input_col="message")


def rows_of(spark: SparkSession, n: int = 3000, partitions: int = 5) -> DataFrame:
    """One row in ten is null, one in ten blank; 100 distinct prompts."""
    return spark.range(0, n, 1, partitions).select(
        "id",
        F.expr("CASE id % 10 WHEN 0 THEN null WHEN 1 THEN ' \n' ELSE 'p' || (id * 7 % 100) END").alias("message"),
    )


def errors(requests: Requests) -> Counter[str]:
    found = requests.keyed.select(F.col(ERROR)["type"].alias("t")).collect()
    return Counter(row["t"] for row in found)


def test_keyed_frame_is_the_input_and_three_columns(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "a"), (2, None)], "id int not null, message string")
    keyed = Requests.build(df, INPUT).keyed
    assert keyed.schema.fields[:2] == df.schema.fields
    assert keyed.columns[2:] == [PROMPT, ERROR, KEY]
    assert keyed.schema[ERROR].dataType == ERROR_TYPE
    assert keyed.select("id", "message").collect() == df.collect()


def test_equal_prompts_are_one_request(adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(rows_of(spark), INPUT)
    asked = requests.frame.collect()
    keys = {bytes(r[KEY]): r[PROMPT] for r in requests.keyed.where(F.col(ERROR).isNull()).collect()}
    assert requests.frame.columns == ["key", "prompt"]
    assert len(asked) == len(keys) == 80
    assert {bytes(r["key"]): r["prompt"] for r in asked} == keys
    assert {len(k) for k in keys} == {32}


def test_refused_rows_have_a_key_that_no_request_has(spark: SparkSession) -> None:
    keyed = Requests.build(rows_of(spark), INPUT).keyed
    keys = [r[KEY] for r in keyed.where(F.col(ERROR).isNotNull()).collect()]
    assert len(keys) == len(set(map(bytes, keys))) == 600
    assert all(0 < len(k) < 32 for k in keys)


def test_counts(adaptive: None, spark: SparkSession) -> None:
    counts = Requests.build(rows_of(spark), INPUT).count()
    assert counts.rows == 3000
    assert counts.refused == {"NullPrompt": 300, "EmptyPrompt": 300}
    assert counts.messages["NullPrompt"] == "inputCol 'message' is null"


@pytest.mark.parametrize("where", ["false", "message = 'zz'", "message is null"])
def test_counts_where_no_request_is_left(where: str, adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(rows_of(spark).where(where), INPUT)
    counts = requests.count()
    assert requests.frame.collect() == []
    assert counts.rows == sum(counts.refused.values()) == (300 if "null" in where else 0)


def test_requests_are_sorted_within_and_between_partitions(adaptive: None, spark: SparkSession) -> None:
    frame = Requests.build(rows_of(spark), INPUT).frame
    prompts = [r["prompt"] for r in frame.collect()]
    assert prompts == sorted(prompts)
    assert len(prompts) == 80


@pytest.mark.parametrize("deduplicate", [True, False])
def test_without_prefix_ordering_nothing_is_range_partitioned(
    deduplicate: bool, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = Requests.build(rows_of(spark), INPUT, deduplicate=deduplicate, prefix_ordering=False)
    requests.frame.explain()
    assert "rangepartitioning" not in capsys.readouterr().out


def test_every_row_is_a_request_without_deduplication(adaptive: None, spark: SparkSession) -> None:
    df = rows_of(spark).unionAll(rows_of(spark))  # whole rows that are equal, too
    requests = Requests.build(df, INPUT, deduplicate=False)
    asked = {bytes(r["key"]): r["prompt"] for r in requests.frame.collect()}
    assert len(asked) == 4800
    assert requests.keyed.schema.fields[:2] == df.schema.fields
    again = requests.keyed.where(F.col(ERROR).isNull()).select(KEY, PROMPT).collect()
    assert {bytes(r[KEY]): r[PROMPT] for r in again} == asked


def test_occurrence_numbers_are_the_same_in_another_plan(spark: SparkSession) -> None:
    df = spark.range(0, 4000, 1, 8).select(
        "id",
        F.lit("same").alias("message"),
        F.create_map(F.lit("a"), F.struct(F.create_map("id", F.lit(1.5)).alias("m"))).alias("map"),
        F.array(F.create_map(F.lit(1), "id")).alias("maps"),
    )

    def keys(frame: DataFrame) -> dict[int, bytes]:
        keyed = Requests.build(frame, INPUT, deduplicate=False).keyed
        return {r["id"]: bytes(r[KEY]) for r in keyed.select("id", KEY).collect()}

    narrow = keys(df)
    assert len(set(narrow.values())) == 4000
    assert keys(df.repartition(5, F.rand(3))) == narrow


def test_key_does_not_depend_on_other_columns_or_plans(spark: SparkSession) -> None:
    df = rows_of(spark, 100)
    one = Requests.build(df, INPUT).frame.collect()
    two = Requests.build(df.repartition(3).withColumn("more", F.rand()), INPUT).frame.collect()
    assert one == two


def test_template_names_the_first_null_column(spark: SparkSession) -> None:
    df = spark.createDataFrame([("a", 1), (None, 1), ("a", None), (None, None)], "`a b` string, `c.d` int")
    source = Source(template=PromptTemplate.parse("{a b}: {c.d}"))
    rows = Requests.build(df, source).keyed.collect()
    assert [r[PROMPT] for r in rows] == ["a: 1", None, None, None]
    assert [r[ERROR] and r[ERROR]["message"] for r in rows] == [
        None,
        "template field 'a b' is null",
        "template field 'c.d' is null",
        "template field 'a b' is null",
    ]
    assert rows[1][ERROR].asDict() == {
        "stage": "render",
        "type": "NullPrompt",
        "message": "template field 'a b' is null",
        "retryable": False,
    }


MESSAGES = "id int, m array<struct<content:string,role:string>>"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "messages is null"),
        ([], "messages is empty"),
        ([None], "a message is null"),
        ([("hi", "user"), ("x", "bot")], "role bot is not one of system, user, assistant, tool"),
        ([("hi", None)], "role null is not one of"),
        ([("hi", "user"), (None, "assistant")], "a message has no content"),
        ([("be kind", "system")], "no message of role user"),
        ([(" \n", "user"), ("x", "assistant")], "no message of role user has text"),
    ],
)
def test_conversation_that_cannot_be_asked(messages: Any, words: str, spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, messages)], MESSAGES)
    requests = Requests.build(df, Source(messages_col="m"))
    error = requests.keyed.first()[ERROR]
    assert error["type"] == "BadMessages"
    assert words in error["message"]
    assert requests.frame.collect() == []


def test_conversation_crosses_as_json_in_one_order_of_fields(spark: SparkSession) -> None:
    talk = [("be kind", "system"), ('say "é"\n', "user"), ("", "assistant"), ("{}", "tool")]
    df = spark.createDataFrame([(1, talk), (2, talk)], MESSAGES)
    turned = spark.createDataFrame(
        [(1, [(role, content) for content, role in talk])],
        "id int, m array<struct<role:string,content:string>>",
    )
    asked = Requests.build(df, Source(messages_col="m")).frame.collect()
    assert len(asked) == 1
    assert json.loads(asked[0]["prompt"]) == [{"role": r, "content": c} for c, r in talk]
    assert Requests.build(turned, Source(messages_col="m")).frame.collect() == asked


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "none of inputCol, promptTemplate, messagesCol is set"),
        ({"input_col": "a", "messages_col": "b"}, "inputCol and messagesCol of"),
    ],
)
def test_exactly_one_source(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Source(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "source"),
    [
        ("message string, MESSAGE string", INPUT),
        ("message string, __pp_key string", INPUT),
        ("text string", INPUT),
        ("message int", INPUT),
        ("message string", Source(messages_col="message")),
        ("message string", Source(template=PromptTemplate.parse("{x}"))),
    ],
)
def test_frame_is_checked_before_any_work(ddl: str, source: Source, spark: SparkSession) -> None:
    with pytest.raises(SchemaError):
        Requests.build(spark.createDataFrame([], ddl), source)


def test_empty_frame(adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(spark.createDataFrame([], "message string"), INPUT)
    assert requests.frame.collect() == []
    assert requests.count().rows == 0
    assert errors(requests) == Counter()
