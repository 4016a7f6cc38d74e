"""What a plain Spark session and one of Spark Connect do differently: here, so that nothing else need know.

A Spark Connect session has no JVM in reach: no ``sparkContext``, no ``_jdf``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


def is_remote(spark: SparkSession) -> bool:
    """Return whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def master(spark: SparkSession) -> str:
    """Return the session's master, "local[2]" or "remote"."""
    return "remote" if is_remote(spark) else str(spark.sparkContext.master)


def runs_on_ray(spark: SparkSession) -> bool:
    """Return whether RayDP started the session."""
    return master(spark).startswith("ray")


def parallelism(spark: SparkSession) -> int:
    """Return how many tasks the session runs at once, as far as it says."""
    return 2 if is_remote(spark) else spark.sparkContext.defaultParallelism


def in_thread(spark: SparkSession, function: Callable[[], T]) -> Callable[[], T]:
    """Return `function` for a thread of its own: there Spark's jobs have this thread's pool and group."""
    if is_remote(spark):
        return function
    from pyspark import inheritable_thread_target

    inherited: Callable[[], T] = inheritable_thread_target(function)
    return inherited


def add_modules(spark: SparkSession, archive: Path) -> None:
    """Have Spark's Python workers import from a zip of modules."""
    if is_remote(spark):
        remote: Any = spark
        remote.addArtifacts(str(archive), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(archive))


def plan_text(frame: DataFrame) -> str:
    """Return the plan, in which aliases stand as they were given."""
    any_frame: Any = frame
    if is_remote(frame.sparkSession):
        # As it would be sent: the server's own plan is not to be had once files of the frame are gone.
        return str(any_frame._plan.to_proto(frame.sparkSession.client))
    return str(any_frame._jdf.queryExecution().analyzed().toString())
