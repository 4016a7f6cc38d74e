"""Sessions that need a process, or a cluster, of their own: each test asks what one program saw."""

from __future__ import annotations

import contextlib
import functools
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

SPEC = '''
"""A module of the user's: a function, and an engine that says what it finds in its environment."""
import hashlib
import os

from platform_plugin.config import EngineConfig, Placement
from platform_plugin.errors import EngineStartError

def double(x):
    return 2 * x

def doubled(batches):
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": [double(x) for x in batch["id"].to_pylist()]})

class TellingSpec:
    config = EngineConfig(engine="telling")

    def placement(self):
        return Placement(num_cpus=0.1)

    def build(self):
        token = os.environ.get("HF_TOKEN", "")
        raise EngineStartError("told " + hashlib.sha256(token.encode()).hexdigest())
'''

HEAD = """
import contextlib
import json, os, signal, sys, threading, time
from platform_plugin.jdk import use_java
use_java()
found = {}

def error(run):
    try:
        run()
    except BaseException as exc:
        return f"{type(exc).__name__}: {exc}"

def echo(**args):
    from platform_plugin import LLMPredictor
    return LLMPredictor(inputCol="message", engine="echo", engineArgs=args)

def ask(spark, rows=3, **args):
    frame = spark.range(rows).selectExpr("id", "concat('question ', id) as message")
    return sorted(row["prediction"] for row in echo(**args).transform(frame).collect())
"""

LIFE = '''
import ray
import mine
from platform_plugin.session import ENVIRONMENT
before = {name: os.environ.get(name) for name in ENVIRONMENT}
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from platform_plugin import spark_on_ray
found["over plain"] = error(lambda: spark_on_ray().start())
found["stage in plain"] = ask(plain)
found["ray beside plain"] = ray.is_initialized()
plain.stop()
del os.environ["PYSPARK_PYTHON"]

def rest():
    """Return whether Ray, Spark and the environment are as they were."""
    same = {name: os.environ.get(name) for name in ENVIRONMENT} == before
    return [not ray.is_initialized(), SparkSession.getActiveSession() is None, same]

session = spark_on_ray("first", conf={"spark.sql.shuffle.partitions": "3", "spark.only.first": "here"})
with session as spark:
    found["first"] = ask(spark)
    found["same"] = session.start() is spark
    found["two at once"] = error(lambda: spark_on_ray().start())
    found["module in spark"] = sorted(r["id"] for r in spark.range(3).mapInArrow(mine.doubled, "id long").collect())
    found["module in ray"] = ray.get(ray.remote(mine.double).remote(21))
    found["conf"] = [spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.only.first", None)]
found["after first"] = rest()

def interrupt_in_mid_run(spark):
    """Do as a terminal does at Ctrl-C, once answers are being waited for."""
    from platform_plugin.progress import Progress
    update, calls = Progress.update, []
    def counting(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            threading.Thread(target=os.killpg, args=(os.getpgrp(), signal.SIGINT)).start()
        return update(self, *args, **kwargs)
    Progress.update = counting
    try:
        return error(lambda: ask(spark, delay_s=120))
    finally:
        Progress.update = update

def replica(**args):
    from platform_plugin import pool
    return pool.handle(pool.app_name(echo(**args).spec())).ready.remote().result(timeout_s=60)

try:
    with spark_on_ray("second", conf={"spark.sql.shuffle.partitions": "2"}) as spark:
        found["second"] = ask(spark)
        found["second conf"] = [
            spark.conf.get("spark.sql.shuffle.partitions"),
            spark.conf.get("spark.only.first", None),
        ]
        warm = replica()
        began = time.monotonic()
        found["interrupted"] = interrupt_in_mid_run(spark)
        found["interrupted after"] = time.monotonic() - began
        found["after interrupt"] = ask(spark, rows=5)
        found["still warm"] = replica() == warm
        raise KeyError("mine")
except KeyError as exc:
    found["raised"] = str(exc)
found["after second"] = rest()
session.stop()
print(json.dumps(found))
'''


@pytest.fixture(scope="module")
def living(script: Callable[..., Any]) -> Any:
    """A program that starts and stops sessions, one after the other."""
    return script(HEAD + LIFE, ("mine.py", SPEC))


@pytest.fixture(scope="module")
def life(living: Any, joining: Any) -> tuple[dict[str, Any], Any]:
    """What that program saw, and the program; it runs beside the one that joins a cluster."""
    return living.found(600), living


def test_session_over_another_is_refused_with_the_remedy(life: Any) -> None:
    found, _ = life
    assert found["over plain"].startswith("SessionError: a SparkSession is active in this process (master local[1])")
    assert "spark.stop()" in found["over plain"]
    assert found["two at once"].startswith("SessionError: a Spark-on-Ray session is running")


def test_stage_in_a_session_without_ray_starts_one_that_a_session_on_ray_takes_the_place_of(life: Any) -> None:
    found, _ = life
    assert found["stage in plain"] == ["question 0", "question 1", "question 2"]
    assert found["ray beside plain"] is True


def test_session_starts_twice_in_one_process_each_with_its_own_settings(life: Any) -> None:
    found, _ = life
    assert found["first"] == found["second"] == ["question 0", "question 1", "question 2"]
    assert found["same"] is True
    assert found["conf"] == ["3", "here"]
    assert found["second conf"] == ["2", None]


def test_session_stops_what_it_started_also_after_an_exception(life: Any) -> None:
    found, _ = life
    assert found["raised"] == "'mine'"
    assert found["after first"] == found["after second"] == [True, True, True]


def test_modules_of_the_user_reach_spark_and_ray(life: Any) -> None:
    found, _ = life
    assert (found["module in spark"], found["module in ray"]) == ([0, 2, 4], 42)


def test_ctrl_c_ends_a_run_and_leaves_the_session_usable(life: Any) -> None:
    found, _ = life
    assert found["interrupted"].startswith("KeyboardInterrupt")
    # The answers would have come after 120.
    assert found["interrupted after"] < 90
    assert found["after interrupt"] == [f"question {i}" for i in range(5)]
    assert found["still warm"] is True


def test_program_that_ended_left_no_process(life: Any, until: Callable[..., Any]) -> None:
    _, program = life
    until(lambda: not program.processes(), 60)


JOINED = """
import ray
import mine
from platform_plugin import pool, spark_on_ray
from platform_plugin.config import Replicas
address = sys.argv[1]
with spark_on_ray("joined", executor_memory="512m", ray_address=address) as spark:
    found["nodes"] = [node["NodeManagerAddress"] for node in ray.nodes()]
    found["answers"] = ask(spark)
    found["module in spark"] = sorted(r["id"] for r in spark.range(3).mapInArrow(mine.doubled, "id long").collect())
    found["module in ray"] = ray.get(ray.remote(mine.double).remote(21))
    found["told"] = error(lambda: pool.start(mine.TellingSpec(), Replicas(), joined=True))
    app = pool.app_name(echo().spec())
    from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_list
    worker = ray._private.worker.global_worker
    state = ray._private.state.state
    kept = [repr(worker.gcs_client.get_all_job_info()), repr(state.actor_table(None)), repr(ray.nodes())]
    for namespace in (None, b"fun", b"serve", b"job", b"session", b"dashboard", b"tracing", b"package"):
        for key in _internal_kv_list(b"", namespace=namespace):
            kept.append(repr(key) + repr(_internal_kv_get(key, namespace=namespace)))
    found["metadata"] = {"texts": len(kept), "name": any("TellingSpec" in text for text in kept),
                         "value": any(os.environ["HF_TOKEN"] in text for text in kept)}
    found["here"] = ray.is_initialized()
ray.is_initialized() or ray.init(address=address, log_to_driver=False, logging_level="ERROR")
from ray import serve
found["after"] = [name for name in serve.status().applications if name == app] == [app]
ray.shutdown()
print(json.dumps(found))
"""
TOKEN = "hf_notarealtokenbutasecret"


@pytest.fixture(scope="module")
def cluster(script: Callable[..., Any], living: Any) -> Iterator[tuple[str, Path]]:
    """A Ray cluster that somebody else started, without a token: its address, and the folder of its session."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    # Short, as Ray's sockets lie in it.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        command = ["ray", "start", "--head", "--block", f"--port={port}", f"--temp-dir={folder}", "--num-cpus=4"]
        command += ["--include-dashboard=false", f"--object-store-memory={100 * 2**20}", "--disable-usage-stats"]
        text = f"import os, sys; os.execv(os.path.join(os.path.dirname(sys.executable), 'ray'), {command!r})"
        program = script(text, HF_TOKEN="")
        deadline = time.monotonic() + 240
        while "runtime started" not in (program.folder / "stdout").read_text():
            assert program.process.poll() is None, program.errors()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield f"127.0.0.1:{port}", Path(folder)
        program.stop()


@pytest.fixture(scope="module")
def joining(cluster: tuple[str, Path], script: Callable[..., Any]) -> Any:
    """A program that joins the cluster."""
    return script(HEAD + JOINED, ("mine.py", SPEC), arguments=[cluster[0]], HF_TOKEN=TOKEN)


@pytest.fixture(scope="module")
def joined(joining: Any) -> dict[str, Any]:
    """What that program saw."""
    found: dict[str, Any] = joining.found(500)
    return found


def test_session_joins_a_cluster_and_leaves_its_engines_there(joined: dict[str, Any]) -> None:
    assert joined["answers"] == ["question 0", "question 1", "question 2"]
    assert joined["after"] is True


def test_modules_of_the_user_reach_the_workers_of_a_joined_cluster(joined: dict[str, Any]) -> None:
    assert (joined["module in spark"], joined["module in ray"]) == ([0, 2, 4], 42)


def test_token_of_the_hub_reaches_the_replicas_and_stands_nowhere(
    joined: dict[str, Any], cluster: tuple[str, Path]
) -> None:
    import hashlib

    assert joined["told"] == f"EngineStartError: told {hashlib.sha256(TOKEN.encode()).hexdigest()}"
    assert joined["metadata"]["name"] is True
    assert joined["metadata"]["value"] is False
    files = [path for path in cluster[1].rglob("*") if path.is_file()]
    assert any(b"platform_plugin" in path.read_bytes() for path in files)
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


LOADING = """
from platform_plugin import LLMPredictor, spark_on_ray
spark = spark_on_ray("loading").start()
stage = LLMPredictor(inputCol="message", engineArgs={"max_model_len": 512, "kv_cache_memory_bytes": 2**28})
stage.transform(spark.range(1).selectExpr("'hello' as message"))
print("it was not stopped")
"""


def engine_cores(program: Any) -> list[psutil.Process]:
    found = []
    for process in program.processes():
        with contextlib.suppress(psutil.Error):  # it may end while it is looked at
            found += [process] if "EngineCore" in " ".join(process.cmdline()) else []
    return found


@pytest.mark.vllm
@pytest.mark.slow
def test_programs_stopped_while_an_engine_loads_leave_no_process(
    script: Callable[..., Any], until: Callable[..., Any]
) -> None:
    pytest.importorskip("vllm", reason="vllm is not installed: the extra `cpu` or `gpu`")
    # Side by side, as most of the time goes to their start.
    programs = {number: script(HEAD + LOADING) for number in (signal.SIGINT, signal.SIGTERM)}
    cores = []
    for number, program in programs.items():
        cores += until(functools.partial(engine_cores, program), 300)
        assert len(program.processes()) > 5
        program.signal(number)
    for program in programs.values():
        assert "it was not stopped" not in program.finish(120)
        until(lambda program=program: not program.processes(), 120)
    # An orphan's end is taken note of by process 1, which in a container may not care to.
    assert all(not core.is_running() or core.status() == psutil.STATUS_ZOMBIE for core in cores)
