"""Engines as Ray Serve applications: warm, shared, widened, idle, failing, dying."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from ray import serve
from ray.serve.context import _get_global_client

from platform_plugin import pool, release_engines
from platform_plugin.config import EngineConfig, Replicas
from platform_plugin.engines import load_spec
from platform_plugin.errors import EngineStartError, PlacementError
from platform_plugin.stages import LLMPredictor

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("spark")]

Maker = Callable[..., LLMPredictor]


def app(stage: LLMPredictor) -> str:
    return pool.app_name(stage.spec())


def replica_id(name: str) -> str:
    return str(pool.handle(name).ready.remote().result(timeout_s=60))


def running(name: str) -> int:
    (deployment,) = serve.status().applications[name].deployments.values()
    return sum(deployment.replica_states.values())


def questions(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).withColumn("message", F.concat(F.lit("question "), F.col("id").cast("string")))


def answered(frame: DataFrame) -> dict[int, str]:
    return {row["id"]: row["prediction"] for row in frame.select("id", "prediction").collect()}


def test_stages_and_transforms_share_one_warm_engine(echo: Maker, spark: SparkSession) -> None:
    first, second = echo(), echo(systemPrompt="be brief", samplingParams={"max_tokens": 1}, outputCol="reply")
    assert app(first) == app(second)
    first.transform(questions(spark, 3))
    before = replica_id(app(first))
    row = second.transform(questions(spark, 1)).first()
    assert row is not None
    assert row["reply"] == "question"
    assert answered(first.transform(questions(spark, 2))) == {0: "question 0", 1: "question 1"}
    assert replica_id(app(first)) == before
    assert running(app(first)) == 1


def test_more_replicas_widen_the_running_engine_in_place(echo: Maker, spark: SparkSession) -> None:
    def most() -> int:
        details = _get_global_client().get_serve_details()["applications"][name]["deployments"]
        (deployment,) = details.values()
        return int(deployment["deployment_config"]["autoscaling_config"]["max_replicas"])

    name = app(echo())
    echo().transform(questions(spark, 1))
    before = replica_id(name)
    echo(maxReplicas=3).transform(questions(spark, 1))
    assert (replica_id(name), most()) == (before, 3)
    echo(maxReplicas=2).transform(questions(spark, 1))
    assert (replica_id(name), most()) == (before, 3)


def test_two_threads_that_start_an_engine_get_the_same_one() -> None:
    spec = load_spec(EngineConfig(engine="echo", engine_args={"max_model_len": 101}))
    with ThreadPoolExecutor(2) as threads:
        names = list(threads.map(lambda _: pool.start(spec, Replicas(), joined=False), range(2)))
    assert names == [pool.app_name(spec)] * 2
    assert running(names[0]) == 1
    pool.release(names[0])


def test_engine_that_cannot_start_says_so_once_and_is_gone(echo: Maker, spark: SparkSession) -> None:
    words = "the licence ran out"
    stage = echo(engineArgs={"fail_start": words})
    began = time.monotonic()
    with pytest.raises(EngineStartError) as error:
        stage.transform(questions(spark, 100))
    assert time.monotonic() - began < 60
    assert str(error.value).count(words) == 1
    assert len(str(error.value)) < 500
    assert app(stage) not in serve.status().applications


def test_replica_that_no_node_could_hold_is_refused_at_once() -> None:
    spec = load_spec(EngineConfig(model="llama-3.1-8b"))
    with pytest.raises(PlacementError, match=r"'GPU': 1.*no node of this cluster"):
        pool.start(spec, Replicas(), joined=False)
    assert pool.app_name(spec) not in serve.status().applications


def test_replica_that_finds_no_room_ends_at_start_timeout_and_is_gone() -> None:
    spec = load_spec(EngineConfig(model="llama-3.1-8b"))
    with pytest.raises(EngineStartError, match="not ready after startTimeout=2 s"):
        pool.start(spec, Replicas(start_timeout_s=2), joined=True)
    assert pool.app_name(spec) not in serve.status().applications


def test_idle_engine_stops_and_comes_back(echo: Maker, spark: SparkSession, until: Callable[..., Any]) -> None:
    stage = echo(engineArgs={"max_model_len": 102}, idleTimeout=1)
    assert answered(stage.transform(questions(spark, 2))) == {0: "question 0", 1: "question 1"}
    name = app(stage)
    before = replica_id(name)
    until(lambda: running(name) == 0, 60)
    assert name in serve.status().applications
    assert answered(stage.transform(questions(spark, 1))) == {0: "question 0"}
    assert replica_id(name) != before
    pool.release(name)


@pytest.mark.slow
def test_row_that_kills_its_engine_is_one_bad_row_among_100_good_ones(echo: Maker, spark: SparkSession) -> None:
    stage = echo(engineArgs={"die_on": "question 57"}, batchSize=16)
    rows = {row["id"]: row for row in stage.transform(questions(spark, 101)).collect()}
    bad = rows.pop(57)
    assert {i: row["prediction"] for i, row in rows.items()} == {i: f"question {i}" for i in range(101) if i != 57}
    assert (bad["prediction"], bad["prediction_error"]["type"]) == (None, "EngineDiedError")
    assert stage.lastReport is not None
    assert stage.lastReport.failed == {"EngineDiedError": 1}
    pool.release(app(stage))


def test_released_engines_are_gone_and_start_anew(echo: Maker, spark: SparkSession) -> None:
    stage = echo(engineArgs={"max_model_len": 103})
    stage.transform(questions(spark, 1))
    before = replica_id(app(stage))
    assert app(stage) in release_engines()
    assert [name for name in serve.status().applications if name.startswith(pool.PREFIX)] == []
    assert answered(stage.transform(questions(spark, 2))) == {0: "question 0", 1: "question 1"}
    assert replica_id(app(stage)) != before
    pool.release(app(stage))
