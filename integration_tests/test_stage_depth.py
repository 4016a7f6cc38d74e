"""The stage in depth, with the echo engine: shapes of answers, budgets, bridges, scoring, replicas, preflight."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import ray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_plugin import pool, release_answers
from platform_plugin.errors import ConfigError, ErrorRateError, InvalidRowsError, SchemaError
from platform_plugin.stages import LLMPredictor

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("spark")]

Maker = Callable[..., LLMPredictor]
DDL = "intent STRING, urgent BOOLEAN, amounts ARRAY<DECIMAL(5,2)>, place STRUCT<city: STRING, day: DATE>"


def lines(spark: SparkSession, *texts: str | None) -> DataFrame:
    return spark.createDataFrame(list(enumerate(texts)), "id int, message string")


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row["id"])


def test_output_schema_gives_a_typed_struct(echo: Maker, spark: SparkSession) -> None:
    stage = echo(outputSchema=DDL)
    frame = lines(spark, "one", "two", None)
    out = stage.transform(frame)
    assert out.schema == stage.transformSchema(frame.schema)
    assert out.schema["prediction"].dataType.simpleString() == (
        "struct<intent:string,urgent:boolean,amounts:array<decimal(5,2)>,place:struct<city:string,day:date>>"
    )
    first, second, third = rows(out)
    for row in (first, second):
        assert row["prediction_error"] is None
        assert isinstance(row["prediction"]["intent"], str)
        assert isinstance(row["prediction"]["urgent"], bool)
        assert row["prediction"]["place"]["day"] is not None
    assert third["prediction"] is None


def test_answer_that_was_cut_is_an_error_that_keeps_the_text(echo: Maker, spark: SparkSession) -> None:
    args = {"cut_on": "short", "garble_on": "noise"}
    stage = echo(outputSchema="intent STRING", detailsCol="details", engineArgs=args)
    good, cut, garbled = rows(stage.transform(lines(spark, "fine", "short", "noise")))
    assert good["prediction"]["intent"] is not None
    assert (cut["prediction"], cut["prediction_error"]["type"]) == (None, "OutputCut")
    assert cut["details"]["raw_text"]
    assert garbled["prediction_error"]["type"] == "OutputUnparsable"
    assert garbled["details"]["raw_text"]


def test_choices_hold_the_answer_to_a_list(echo: Maker, spark: SparkSession) -> None:
    out = echo(outputChoices=["card", "cash"]).transform(lines(spark, *[f"message {i}" for i in range(20)]))
    assert {row["prediction"] for row in rows(out)} == {"card", "cash"}


def test_n_answers_make_an_array(echo: Maker, spark: SparkSession) -> None:
    sampling = {"n": 3, "temperature": 1.0}
    (row,) = rows(echo(samplingParams=sampling).transform(lines(spark, "a b")))
    assert row["prediction"] == ["a b"] * 3
    (row,) = rows(echo(samplingParams=sampling, outputSchema="intent STRING").transform(lines(spark, "a b")))
    assert [type(one["intent"]) for one in row["prediction"]] == [str] * 3


@pytest.mark.parametrize("as_struct", [True, False])
def test_row_has_its_own_sampling(echo: Maker, spark: SparkSession, as_struct: bool) -> None:
    own = F.struct(F.col("most").alias("max_tokens")) if as_struct else F.format_string('{"max_tokens": %d}', "most")
    frame = spark.createDataFrame([(0, "a b c", 1), (1, "a b c", 2)], "id int, message string, most int")
    stage = echo(samplingParamsCol="own")
    out = rows(stage.transform(frame.withColumn("own", own)))
    assert [row["prediction"] for row in out] == ["a", "a b"]
    assert stage.lastReport is not None
    assert stage.lastReport.distinct == 2


def test_bad_sampling_of_a_row_is_its_error(echo: Maker, spark: SparkSession) -> None:
    frame = lines(spark, "a b", "a c").withColumn("own", F.when(F.col("id") == 0, '{"maxTokens": 1}'))
    bad, good = rows(echo(samplingParamsCol="own").transform(frame))
    assert bad["prediction_error"]["type"] == "BadSampling"
    assert good["prediction"] == "a c"


def test_long_prompts_are_shortened_where_it_is_asked_for(echo: Maker, spark: SparkSession) -> None:
    text = " ".join(f"w{i}" for i in range(100))
    stage = echo(promptTooLong="truncate_left", detailsCol="details", samplingParams={"max_tokens": 4})
    (row,) = rows(stage.transform(lines(spark, text)))
    assert row["prediction_error"] is None
    assert row["details"]["truncated"]
    assert stage.lastReport is not None
    assert stage.lastReport.truncated == 1


def test_invalid_rows_raise_and_keep_what_was_answered(echo: Maker, spark: SparkSession) -> None:
    stage = echo(handleInvalid="error")
    with pytest.raises(InvalidRowsError) as raised:
        stage.transform(lines(spark, "good", None, "unanswerable"))
    assert raised.value.counts == {"NullPrompt": 1, "EchoError": 1} or sum(raised.value.counts.values()) == 2
    assert stage.lastResult is not None
    assert [row["prediction"] for row in rows(stage.lastResult)] == ["good", None, None]


def test_run_stops_when_too_many_requests_fail(echo: Maker, spark: SparkSession) -> None:
    texts = [f"unanswerable {i}" if i % 2 else f"message {i}" for i in range(200)]
    with pytest.raises(ErrorRateError, match="of 200 requests failed"):
        echo(maxErrorRate=0.1).transform(lines(spark, *texts))
    assert echo(maxErrorRate=0.6).transform(lines(spark, *texts)).count() == 200


def test_run_stops_when_the_first_hundred_all_fail_alike(echo: Maker, spark: SparkSession) -> None:
    with pytest.raises(ErrorRateError, match=r"the first 1.. requests all failed"):
        echo(maxErrorRate=0.9).transform(lines(spark, *[f"unanswerable {i}" for i in range(150)]))


def test_scoring_without_spark_equals_transform(echo: Maker, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(0, "a b", 1.5), (1, None, 2.0), (2, "unanswerable", 0.1), (3, " ", 1e16)],
        "id int, message string, fare double",
    )
    for params in (
        {"detailsCol": "details"},
        {"promptTemplate": "{message} costs {fare}", "detailsCol": "details"},
        {"outputSchema": DDL},
    ):
        stage = echo(**params)
        transformed = [row.asDict(recursive=True) for row in rows(stage.transform(frame))]
        given = [row.asDict() for row in rows(frame)]
        scored = stage.scoreInstances(given)
        for one in (*transformed, *scored):
            if one.get("details"):
                one["details"]["seconds"] = None
        assert scored == transformed
        assert stage.scoreInstance(given[0])["prediction"] == transformed[0]["prediction"]
        assert asyncio.run(stage.ascoreInstances(given))[0]["prediction"] == transformed[0]["prediction"]


def test_scoring_names_a_field_that_is_missing(echo: Maker) -> None:
    with pytest.raises(SchemaError, match="fare"):
        echo(promptTemplate="{message} {fare}").scoreInstance({"message": "a"})


def test_prefixes_stay_on_one_replica_of_two(echo: Maker, spark: SparkSession) -> None:
    texts = [f"prefix{i:02d} of many words {j}" for i in range(64) for j in range(8)]
    stage = echo(
        engineArgs={"prefix_words": 1, "delay_s": 0.05}, minReplicas=2, maxReplicas=2, batchSize=16, deduplicate=False
    )
    stage.transform(lines(spark, *texts[:16]))
    assert stage.transform(lines(spark, *texts)).count() == 512
    handle = pool.handle(pool.app_name(stage.spec()))
    seen: dict[str, set[str]] = {}
    for span in range(64):
        replica, prefixes = pool.value(handle.options(session_id=str(span)).prefixes.remote(), 30)
        seen[replica] = set(prefixes)
    assert len(seen) == 2
    homes = Counter(prefix for prefixes in seen.values() for prefix in prefixes)
    assert len(homes) == 64
    alone = sum(n == 1 for n in homes.values())
    assert alone >= 0.9 * 64, f"{alone} of 64 prefixes were seen by one replica only"
    assert min(len(prefixes) for prefixes in seen.values()) >= 16


def test_preflight_counts_and_starts_nothing(echo: Maker, spark: SparkSession) -> None:
    stage = echo(samplingParams={"max_tokens": 5}, engineArgs={"max_model_len": 63})
    seen = stage.preflight(lines(spark, "a b c", "a b c", None, "x " * 70))
    assert (seen.rows, seen.refused, seen.distinct) == (4, {"NullPrompt": 1}, 2)
    assert seen.prompt_tokens == 73
    assert (seen.longest, seen.too_long, seen.output_tokens_bound) == (70, 1, 10)
    assert "2 distinct" in str(seen)
    assert pool.find(stage.spec()) is None


def test_object_store_is_back_at_its_baseline_after_released_transforms(
    echo: Maker, spark: SparkSession, until: Callable[..., Any]
) -> None:
    name = "object_store_memory"

    def used() -> float:
        return ray.cluster_resources()[name] - ray.available_resources().get(name, 0)

    stage = echo()
    frame = lines(spark, "a", "b")
    release_answers(stage.transform(frame))
    before = used()
    for _ in range(8):
        release_answers(stage.transform(frame))
    until(lambda: used() <= before)


def test_shape_that_cannot_be_is_refused_on_the_driver(echo: Maker, spark: SparkSession) -> None:
    schema = lines(spark, "a").schema
    for params, words in (
        ({"outputSchema": "intent"}, "not Spark DDL|struct is wanted"),
        ({"outputSchema": "x MAP<STRING,INT>"}, "map"),
        ({"outputSchema": "x INT", "outputChoices": ["a", "b"]}, "both set"),
        ({"outputChoices": ["a", "a"]}, "different"),
        ({"samplingParamsCol": "id"}, "struct"),
    ):
        with pytest.raises((ConfigError, SchemaError), match=words):
            echo(**params).transformSchema(schema)
    assert json.loads(json.dumps(echo(outputChoices=["a", "b"]).getOutputChoices())) == ["a", "b"]
