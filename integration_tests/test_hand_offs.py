"""What the stage must do whichever way its requests go: over raydp, inline and parquet; and what streams do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_plugin import hand_off as hand_offs
from platform_plugin import listeners, pool, release_answers
from platform_plugin.bridges import find_bridges
from platform_plugin.connection import Connection
from platform_plugin.errors import ConfigError, ErrorRateError, InvalidRowsError, SchemaError
from platform_plugin.inline import inlined
from platform_plugin.stages import LLMPredictor

pytestmark = pytest.mark.ray

Maker = Callable[..., LLMPredictor]
BAD = ("good", None, " \t", "this is unanswerable", "word " * 64, "good", "better")
UNANSWERED = {1: "NullPrompt", 2: "EmptyPrompt", 3: "EchoFailure", 4: "PromptTooLong"}


WAYS = [hand_offs.INLINE, *find_bridges()]


# Parquet is the slowest by far; its files have a test of their own below.
@pytest.fixture(params=[pytest.param(way, marks=pytest.mark.slow) if way == "parquet" else way for way in WAYS])
def ask(request: pytest.FixtureRequest, echo: Maker, tmp_path: Path) -> Maker:
    """Return the maker of stages that go one way."""
    way = {"handOff": request.param}
    if request.param == "parquet":
        way["handOffDir"] = str(tmp_path)
    return lambda **params: echo(**way, **params)


def lines(spark: SparkSession, *texts: str | None) -> DataFrame:
    return spark.createDataFrame(list(enumerate(texts)), "id int not null, message string").repartition(2)


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row["id"])


def test_rows_keep_their_values_and_get_their_own_answers(
    ask: Maker, typed: DataFrame, by_id: Any, spark: SparkSession
) -> None:
    numbered = typed.crossJoin(spark.range(200).select(F.col("id").alias("n")))
    frame = numbered.withColumn("id", F.expr("id * 200 + n")).withColumn("message", F.expr("'question ' || n % 150"))
    stage = ask(detailsCol="details")
    out = stage.transform(frame)
    assert out.schema == stage.transformSchema(frame.schema)
    wanted, found = by_id(frame), by_id(out)
    assert len(found) == len(wanted) == 600
    assert {i: row for i, row in wanted.items() if {n: found[i][n] for n in row} != row} == {}
    assert {i for i, row in found.items() if row["prediction"] != row["message"]} == set()
    assert {row["prediction_error"] for row in found.values()} == {"None"}
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.distinct, report.reused, report.prompt_tokens) == (600, 150, 450, 300)
    assert (report.latency.total, report.failed, report.refused) == (150, {}, {})
    assert list(report.steps) == ["check", "hand over", "engine", "infer", "take back"]
    assert report.engine_busy_share is not None
    release_answers(out.where("id > 3"))
    with pytest.raises(Exception, match=r"the answers of this frame were released|FILE_NOT_EXIST|does not exist"):
        out.where("id >= 0").collect()  # `out` itself keeps what Spark broadcast before


def test_bad_rows_come_back_with_their_reason(ask: Maker, spark: SparkSession) -> None:
    frame = lines(spark, *BAD)
    stage = ask(deduplicate=False)
    found = {row["id"]: row for row in stage.transform(frame).collect()}
    assert {i: row["prediction_error"]["type"] for i, row in found.items() if row["prediction_error"]} == UNANSWERED
    assert {i: row["prediction"] for i, row in found.items()} == {
        i: None if i in UNANSWERED else text for i, text in enumerate(BAD)
    }
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.distinct, report.reused) == (7, 5, 0)
    assert report.failed == {"EchoFailure": 1, "PromptTooLong": 1}
    assert report.refused == {"EmptyPrompt": 1, "NullPrompt": 1}
    strict = ask(handleInvalid="error")
    with pytest.raises(InvalidRowsError) as raised:
        strict.transform(frame)
    assert raised.value.counts == dict.fromkeys(UNANSWERED.values(), 1)
    assert strict.lastResult is not None
    assert [row["prediction"] for row in rows(strict.lastResult)][5:] == ["good", "better"]


def test_shape_and_sampling_of_a_row_go_along(ask: Maker, spark: SparkSession) -> None:
    frame = lines(spark, "a b c", "a b c", "d").withColumn(
        "own", F.format_string('{"max_tokens": %d}', F.col("id") + 1)
    )
    assert [row["prediction"] for row in rows(ask(samplingParamsCol="own").transform(frame))] == ["a", "a b", "d"]
    stage = ask(outputSchema="intent STRING, tags ARRAY<INT>", handleInvalid="skip")
    out = stage.transform(lines(spark, "one", None))
    assert out.schema == stage.transformSchema(frame.select("id", "message").schema)
    (row,) = rows(out)
    assert isinstance(row["prediction"]["intent"], str)
    assert {type(tag) for tag in row["prediction"]["tags"]} <= {int}


def test_run_that_is_not_worth_going_on_stops(ask: Maker, spark: SparkSession) -> None:
    with pytest.raises(ErrorRateError, match=r"the first \d+ requests all failed"):
        ask(maxErrorRate=0.9).transform(lines(spark, *[f"unanswerable {i}" for i in range(150)]))
    assert rows(ask().transform(lines(spark, "goes on")))[0]["prediction"] == "goes on"


def test_frame_without_a_request_starts_no_engine(
    ask: Maker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "start", lambda *_, **__: pytest.fail("an engine was started"))
    stage = ask()
    out = stage.transform(lines(spark, None, " "))
    assert [row["prediction_error"]["type"] for row in rows(out)] == ["NullPrompt", "EmptyPrompt"]
    assert stage.lastReport is not None
    assert (stage.lastReport.rows, stage.lastReport.distinct) == (2, 0)


def test_listener_sees_the_same_requests_and_their_answers(ask: Maker, spark: SparkSession) -> None:
    class Seen:
        sample_rows, sample_prompts = 3, True

        def began(self, transform: listeners.Transform) -> None:
            assert transform.report is None

        def ended(self, transform: listeners.Transform) -> None:
            self.transform = transform

    seen = Seen()
    listeners.subscribe(seen)
    try:
        ask().transform(lines(spark, *[f"message {i}" for i in range(20)]))
    finally:
        listeners.unsubscribe(seen)
    sample = seen.transform.sample
    assert sample is not None
    # The smallest keys are the same whichever way they went.
    assert sample["output"].to_pylist() == sample["prompt"].to_pylist() == ["message 11", "message 14", "message 3"]


def test_row_that_kills_its_engine_is_one_bad_row_inline(echo: Maker, spark: SparkSession) -> None:
    stage = echo(handOff="inline", engineArgs={"die_on": "question 5"}, batchSize=1)
    found = rows(stage.transform(lines(spark, *[f"question {i}" for i in range(10)])))
    assert [row["prediction"] for row in found] == [None if i == 5 else f"question {i}" for i in range(10)]
    assert found[5]["prediction_error"]["type"] == "EngineDiedError"
    assert stage.lastReport is not None
    assert stage.lastReport.failed == {"EngineDiedError": 1}
    pool.release(pool.app_name(stage.spec()))


def test_few_requests_are_one_task_however_many_partitions_a_shuffle_leaves(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "50")
    try:
        frame = spark.range(20).selectExpr("cast(id as string) as prompt").repartitionByRange("prompt")
        with inlined(frame) as passage:
            assert (passage.asked, passage.requests.rdd.getNumPartitions()) == (20, 1)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_workers_that_do_not_reach_ray_are_told_of_parquet(
    echo: Maker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = Connection("127.0.0.1:9", "elsewhere", None)
    monkeypatch.setattr(Connection, "of_driver", lambda: away)
    monkeypatch.setattr(pool, "start", lambda *_, **__: pytest.fail("an engine was started"))
    with pytest.raises(ConfigError, match=r'do not reach Ray at 127.0.0.1:9: ConnectionRefused.*\n.*handOff="parquet"'):
        echo(handOff="inline").transform(lines(spark, "a"))


def test_files_are_gone_once_the_answers_are_released(echo: Maker, spark: SparkSession, tmp_path: Path) -> None:
    out = echo(handOff="parquet", handOffDir=str(tmp_path)).transform(lines(spark, "a", "b"))
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith("__pp_files_")
    release_answers(out)
    assert list(tmp_path.iterdir()) == []


class Files:
    """A folder that a stream reads, and one that it writes."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        (folder / "in").mkdir()

    def put(self, name: str, *given: dict[str, Any]) -> None:
        (self.folder / "in" / f"{name}.json").write_text("\n".join(json.dumps(row) for row in given))

    @property
    def stream(self) -> DataFrame:
        schema = "id int, message string, tags array<map<string,int>>"
        return self.spark.readStream.schema(schema).json(str(self.folder / "in"))

    def run(self, frame: DataFrame) -> list[Any]:
        """Answer what is new, and return all that was written."""
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self.folder / "out"))
        assert query.awaitTermination(120)
        return rows(self.spark.read.parquet(str(self.folder / "out")))


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path)


def test_stream_is_answered_as_it_comes_and_goes_on_from_its_checkpoint(echo: Maker, files: Files) -> None:
    files.put("first", *[{"id": i, "message": t, "tags": [{"a": i}]} for i, t in enumerate(BAD)])
    stage = echo(detailsCol="details")
    frame = stage.transform(files.stream)
    assert frame.isStreaming
    assert frame.schema == stage.transformSchema(files.stream.schema)
    found = files.run(frame)
    assert [row["prediction"] for row in found] == [None if i in UNANSWERED else t for i, t in enumerate(BAD)]
    assert {r["id"]: r["prediction_error"]["type"] for r in found if r["prediction_error"]} == UNANSWERED
    assert [row["tags"] for row in found] == [[{"a": i}] for i in range(7)]
    assert [row["details"] and row["details"]["prompt_tokens"] for row in found][:3] == [1, None, None]
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.distinct, report.reused) == (7, 4, 1)  # "good" was asked once
    assert (report.failed, report.refused) == (
        {"EchoFailure": 1, "PromptTooLong": 1},
        {"EmptyPrompt": 1, "NullPrompt": 1},
    )
    # Another program goes on where the first one stopped: only what is new is asked.
    again = echo(detailsCol="details")
    files.put("second", {"id": 7, "message": "new"})
    assert [row["prediction"] for row in files.run(again.transform(files.stream))][7:] == ["new"]
    assert again.lastReport is not None
    assert (again.lastReport.rows, again.lastReport.distinct) == (1, 1)


def test_stream_has_shapes_and_leaves_bad_rows_out(echo: Maker, files: Files) -> None:
    files.put("one", {"id": 0, "message": "a"}, {"id": 1}, {"id": 2, "message": "a"})
    stage = echo(outputSchema="intent STRING", handleInvalid="skip", deduplicate=False)
    found = files.run(stage.transform(files.stream))
    assert [row["id"] for row in found] == [0, 2]
    assert {type(row["prediction"]["intent"]) for row in found} == {str}
    assert stage.lastReport is not None
    assert stage.lastReport.distinct == 2


def test_stream_ends_where_it_is_told_to(echo: Maker, files: Files) -> None:
    files.put("one", *[{"id": i, "message": f"unanswerable {i}"} for i in range(150)])
    with pytest.raises(Exception, match=r"InvalidRowsError: 150 rows have no answer \(150 EchoFailure\)"):
        files.run(echo(handleInvalid="error", maxErrorRate=1).transform(files.stream))
    with pytest.raises(Exception, match=r"ErrorRateError: the first \d+ requests all failed"):
        files.run(echo().transform(files.stream))


def test_stream_says_what_it_cannot_take(echo: Maker, spark: SparkSession, files: Files, tmp_path: Path) -> None:
    for way in ({"handOff": "raydp"}, {"handOff": "parquet", "handOffDir": str(tmp_path)}):
        with pytest.raises(ConfigError, match="takes no streaming frame"):
            echo(**way).transform(files.stream)
    months = files.stream.selectExpr("message", "array(interval '1' month) as months")
    with pytest.raises(SchemaError, match="'months' of type array<interval month> cannot pass"):
        echo().transform(months)
