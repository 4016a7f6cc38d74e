"""What the integration tests share: one session of Spark on Ray, one engine of each kind, scripts of their own."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
from pyspark.ml.linalg import DenseMatrix, DenseVector, MatrixUDT, SparseVector, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from integration_tests import postgres
from integration_tests.tracking_server import Server, tracking_server
from platform_plugin.errors import MissingDependencyError
from platform_plugin.jdk import use_java
from platform_plugin.session import ENVIRONMENT, spark_on_ray
from platform_plugin.stages import LLMPredictor

TAG = "PLATFORM_PLUGIN_TEST_TAG"
# A program of a minute costs Java's second compiler more than it gives: without it the JVMs take half the CPU time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
_UTC = datetime.UTC


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where every test was skipped: that proves nothing."""
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and skipped >= session.testscollected:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of all tests: one executor of two cores, in a time zone that is not UTC."""
    try:
        use_java()
    except MissingDependencyError as exc:
        pytest.skip(str(exc))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLATFORM_PLUGIN_PROGRESS", "off")
        conf = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "2"}
        conf["spark.task.maxFailures"] = "2"  # many tests fail a task on purpose
        with spark_on_ray("integration-tests", executors=1, executor_cores=2, conf=conf) as session:
            session.sparkContext.setLogLevel("OFF")
            yield session


@pytest.fixture
def echo() -> Callable[..., LLMPredictor]:
    """Return a maker of stages on one echo engine, which takes 63 words and fails on "unanswerable"."""

    def make(**params: Any) -> LLMPredictor:
        args = {"max_model_len": 64, "fail_on": "unanswerable"}
        source = {} if {"promptTemplate", "messagesCol"} & set(params) else {"inputCol": "message"}
        return LLMPredictor(**{"engine": "echo", "engineArgs": args, **source, **params})

    return make


TYPES: dict[str, tuple[t.DataType, Any, Any]] = {
    "flag": (t.BooleanType(), True, False),
    "tiny": (t.ByteType(), -128, 127),
    "small": (t.ShortType(), -(2**15), 2**15 - 1),
    "whole": (t.IntegerType(), -(2**31), 2**31 - 1),
    "beyond_double": (t.LongType(), 2**53 + 1, -(2**63)),
    "single": (t.FloatType(), 1.5, float("-inf")),
    "real": (t.DoubleType(), 0.1, float("nan")),
    "money": (t.DecimalType(10, 2), Decimal("12345678.90"), Decimal("-0.01")),
    "widest": (t.DecimalType(38, 18), Decimal("12345678901234567890.123456789012345678"), Decimal("1E-18")),
    "text": (t.StringType(), 'Ünïcode 🚕 "quoted"\n', ""),
    "raw": (t.BinaryType(), bytearray(b"\x00\xff"), bytearray()),
    "day": (t.DateType(), datetime.date(1905, 1, 1), datetime.date(2024, 2, 29)),
    # Half past one came twice that night in New York.
    "moment": (
        t.TimestampType(),
        datetime.datetime(2024, 11, 3, 6, 30, 0, 123456, _UTC),
        datetime.datetime(1905, 6, 1, 12, tzinfo=_UTC),
    ),
    "wall_clock": (
        t.TimestampNTZType(),
        datetime.datetime(2024, 3, 10, 2, 30),
        datetime.datetime(1905, 1, 1, 0, 0, 0, 1),
    ),
    "span": (t.DayTimeIntervalType(), datetime.timedelta(days=-3, microseconds=7), datetime.timedelta(0)),
    "nothing": (t.NullType(), None, None),
    "numbers": (t.ArrayType(t.LongType()), [2**53 + 1, None], []),
    "pairs": (t.MapType(t.StringType(), t.LongType()), {"a": 2**53 + 1, "b": None}, {}),
    "nested": (
        t.StructType().add("x", t.ArrayType(t.StructType().add("y", t.DecimalType(5, 1)))),
        ([(Decimal("1.5"),), None],),
        (None,),
    ),
    "vector": (VectorUDT(), DenseVector([1.0, -0.0]), SparseVector(5, {1: 2.5})),
    "matrix": (MatrixUDT(), DenseMatrix(2, 1, [1.0, 2.0]), DenseMatrix(1, 1, [0.5])),
}
"""Column -> type and two values; every frame of them has a row of nulls besides."""


@pytest.fixture(scope="session")
def typed(spark: SparkSession) -> DataFrame:
    """A frame with a column of every type that crosses to Ray, in two partitions and two empty ones."""
    schema = t.StructType([t.StructField("id", t.LongType(), nullable=False)])
    for name, (kind, _, _) in TYPES.items():
        schema.add(name, kind)
    first, second = ([values[i] for values in TYPES.values()] for i in (1, 2))
    rows = [(0, *first), (1, *second), (2, *[None] * len(TYPES))]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 4), schema)


@pytest.fixture(scope="session")
def by_id() -> Callable[[DataFrame], dict[int, dict[str, str]]]:
    """Return the rows by their column `id`, each value as its repr: exact in value and type, NaN equal to NaN."""

    def read(frame: DataFrame) -> dict[int, dict[str, str]]:
        return {row["id"]: {name: repr(row[name]) for name in frame.columns} for row in frame.collect()}

    return read


@pytest.fixture
def until() -> Callable[..., Any]:
    """Return ``until(look, seconds)``: looks again until it finds something, and returns that."""

    def wait(look: Callable[[], Any], seconds: float = 30) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, f"still {found!r} after {seconds} s"
            time.sleep(0.1)
        return found

    return wait


@pytest.fixture(scope="session")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with contextlib.ExitStack() as stack:
        # Stricter than SQLite: lengths, types and characters that it lets pass are errors here.
        store = stack.enter_context(postgres.postgres()) if postgres.found() else None
        yield stack.enter_context(tracking_server(tmp_path_factory.mktemp("mlflow"), store))


@pytest.fixture(scope="module")
def server(_server: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A real MLflow server, and in it an experiment of this module."""
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(_server.uri)
    mlflow.set_experiment(request.module.__name__)
    yield _server
    mlflow.set_tracking_uri(before)
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


@dataclass
class Script:
    """A program of its own, whose processes are known by a tag in their environment."""

    process: subprocess.Popen[str]
    tag: str
    folder: Path
    seen: set[int] = field(default_factory=set)

    def processes(self) -> list[psutil.Process]:
        """Return what lives of it: the program, Spark, Ray, engines."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(TAG) == self.tag and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def finish(self, seconds: float) -> str:
        """Wait for the end, however it comes, and return what was printed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s:\n{self.errors()}")
        return (self.folder / "stdout").read_text()

    def found(self, seconds: float) -> dict[str, Any]:
        """Wait for a good end and return the JSON object of the last line."""
        printed = self.finish(seconds)
        assert self.process.returncode == 0, self.errors()
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    def signal(self, number: int) -> None:
        """Send a signal: SIGINT as a terminal does, to the whole group, another to the program alone."""
        if number == signal.SIGINT:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)

    def stop(self) -> None:
        """Kill what is left of it."""
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)

    def errors(self) -> str:
        """Return the end of what it wrote to stderr."""
        return (self.folder / "stderr").read_text()[-6000:]


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Script]]:
    """Return a starter of programs; what is left of them at the end is killed."""
    started: list[Script] = []

    def start(text: str, *modules: tuple[str, str], arguments: list[str] | None = None, **env: str) -> Script:
        folder = tmp_path_factory.mktemp("script")
        for name, source in (("main.py", text), *modules):
            (folder / name).write_text(textwrap.dedent(source))
        tag = uuid.uuid4().hex
        # Process titles must not be written over the environment, where the tag is looked for.
        own = {TAG: tag, "SPT_NOENV": "1", "PLATFORM_PLUGIN_PROGRESS": "off"}
        # Nor what the session of the other tests has set.
        inherited = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
        with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, str(folder / "main.py"), *(arguments or [])],
                cwd=folder,
                env={**inherited, **own, **env},
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        started.append(Script(process, tag, folder))
        return started[-1]

    yield start
    for one in started:
        one.stop()
