"""Whether a session's Spark workers reach the Ray cluster of this process: a probe task finds out."""

from __future__ import annotations

import logging
import socket
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from platform_plugin import remote, shipping
from platform_plugin.connection import Connection
from platform_plugin.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

TASKS = 16
"""At most so many tasks probe; each runs where Spark puts it, so several executors are seen."""
CONNECT_S = 5.0
_REMEDY = (
    "\nSet handOff=\"parquet\" with handOffDir, a folder that Spark's executors and Ray's workers both reach; or run "
    "Spark on the nodes of the Ray cluster, as the session of spark_on_ray() does."
)
_reached: weakref.WeakKeyDictionary[SparkSession, Connection] = weakref.WeakKeyDictionary()


def check_reach(spark: SparkSession) -> None:
    """Raise ConfigError unless the session's Python workers reach Ray. Runs on: driver, and a few Spark tasks.

    A session that has passed is not probed again. Workers that lack this package are sent it.
    """
    connection = Connection.of_driver()
    if _reached.get(spark) == connection:
        return
    try:
        reasons = _probe(spark, connection)
    except Exception as exc:
        if "No module named 'platform_plugin'" not in str(exc):
            raise _no_worker(exc) from exc
        logger.info("Spark's workers lack this package; it is sent to them")
        remote.add_modules(spark, shipping.archive())
        try:
            reasons = _probe(spark, connection)
        except Exception as again:
            raise _no_worker(again) from again
    if reasons:
        raise ConfigError(f"Spark's workers do not reach Ray at {connection.address}: {reasons[0]}{_REMEDY}")
    _reached[spark] = connection


def _probe(spark: SparkSession, connection: Connection) -> list[str]:
    def probe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"reason": pa.array([reason(connection)], pa.string())})

    tasks = min(remote.parallelism(spark), TASKS)
    found = spark.range(0, tasks, 1, tasks).mapInArrow(probe, "reason string").collect()
    return sorted({row["reason"] for row in found if row["reason"] is not None})


def reason(connection: Connection) -> str | None:
    """Return why this process does not reach Ray, or None where it does. Runs on: Spark executor."""
    host, _, port = connection.address.rpartition(":")
    try:
        # Ray itself tries for a minute where nobody listens.
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        ray = connection.open()
        ray.get_runtime_context().get_node_id()
    except Exception as exc:
        return f"{type(exc).__name__}: {exc}".splitlines()[0]
    return None


def _no_worker(exc: Exception) -> ConfigError:
    lines = [line.strip() for line in str(exc).splitlines() if "Error" in line or "Exception" in line]
    said = next((line for line in reversed(lines) if "No module named" in line or "version" in line), None)
    words = said or (lines[0] if lines else type(exc).__name__)
    return ConfigError(
        f"Spark's Python workers cannot run a task of this package: {words}\n"
        f"They have to be the Python of this process, with its packages: set PYSPARK_PYTHON={sys.executable} (or the "
        f"like on the executors) before the session starts.{_REMEDY}"
    )
