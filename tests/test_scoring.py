"""Rows as dicts, as far as they go without Ray: their requests, their errors, their typed answers."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from platform_plugin.errors import SchemaError
from platform_plugin.scoring import Scorer, _typed
from platform_plugin.stages import LLMPredictor

MOMENTS = ("2024-01-01T00:00:00Z", "2024-07-01T12:30:59+05:30", "1000-01-01T00:00:00+13:00", "2024-10-27T01:30:00Z")


def scorer(**params: Any) -> Scorer:
    return LLMPredictor(engine="echo", **params)._scorer()


def prompts(rows: list[Any], **params: Any) -> list[str]:
    batch, refused = scorer(**params)._batch(rows)
    assert refused == {}
    return list(batch["prompt"].to_pylist())


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_surrogate_is_read_as_spark_reads_it(spark: SparkSession) -> None:
    texts = ["fine", "x\ud800", "\ud83d\ude00y", "\U0001f600"]
    read = [row.m for row in spark.createDataFrame([(text,) for text in texts], "m string").collect()]
    assert read == ["fine", "x\ufffd", "\ufffd\ufffdy", "\U0001f600"]
    assert prompts([{"m": text} for text in texts], inputCol="m") == read
    assert prompts([{"m": text} for text in texts], promptTemplate="{m}!") == [f"{text}!" for text in read]
    talks = [{"m": [{"role": "user", "content": text}]} for text in texts]
    assert [json.loads(p)[0]["content"] for p in prompts(talks, messagesCol="m")] == read
    batch, _ = scorer(inputCol="m", samplingParamsCol="s")._batch([{"m": "a", "s": {"stop": ["\ud800"]}}])
    assert batch["sampling"].to_pylist() == ['{"stop":["\ufffd"]}']


@pytest.mark.parametrize(
    ("params", "bad", "words"),
    [
        ({"inputCol": "m"}, {"m": 5}, "inputCol 'm' is a int; wanted a str."),
        ({"inputCol": "m"}, {"m": float("nan")}, "inputCol 'm' is a float; wanted a str."),
        ({"inputCol": "m"}, {"n": "a"}, "inputCol 'm' is not in the row, which has 'n'."),
        ({"inputCol": "m"}, "hi", "the row is a str; wanted a dict by column."),
        ({"promptTemplate": "{m}"}, {"m": b"a"}, "promptTemplate field 'm' is a bytes; a template takes string"),
        ({"messagesCol": "m"}, {"m": "hi"}, "messagesCol 'm' is a str; wanted a list of dicts."),
        ({"messagesCol": "m"}, {"m": {"role": "user"}}, "messagesCol 'm' is a dict; wanted a list of dicts."),
        ({"messagesCol": "m"}, {"m": [None, "hi"]}, "messagesCol 'm[1]' is a str; wanted a dict."),
        ({"messagesCol": "m"}, {"m": [{"role": 1}]}, "messagesCol 'm[0].role' is a int; wanted a str."),
        (
            {"messagesCol": "m"},
            {"m": [{"role": "user", "content": []}]},
            "messagesCol 'm[0].content' is a list; wanted a str.",
        ),
        (
            {"inputCol": "m", "samplingParamsCol": "s"},
            {"m": "a", "s": 5},
            "samplingParamsCol 's' is a int; wanted a dict, or a str with a JSON object.",
        ),
    ],
)
def test_value_of_another_type_than_its_column_names_row_field_and_what_is_wanted(
    params: dict[str, Any], bad: Any, words: str
) -> None:
    good = {"m": [{"role": "user", "content": "a"}] if "messagesCol" in params else "fine", "s": None}
    with pytest.raises(SchemaError) as caught:
        scorer(**params)._batch([good, bad, good])
    assert str(caught.value).startswith(f"rows[1]: {words}")


@pytest.mark.parametrize(
    "talk",
    [
        None,
        [],
        [None],
        [{"content": "a"}],
        [{"role": "boss", "content": "a"}],
        [{"role": "user"}],
        [{"role": "user", "content": None}],
        [{"role": "user", "content": " "}],
    ],
)
def test_bad_messages_have_the_words_of_transform(spark: SparkSession, talk: Any) -> None:
    stage = LLMPredictor(engine="echo", messagesCol="m")
    full = talk and [m and {"role": m.get("role"), "content": m.get("content")} for m in talk]
    frame = spark.createDataFrame([{"m": full}], "m array<struct<role:string,content:string>>")
    wanted = frame.select(stage.source().error().alias("e")).collect()[0].e.asDict()
    batch, refused = scorer(messagesCol="m")._batch([{"m": talk}, {"m": [{"role": "user", "content": "a"}]}])
    assert refused == {0: wanted}
    assert batch["key"].to_pylist() == [b"1"]


def test_messages_that_are_rows_are_taken() -> None:
    assert prompts([{"m": [Row(content="a", role="user")]}], messagesCol="m") == ['[{"role":"user","content":"a"}]']


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("decimal(38,30)", "0.3", "0.300000000000000000000000000000"),
        ("decimal(38,2)", "123456789012345678901234567890", "123456789012345678901234567890.00"),
        ("decimal(38,0)", "9" * 38, "9" * 38),
        ("decimal(38,38)", "-0." + "9" * 38, "-0." + "9" * 38),
        ("decimal(5,2)", "0.125", "0.13"),
        ("decimal(5,1)", "1E+2", "100.0"),
    ],
)
def test_decimals_have_all_digits_as_sparks_have(spark: SparkSession, kind: str, text: str, value: str) -> None:
    made = _typed(text, kind)
    assert str(made) == value
    read = spark.range(1).select(F.from_json(F.lit(f'{{"a":{text}}}'), f"a {kind}").alias("v")).collect()[0].v.a
    assert (made, made.as_tuple().exponent) == (read, Decimal(read).as_tuple().exponent)


def test_timestamp_is_as_collect_gives_it_in_this_time_zone(spark: SparkSession, berlin: None) -> None:
    kind = {"type": "struct", "fields": [{"name": "a", "type": "timestamp"}]}
    made = [_typed(json.dumps({"a": text}), kind)["a"] for text in MOMENTS]
    assert made[:2] == [datetime.datetime(2024, 1, 1, 1), datetime.datetime(2024, 7, 1, 9, 0, 59)]
    frame = spark.range(1).select(F.array(*[F.to_timestamp(F.lit(text)).alias("t") for text in MOMENTS]).alias("a"))
    collected = frame.collect()[0].a
    assert made == collected
    assert [m.fold for m in made] == [c.fold for c in collected] == [0, 0, 0, 1]
    seconds = [int(datetime.datetime.fromisoformat(text).timestamp()) for text in MOMENTS]
    assert made == [TimestampType().fromInternal(s * 1_000_000) for s in seconds]
    assert _typed('"2024-01-01T00:00:00"', "timestamp_ntz") == datetime.datetime(2024, 1, 1)


def test_timestamp_past_the_last_year_of_python_is_an_error_of_its_row(berlin: None) -> None:
    asking = scorer(inputCol="m", outputSchema="a timestamp")
    texts = ['{"a":"9999-12-31T23:59:59Z"}', '{"a":"2024-01-01T00:00:00Z"}']
    late, good = asking._answers(pa.table({"output": texts, "error": pa.nulls(2)}))
    assert late["output"] is None
    assert (late["error"]["stage"], late["error"]["type"]) == ("output", "OutputUnparsable")
    assert good == {"output": {"a": datetime.datetime(2024, 1, 1, 1)}, "error": None}


@pytest.mark.parametrize("text", ["0.1", "1", "-3.4028234663852886e38", "1e-45"])
def test_floats_are_as_narrow_as_sparks(spark: SparkSession, text: str) -> None:
    row = spark.range(1).select(F.from_json(F.lit(f'{{"x": {text}}}'), "x float").alias("made")).first()
    assert row is not None
    kind = {"type": "struct", "fields": [{"name": "x", "type": "float"}]}
    assert _typed(f'{{"x": {text}}}', kind) == row["made"].asDict()
