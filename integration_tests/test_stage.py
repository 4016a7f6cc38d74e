"""The stage in a Spark-on-Ray session, with the echo engine: what goes in, what comes back, what is refused."""

from __future__ import annotations

import importlib
import json
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_plugin import inference, pool, release_answers
from platform_plugin.bridges import find_bridges
from platform_plugin.errors import ConfigError, PlatformPluginError, SchemaError
from platform_plugin.stages import LLMPredictor

pytestmark = pytest.mark.ray

Maker = Callable[..., LLMPredictor]


@pytest.fixture
def messages(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return a maker of frames: `id` and `message`, two partitions."""

    def make(*texts: str | None) -> DataFrame:
        return spark.createDataFrame(list(enumerate(texts)), "id int not null, message string").repartition(2)

    return make


@pytest.fixture
def no_cluster_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test where an engine or a hand-off begins."""

    def begun(*_: Any, **__: Any) -> None:
        pytest.fail("the cluster moved")

    monkeypatch.setattr(pool, "start", begun)
    monkeypatch.setattr(inference, "infer", begun)
    for name in find_bridges():
        monkeypatch.setattr(importlib.import_module(f"platform_plugin.bridges.{name}").BRIDGE, "to_ray", begun)


def answers(frame: DataFrame) -> dict[int, tuple[str | None, str | None]]:
    """Return id -> answer and type of the error."""
    return {
        row["id"]: (row["prediction"], row["prediction_error"] and row["prediction_error"]["type"])
        for row in frame.collect()
    }


def test_10000_rows_each_get_their_own_answer(echo: Maker, spark: SparkSession) -> None:
    stage = echo(batchSize=256)
    frame = spark.range(0, 10_000, 1, 4).withColumn("message", F.concat(F.lit("question "), F.col("id").cast("string")))
    rows = stage.transform(frame).select("id", "prediction", "prediction_error.type").collect()
    assert {row["id"]: row["prediction"] for row in rows} == {i: f"question {i}" for i in range(10_000)}
    assert len(rows) == 10_000
    assert {row["type"] for row in rows} == {None}
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.distinct, report.failed, report.refused) == (10_000, 10_000, {}, {})
    assert (report.prompt_tokens, report.output_tokens) == (20_000, 20_000)


def test_one_row(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    assert answers(echo().transform(messages("only one"))) == {0: ("only one", None)}


def test_frame_without_rows_starts_no_engine(
    echo: Maker, messages: Callable[..., DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "start", lambda *_, **__: pytest.fail("an engine was started"))
    stage, empty = echo(detailsCol="details"), messages("gone").where("id > 5")
    result = stage.transform(empty)
    assert result.schema == stage.transformSchema(empty.schema)
    assert result.collect() == []
    assert stage.lastReport is not None
    assert (stage.lastReport.rows, stage.lastReport.distinct) == (0, 0)


def test_rows_in_few_of_many_partitions(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    frame = messages("a", "b").repartition(6)
    assert frame.rdd.getNumPartitions() == 6
    result = echo(prefixOrdering=False).transform(frame)
    assert answers(result) == {0: ("a", None), 1: ("b", None)}


def test_equal_prompts_are_answered_once(echo: Maker, spark: SparkSession) -> None:
    stage = echo()
    frame = spark.range(600).withColumn("message", F.concat(F.lit("q"), (F.col("id") % 10).cast("string")))
    result = answers(stage.transform(frame))
    assert result == {i: (f"q{i % 10}", None) for i in range(600)}
    assert stage.lastReport is not None
    assert (stage.lastReport.rows, stage.lastReport.distinct, stage.lastReport.reused) == (600, 10, 590)


@pytest.mark.parametrize(
    ("params", "distinct"),
    [
        ({"deduplicate": False}, 60),
        ({"samplingParams": {"temperature": 0.8}}, 60),
        ({"samplingParams": {"temperature": 0.8, "seed": 1}}, 10),
        ({"samplingParams": {"temperature": 0.8}, "deduplicate": True}, 10),
    ],
)
def test_equal_prompts_are_asked_apart_where_answers_may_differ(
    echo: Maker, spark: SparkSession, params: dict[str, Any], distinct: int
) -> None:
    stage = echo(**params)
    frame = spark.range(60).withColumn("message", F.concat(F.lit("q"), (F.col("id") % 10).cast("string")))
    assert answers(stage.transform(frame)) == {i: (f"q{i % 10}", None) for i in range(60)}
    assert stage.lastReport is not None
    assert stage.lastReport.distinct == distinct


BAD = ("good", None, " \t", "this is unanswerable", "word " * 64, "good", "better", "best", "last")


def test_bad_rows_of_every_kind_are_rows_of_the_same_schema(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    stage = echo(detailsCol="details")
    result = stage.transform(messages(*BAD))
    assert result.schema == stage.transformSchema(messages(*BAD).schema)
    assert answers(result) == {
        0: ("good", None),
        1: (None, "NullPrompt"),
        2: (None, "EmptyPrompt"),
        3: (None, "EchoFailure"),
        4: (None, "PromptTooLong"),
        5: ("good", None),
        6: ("better", None),
        7: ("best", None),
        8: ("last", None),
    }
    rows = {row["id"]: row for row in result.collect()}
    assert rows[0]["details"]["finish_reason"] == "stop"
    assert rows[0]["details"]["prompt_tokens"] == 1
    assert rows[1]["details"] is None
    assert "inputCol 'message' is null" in rows[1]["prediction_error"]["message"]
    assert "64 tokens, the model takes 63" in rows[4]["prediction_error"]["message"]
    report = stage.lastReport
    assert report is not None
    assert report.failed == {"EchoFailure": 1, "PromptTooLong": 1}
    assert report.refused == {"EmptyPrompt": 1, "NullPrompt": 1}


def test_skip_leaves_bad_rows_out(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    stage = echo(handleInvalid="skip")
    result = stage.transform(messages(*BAD))
    assert answers(result) == {i: (text, None) for i, text in enumerate(BAD) if i in (0, 5, 6, 7, 8)}
    assert result.schema == stage.transformSchema(messages(*BAD).schema)


def test_template_is_filled_in_and_names_the_column_that_is_null(echo: Maker, spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(0, "Oslo", 7, "x"), (1, None, 7, "x"), (2, "Rome", None, "x")], "id int, city string, stars int, other string"
    )
    result = echo(promptTemplate="{{{city}}} has {stars} stars").transform(frame)
    rows = {row["id"]: row for row in result.collect()}
    assert rows[0]["prediction"] == "{Oslo} has 7 stars"
    assert rows[1]["prediction_error"]["message"] == "template field 'city' is null"
    assert rows[2]["prediction_error"]["message"] == "template field 'stars' is null"
    assert rows[2]["prediction_error"]["type"] == "NullPrompt"


def test_messages_are_conversations(echo: Maker, spark: SparkSession) -> None:
    said = [("system", "be kind"), ("user", "one two"), ("assistant", "three"), ("user", "four")]
    talks = [said, None, [], [("robot", "hello")], [("user", None)], [("system", "alone")], [None]]
    frame = spark.createDataFrame(list(enumerate(talks)), "id int, talk array<struct<role:string,content:string>>")
    result = echo(messagesCol="talk", detailsCol="details").transform(frame)
    rows = {row["id"]: row for row in result.collect()}
    assert rows[0]["prediction"] == "four"
    assert rows[0]["details"]["prompt_tokens"] == 6
    errors = {i: row["prediction_error"] for i, row in rows.items() if i}
    assert {error["type"] for error in errors.values()} == {"BadMessages"}
    words = {1: "null", 2: "empty", 3: "robot", 4: "content", 5: "user", 6: "null"}
    assert {i: word for i, word in words.items() if word not in errors[i]["message"]} == {}


def test_system_prompt_goes_before_every_message(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    stage = echo(systemPrompt="answer as a pirate", detailsCol="details")
    row = stage.transform(messages("two words")).first()
    assert row is not None
    assert (row["prediction"], row["details"]["prompt_tokens"]) == ("two words", 6)


@pytest.mark.parametrize("deduplicate", [True, False])
def test_columns_of_every_type_come_back_equal(
    echo: Maker, typed: DataFrame, by_id: Any, spark: SparkSession, deduplicate: bool
) -> None:
    frame = typed.selectExpr(
        "*",
        "interval '1-2' year to month as `years.and months`",
        "array(null) as voids",
        "concat('row ', id) as message",
    )
    stage = echo(deduplicate=deduplicate)
    result = stage.transform(frame)
    assert result.schema.fields[: len(frame.columns)] == frame.schema.fields
    assert result.schema == stage.transformSchema(frame.schema)
    # PySpark cannot collect an interval of months.
    shown = ["*", "cast(`years.and months` as string) as shown"]
    wanted = by_id(frame.selectExpr(*shown).drop("years.and months"))
    found = by_id(result.selectExpr(*shown).drop("years.and months"))
    for i in (0, 1, 2):
        assert {n: found[i][n] for n in wanted[i]} == wanted[i]
        assert found[i]["prediction"] == repr(f"row {i}")


def test_column_names_may_hold_dots_blanks_and_backticks(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    odd = "the `message`. really"
    frame = messages("hello").withColumnRenamed("message", odd)
    row = echo(inputCol=odd, outputCol="an.answer", errorCol="its error").transform(frame).first()
    assert row is not None
    assert (row[odd], row["an.answer"], row["its error"]) == ("hello", "hello", None)


@pytest.mark.parametrize(
    ("changing", "deduplicate"),
    [
        ("reflect('java.util.UUID', 'randomUUID')", True),
        ("reflect('java.util.UUID', 'randomUUID')", False),
        ("cast(current_timestamp() as string)", True),
    ],
    ids=["random", "random, not deduplicated", "time"],
)
def test_prompt_that_differs_each_time_is_a_rejoin_error(
    echo: Maker, messages: Callable[..., DataFrame], changing: str, deduplicate: bool
) -> None:
    frame = messages("a", "b").selectExpr("id", f"concat(message, {changing}) as message")
    result = echo(deduplicate=deduplicate).transform(frame)
    with pytest.raises(Exception, match=r"RejoinError.*rand\(\).*Materialize"):
        result.collect()


def test_seeded_random_prompt_meets_its_answers_or_fails(echo: Maker, spark: SparkSession) -> None:
    frame = spark.range(0, 200, 1, 4).withColumn("message", F.rand().cast("string"))
    result = echo().transform(frame)
    try:
        rows = result.collect()
    except Exception as exc:
        assert "RejoinError" in str(exc)
    else:
        assert [row["prediction"] for row in rows] == [row["message"] for row in rows]


def test_released_answers_are_gone_and_say_so(echo: Maker, messages: Callable[..., DataFrame]) -> None:
    kept, dropped = echo().transform(messages("kept")), echo().transform(messages("dropped"))
    release_answers(dropped.where("id >= 0"))
    with pytest.raises(Exception, match="answers of this frame were released"):
        dropped.collect()
    assert answers(kept) == {0: ("kept", None)}
    release_answers(kept)
    release_answers(messages("no answers in it"))


MISTAKES: dict[str, tuple[dict[str, Any], type[PlatformPluginError], str]] = {
    "missing column": ({"inputCol": "mesage"}, SchemaError, r"inputCol='mesage'.*'message'"),
    "missing template field": ({"promptTemplate": "{mesage}"}, SchemaError, r"'mesage'.*'message'"),
    "no source": ({"inputCol": None}, ConfigError, "exactly one"),
    "two sources": ({"inputCol": "message", "promptTemplate": "{id}"}, ConfigError, "exactly one"),
    "type of the prompt": ({"inputCol": "id"}, SchemaError, r"'id' is int; wanted string"),
    "type of the messages": ({"messagesCol": "message"}, SchemaError, r"is string; wanted array<struct<role"),
    "output exists": ({"outputCol": "id"}, SchemaError, r"'id' is already in the frame"),
    "error exists": ({"errorCol": "ID"}, SchemaError, r"'ID' is already in the frame"),
    "same output twice": ({"detailsCol": "prediction"}, SchemaError, r"'prediction' is asked for twice"),
    "reserved output": ({"outputCol": "__pp_mine"}, SchemaError, "reserved"),
    "lone brace": ({"promptTemplate": "{message"}, ConfigError, r"lone '\{' at line 1, column 1"),
    "unknown param": ({"temperatur": 1}, ConfigError, r"no param 'temperatur'"),
    "sampling key": ({"samplingParams": {"maxTokens": 5}}, ConfigError, r"maxTokens.*max_tokens"),
    "several answers": ({"samplingParams": {"n": 2}}, ConfigError, "n=2"),
    "engine argument": ({"engineArgs": {"max_model_length": 64}}, ConfigError, r"max_model_length.*max_model_len"),
    "vllm argument": (
        {"engine": "vllm", "engineArgs": {"max_model_length": 64}},
        ConfigError,
        r"max_model_length.*max_model_len",
    ),
    "unknown model": ({"engine": "vllm", "engineArgs": {}, "model": "smollm"}, ConfigError, r"smollm.*smollm2-135m"),
    "unknown engine": ({"engine": "vlm"}, ConfigError, r"'vlm' is not known.*vllm"),
    "unknown hand-off": ({"handOff": "radp"}, ConfigError, r"'radp' is not known.*raydp"),
    "unknown policy": ({"handleInvalid": "drop"}, ConfigError, r"'drop' is not one of keep, skip"),
    "replicas": ({"minReplicas": 3, "maxReplicas": 2}, ConfigError, "minReplicas=3 is more than maxReplicas=2"),
    "batch of none": ({"batchSize": 0}, ConfigError, "0 is less than 1"),
}


@pytest.mark.usefixtures("no_cluster_work")
@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_on_the_driver_before_the_cluster_moves(
    echo: Maker, messages: Callable[..., DataFrame], spark: SparkSession, name: str
) -> None:
    params, kind, words = MISTAKES[name]
    frame = messages("hello")
    spark.sparkContext.setJobGroup(name, "a mistake")
    for run in (lambda: echo(**params).transform(frame), lambda: echo(**params).transformSchema(frame.schema)):
        with pytest.raises(kind, match=words):
            run()
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup(name)) == []


@pytest.mark.usefixtures("no_cluster_work")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["'a' as message", "1 as __pp_key"], "'__pp_key'.*reserved"),
        (["'a' as message", "1 as x", "2 as X"], "'x', 'X' more than once"),
    ],
)
def test_frame_with_names_that_cannot_be_used_is_refused(
    echo: Maker, spark: SparkSession, columns: list[str], words: str
) -> None:
    with pytest.raises(SchemaError, match=words):
        echo().transform(spark.range(1).selectExpr(*columns))


@pytest.mark.parametrize(
    "value",
    [{"x": math.nan}, {"x": math.inf}, {"x": {1, 2}}, {"x": print}, {"x": b"raw"}, "text", [1]],
    ids=["nan", "inf", "set", "callable", "bytes", "text", "list"],
)
@pytest.mark.parametrize("param", ["samplingParams", "engineArgs"])
def test_dict_params_take_json_only(param: str, value: Any) -> None:
    with pytest.raises(ConfigError):
        LLMPredictor(**{param: value})
    with pytest.raises(ConfigError):
        LLMPredictor().copy({getattr(LLMPredictor(), param): value})


SET = {
    "inputCol": "a",
    "promptTemplate": "{a}",
    "messagesCol": "m",
    "systemPrompt": "s",
    "chatTemplate": "none",
    "samplingParams": {"max_tokens": 3, "stop": ["\n"]},
    "outputCol": "o",
    "errorCol": "e",
    "detailsCol": "d",
    "handleInvalid": "skip",
    "model": "m/m",
    "engine": "echo",
    "engineArgs": {"delay_s": 0.5},
    "trustRemoteCode": True,
    "deduplicate": "false",
    "prefixOrdering": False,
    "batchSize": 7,
    "minReplicas": 2,
    "maxReplicas": 3,
    "idleTimeout": 4.5,
    "startTimeout": 5.5,
    "handOff": "raydp",
}


def test_every_param_has_a_getter_a_setter_and_a_word_of_explanation(spark: SparkSession) -> None:
    stage = LLMPredictor()
    for param in stage.params:
        face = param.name[0].upper() + param.name[1:]
        assert callable(getattr(stage, f"set{face}"))
        assert callable(getattr(stage, f"get{face}"))
    for name, value in SET.items():
        face = name[0].upper() + name[1:]
        assert getattr(stage, f"set{face}")(value) is stage
        assert getattr(stage, f"get{face}")() == value
    told = stage.explainParams()
    assert all(f"{param.name}: {param.doc}" in told for param in stage.params)
    both = LLMPredictor(**SET), LLMPredictor().setParams(**SET)
    for one in both:
        assert {name: one.getOrDefault(name) for name in SET} == SET


def test_copy_takes_other_values_and_leaves_the_original(spark: SparkSession) -> None:
    stage = LLMPredictor(inputCol="a", engineArgs={"delay_s": 1})
    other = stage.copy({stage.inputCol: "b", stage.engineArgs: {"delay_s": 2}})
    assert (stage.getInputCol(), stage.getEngineArgs()) == ("a", {"delay_s": 1})
    assert (other.getInputCol(), other.getEngineArgs(), other.uid) == ("b", {"delay_s": 2}, stage.uid)
    whole = PipelineModel([stage]).copy({stage.outputCol: "reply"})
    assert whole.stages[0].getOutputCol() == "reply"


def test_pipeline_fits_transforms_and_loads_in_a_fresh_process(
    echo: Maker, messages: Callable[..., DataFrame], script: Callable[..., Any], tmp_path: Path
) -> None:
    upper = SQLTransformer(statement="SELECT *, upper(message) AS loud FROM __THIS__")
    stage = echo(inputCol="loud", outputCol="reply", samplingParams={"max_tokens": 3}, idleTimeout=60)
    pipeline = Pipeline(stages=[upper, stage])
    model = pipeline.fit(messages("hello there"))
    row = model.transform(messages("hello there")).first()
    assert row is not None
    assert (row["message"], row["reply"]) == ("hello there", "HELLO THERE")
    pipeline.save(str(tmp_path / "pipeline"))
    model.save(str(tmp_path / "model"))
    stage.save(str(tmp_path / "stage"))
    metadata = json.loads(next((tmp_path / "stage" / "metadata").glob("part-*")).read_text())
    assert metadata["class"] == "platform_plugin.stages.LLMPredictor"

    program = script(
        """
        import json, sys
        from platform_plugin.jdk import use_java
        use_java()
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        from pyspark.ml import Pipeline, PipelineModel
        folder = sys.argv[1]
        stages = [Pipeline.load(f"{folder}/pipeline").getStages()[1], PipelineModel.load(f"{folder}/model").stages[1]]
        from platform_plugin.stages import LLMPredictor
        stages.append(LLMPredictor.load(f"{folder}/stage"))
        found = [{p.name: s.getOrDefault(p) for p in s.params if s.isDefined(p)} for s in stages]
        error = None
        try:
            stages[2].setHandOff("raydp").transform(spark.range(1).selectExpr("'x' as loud"))
        except Exception as exc:
            error = f"{type(exc).__name__}: {exc}"
        print(json.dumps({"params": found, "uids": [s.uid for s in stages], "ray": "ray" in sys.modules and
                          sys.modules["ray"].is_initialized(), "error": error}))
        """,
        arguments=[str(tmp_path)],
    )
    found = program.found(120)
    mine = {p.name: stage.getOrDefault(p) for p in stage.params if stage.isDefined(p)}
    assert found["params"] == [mine] * 3
    assert found["uids"] == [stage.uid] * 3
    assert found["ray"] is False
    assert found["error"].startswith("SessionError: this SparkSession (master local[1]) does not run on Ray")
    assert "spark_on_ray" in found["error"]


def test_two_threads_transform_at_once(echo: Maker, spark: SparkSession) -> None:
    together = threading.Barrier(2, timeout=60)

    def run(name: str) -> dict[int, tuple[str | None, str | None]]:
        frame = spark.range(300).withColumn("message", F.concat(F.lit(name), F.col("id").cast("string")))
        together.wait()
        return answers(echo().transform(frame))

    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(run, ["left ", "right "])
    assert left == {i: (f"left {i}", None) for i in range(300)}
    assert right == {i: (f"right {i}", None) for i in range(300)}
