"""What a run survives: real processes are killed in the middle of it, with the echo engine; no row lost or doubled."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest
import ray
from pyspark.sql import DataFrame, SparkSession

from integration_tests.processes import processes
from platform_plugin import pool
from platform_plugin.errors import HandOffError, StalledError
from platform_plugin.progress import Progress
from platform_plugin.stages import LLMPredictor

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("spark")]

Maker = Callable[..., LLMPredictor]
InMidRun = Callable[[Callable[[], None]], list[int]]


def replicas(stage: LLMPredictor) -> list[psutil.Process]:
    return processes(f"ServeReplica:{pool.app_name(stage.spec())}")


def kill(*found: psutil.Process) -> None:
    assert found
    for process in found:
        os.kill(process.pid, signal.SIGKILL)


def questions(spark: SparkSession, rows: int, *killers: int) -> DataFrame:
    cases = "".join(f"when id = {i} then 'deadly {i}' " for i in killers)
    return spark.range(rows).selectExpr("id", f"case {cases}when true then concat('question ', id) end as message")


def deaths(stage: LLMPredictor) -> int:
    """Return how many replicas of the engine have died, as Ray's own table of actors has it."""
    name = pool.app_name(stage.spec())
    table: dict[str, dict[str, Any]] = ray._private.state.state.actor_table(None)
    return sum(name in str(actor["Name"]) and actor["State"] == "DEAD" for actor in table.values())


@pytest.fixture
def in_mid_run(monkeypatch: pytest.MonkeyPatch) -> InMidRun:
    """Return ``in_mid_run(act)``: calls `act` once, when some answers are there and not all; notes how many."""

    def arrange(act: Callable[[], None]) -> list[int]:
        update, noted = Progress.update, []

        def once(self: Progress, done: int, *, total: int, **more: Any) -> None:
            if 0 < done < total and not noted:
                noted.append(done)
                act()
            update(self, done, total=total, **more)

        monkeypatch.setattr(Progress, "update", once)
        return noted

    return arrange


@pytest.fixture
def slow(echo: Maker) -> Iterator[LLMPredictor]:
    """A stage that takes some seconds for 2,000 rows: an engine of its own, which the test may kill."""
    stage = echo(engineArgs={"delay_s": 0.6, "max_model_len": 77}, batchSize=16)
    yield stage
    pool.release(pool.app_name(stage.spec()))


def check(stage: LLMPredictor, frame: DataFrame, rows: int) -> None:
    """Hold the frame to exactly one good answer a row."""
    got = [(row["id"], row["prediction"]) for row in frame.collect()]
    assert sorted(got) == [(i, f"question {i}") for i in range(rows)]
    assert stage.lastReport is not None
    assert (stage.lastReport.distinct, stage.lastReport.failed) == (rows, {})


@pytest.mark.parametrize(
    ("killers", "width"),
    [((257,), 1), pytest.param((100, 400), 1, marks=pytest.mark.slow), pytest.param((257,), 2, marks=pytest.mark.slow)],
)
def test_rows_that_kill_their_engine_are_the_only_bad_rows(
    echo: Maker, spark: SparkSession, killers: tuple[int, ...], width: int
) -> None:
    args = {"die_on": "deadly", "max_model_len": 1000 + 10 * width + len(killers)}
    stage = echo(engineArgs=args, batchSize=64, minReplicas=width, maxReplicas=width)
    rows = {row["id"]: row for row in stage.transform(questions(spark, 501, *killers)).collect()}
    good = {i: row["prediction"] for i, row in rows.items() if row["prediction_error"] is None}
    assert good == {i: f"question {i}" for i in range(501) if i not in killers}
    assert Counter(rows[i]["prediction_error"]["type"] for i in killers) == {"EngineDiedError": len(killers)}
    assert stage.lastReport is not None
    assert stage.lastReport.failed == {"EngineDiedError": len(killers)}
    # Twice in company, once alone, then half by half.
    assert len(killers) <= deaths(stage) <= len(killers) * (2 + math.log2(64) + 1)
    pool.release(pool.app_name(stage.spec()))


def test_killed_replica_costs_no_row(slow: LLMPredictor, spark: SparkSession, in_mid_run: InMidRun) -> None:
    noted = in_mid_run(lambda: kill(*replicas(slow)))
    check(slow, slow.transform(questions(spark, 2000)), 2000)
    assert noted
    assert deaths(slow) == 1


def test_killed_controller_of_serve_costs_no_row(
    slow: LLMPredictor, spark: SparkSession, in_mid_run: InMidRun, until: Callable[..., Any]
) -> None:
    before = {process.pid for process in processes("ray::ServeController")}
    noted = in_mid_run(lambda: kill(*processes("ray::ServeController")))
    check(slow, slow.transform(questions(spark, 2000)), 2000)
    assert noted
    # And engines start and stop as before.
    until(lambda: {process.pid for process in processes("ray::ServeController")} - before, 60)


def test_killed_worker_of_ray_data_costs_no_row(slow: LLMPredictor, spark: SparkSession, in_mid_run: InMidRun) -> None:
    noted = in_mid_run(lambda: kill(*processes("ray::MapWorker")))
    check(slow, slow.transform(questions(spark, 2000)), 2000)
    assert noted


@pytest.mark.parametrize("actor", ["Keeper", "Monitor"])
def test_killed_actor_that_holds_the_run_ends_it_with_a_clear_error(
    slow: LLMPredictor, spark: SparkSession, in_mid_run: InMidRun, actor: str
) -> None:
    noted = in_mid_run(lambda: kill(*processes(f"ray::{actor}")))
    try:
        frame = slow.transform(questions(spark, 2000))
    except HandOffError as exc:
        assert "Run the transform again" in str(exc)
    else:
        check(slow, frame, 2000)
    assert noted
    check(slow, slow.transform(questions(spark, 20)), 20)


def test_engine_that_stands_still_ends_the_run_with_the_step(
    echo: Maker, spark: SparkSession, in_mid_run: InMidRun
) -> None:
    stage = echo(engineArgs={"delay_s": 0.6, "max_model_len": 78}, batchSize=16, requestTimeout=2)

    def stand_still() -> None:
        for process in replicas(stage):
            os.kill(process.pid, signal.SIGSTOP)

    in_mid_run(stand_still)
    with pytest.raises(StalledError, match=r"step infer stalls: .* of 2000 requests have come back"):
        stage.transform(questions(spark, 2000))
    kill(*replicas(stage))
    check(stage, stage.transform(questions(spark, 20)), 20)
    pool.release(pool.app_name(stage.spec()))


def test_two_transforms_at_once_both_go_on(echo: Maker, spark: SparkSession) -> None:
    first, second = echo(outputCol="a"), echo(outputCol="b", systemPrompt="be brief")
    with ThreadPoolExecutor(2) as threads:
        frames = list(threads.map(lambda stage: stage.transform(questions(spark, 200)), (first, second)))
    for frame, name in zip(frames, "ab", strict=True):
        assert sorted(row[name] for row in frame.collect()) == sorted(f"question {i}" for i in range(200))
