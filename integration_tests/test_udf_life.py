"""The life of a UDF's actors: how often what is loaded, who shares them, how they die, stop and are refused."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
import ray
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import udf_compat
from platform_plugin.errors import PlacementError, UnsupportedUdfError
from udf_compat.functions import pandas_udf, predict_batch_udf

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

POOL = {"pool": "life", "replicas": (1, 2)}


def mark(folder: Path) -> None:
    """Leave a trace of a call, whatever process makes it."""
    (folder / f"{os.getpid()}-{time.time_ns()}").touch()


def marks(folder: Path) -> list[int]:
    return [int(path.name.partition("-")[0]) for path in folder.iterdir()]


def total(frame: Any) -> int:
    """Return the sum of the only column; count() would let Spark leave the UDF out."""
    (name,) = frame.columns
    found: int = frame.agg(F.sum(F.col(f"`{name}`"))).first()[0]
    return found


def actors_of(name: str) -> list[int]:
    return [pid for pool in udf_compat.census() if pool["name"] == name for pid in pool["pids"]]


def test_scalar_udf_loads_its_model_once_an_actor_and_tasks_share_actors(spark: SparkSession, tmp_path: Path) -> None:
    model: dict[str, int] = {}

    @pandas_udf("long", on_ray={"replicas": (1, 2)})
    def predict(x: pd.Series) -> pd.Series:
        if not model:
            mark(tmp_path)
            model["bias"] = 1
        return x + model["bias"]

    for _ in range(2):
        assert total(spark.range(0, 1600, 1, 16).select(predict("id"))) == sum(range(1, 1601))
    loaded = marks(tmp_path)
    assert len(loaded) == len(set(loaded)) <= 2
    assert set(loaded) <= set(actors_of("predict"))


def test_predict_batch_udf_loads_its_model_once_an_actor(spark: SparkSession, tmp_path: Path) -> None:
    def load() -> Any:
        mark(tmp_path)
        return lambda x: x * 2

    twice = predict_batch_udf(load, return_type=DoubleType(), batch_size=10, on_ray=POOL)
    frame = spark.range(0, 160, 1, 16).select(twice(F.col("id").cast("double")))
    assert total(frame) == 2 * sum(range(160))
    assert len(marks(tmp_path)) == len(set(marks(tmp_path))) <= 2


@pytest.mark.parametrize("shared", [False, True])
def test_prologue_runs_once_a_partition_or_once_an_actor(spark: SparkSession, tmp_path: Path, shared: bool) -> None:
    def plus(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        mark(tmp_path)
        for batch in batches:
            yield batch + 1

    made = pandas_udf(_hinted(plus), "long", on_ray={**POOL, "shared_prologue": shared})
    assert total(spark.range(0, 1600, 1, 16).select(made("id"))) == sum(range(1, 1601))
    loaded = marks(tmp_path)
    assert len(loaded) == (len(set(loaded)) if shared else 16)
    assert len(set(loaded)) <= 2


def _hinted(function: Any) -> Any:
    """Give a nested function type hints that hold: those of this file are texts."""
    function.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    return function


@pytest.mark.parametrize("kind", ["scalar", "iterator"])
def test_actor_that_is_killed_in_mid_run_is_not_noticed(
    spark: SparkSession, tmp_path: Path, until: Callable[..., Any], kind: str
) -> None:
    def slow(x: pd.Series) -> pd.Series:
        mark(tmp_path)
        time.sleep(0.05)
        return x + 1

    def slow_iterator(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        before = 0
        for batch in batches:
            yield slow(batch) + before * 0
            before += len(batch)

    function = slow if kind == "scalar" else _hinted(slow_iterator)
    made = pandas_udf(function, "long", on_ray={**POOL, "batch_rows": 100, "in_flight": 2})
    found: list[int] = []
    run = threading.Thread(target=lambda: found.append(total(spark.range(0, 6000, 1, 2).select(made("id")))))
    run.start()
    until(lambda: len(marks(tmp_path)) > 5, 60)
    killed = marks(tmp_path)[-1]
    os.kill(killed, signal.SIGKILL)
    until(lambda: not psutil.pid_exists(killed) or psutil.Process(killed).status() == psutil.STATUS_ZOMBIE)
    run.join(120)
    assert found == [sum(range(1, 6001))]
    assert set(marks(tmp_path)) - {killed}


def test_idle_actors_stop_and_start_again_when_they_are_needed(spark: SparkSession, until: Callable[..., Any]) -> None:
    @pandas_udf("long", on_ray={"idle_timeout": 2})
    def napper(x: pd.Series) -> pd.Series:
        return x + 1

    frame = spark.range(3).select(napper("id"))
    assert total(frame) == 6
    pids = actors_of("napper")
    assert pids
    until(lambda: not actors_of("napper"))
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    assert total(frame) == 6
    assert not set(actors_of("napper")) & set(pids)


def test_actor_that_no_node_can_hold_is_refused_at_once(spark: SparkSession) -> None:
    made = pandas_udf(lambda x: x, "long", on_ray={"num_gpus": 1})
    began = time.monotonic()
    with pytest.raises(PlacementError, match=r"num_gpus=1, and no node(.|\n)*GPU 0(.|\n)*no autoscaler"):
        spark.range(3).select(made("id"))
    assert time.monotonic() - began < 30


def test_actor_that_may_yet_fit_is_waited_for_and_named(spark: SparkSession) -> None:
    @ray.remote(num_cpus=1)
    class Holder:
        def here(self) -> bool:
            return True

    holder = Holder.remote()  # type: ignore[attr-defined]
    assert ray.get(holder.here.remote())
    everything = ray.cluster_resources()["CPU"]  # type: ignore[no-untyped-call]
    made = pandas_udf(lambda x: x, "long", on_ray={"num_cpus": everything, "start_timeout": 4})
    with pytest.raises(Exception, match=rf"waited start_timeout=4 s for an actor with num_cpus={everything:g}"):
        total(spark.range(3).select(made("id")))
    ray.kill(holder)


def test_what_cannot_be_carried_over_is_refused_on_the_driver(spark: SparkSession) -> None:
    count = spark.sparkContext.accumulator(0)
    with pytest.raises(UnsupportedUdfError, match="uses an accumulator"):
        pandas_udf(lambda x: count.add(1), "long")
    with pytest.raises(UnsupportedUdfError, match="uses a SparkSession"):
        pandas_udf(lambda x: spark.range(3), "long")
    lock = threading.Lock()
    made = pandas_udf(lambda x: lock, "long")
    with pytest.raises(UnsupportedUdfError, match=r"closes over lock \(lock\)"):
        spark.range(3).select(made("id"))


def test_module_that_was_shipped_with_add_py_file(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("shipped_for_udfs.py", "def plus(x):\n    return x + 41\n")
    spark.sparkContext.addPyFile(str(archive))

    def call(x: pd.Series) -> pd.Series:
        from shipped_for_udfs import plus  # type: ignore[import-not-found]

        return plus(x)

    made = pandas_udf(call, "long", on_ray=POOL)
    assert total(spark.range(2).select(made("id"))) == 83


def test_function_of_a_notebook_cell(spark: SparkSession) -> None:
    cell = textwrap.dedent(
        """
        import pandas as pd
        def fails(x: pd.Series) -> pd.Series:
            return x / (x.sum() * 0).item().bit_length().nothing
        """
    )
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<ipython-input-3-abc>", "exec"), space)
    made = pandas_udf(space["fails"], "double", on_ray=POOL)
    with pytest.raises(Exception, match=r'"<ipython-input-3-abc>", line 4, in fails(.|\n)*AttributeError'):
        spark.range(2).select(made("id")).collect()
