"""What the tests share: one local Spark session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from platform_plugin.jdk import use_java


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session on two cores, in a time zone that is not UTC and has a summer time."""
    use_java()
    # So short a program costs Java's second compiler more than it gives.
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "America/New_York")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URI of one SQLite store for all tests: to make its tables takes seconds. Nothing is set to it."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture(params=["true", "false"], ids=["adaptive", "static"])
def adaptive(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Run the test with adaptive execution and without."""
    spark.conf.set("spark.sql.adaptive.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")
