"""Spark on Ray: the session whose frames an LLM stage can hand to Ray.

Everything that makes RayDP, JDK 17, Ray's workers and Spark's Python workers agree stands here and nowhere else.
Engines do not belong here (see `pool`), nor does the hand-off itself (see `bridges`).
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from platform_plugin import local_ray, pool, shipping, spark_conf
from platform_plugin.connection import use_token
from platform_plugin.errors import SessionError
from platform_plugin.jdk import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

ENVIRONMENT = {
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_DRIVER_PYTHON": sys.executable,
    **local_ray.ENVIRONMENT,
}

_current: SparkOnRay | None = None


def joined() -> bool:
    """Return whether Ray is one that this process joined; it sees nothing of our environment, and may grow."""
    return not local_ray.started() and (_current is None or _current.joined)


def spark_on_ray(
    app_name: str = "platform-plugin",
    executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "1g",
    conf: Mapping[str, str] | None = None,
    ray_address: str | None = None,
) -> SparkOnRay:
    """Return a session of Spark on Ray: a context manager, or with ``start()`` and ``stop()`` in a notebook.

    Runs on: driver. Starts Ray on this machine, or joins the cluster at `ray_address` ("auto", "host:port"), then
    Spark on it through RayDP. What it started it stops, also after an exception.

    Args:
        app_name: shown in Spark's and Ray's pages.
        executors: number of Spark executors, each a Ray actor.
        executor_cores: cores of each.
        executor_memory: heap of each, as Spark writes it ("4g").
        conf: further Spark settings; they win over ``conf/spark-defaults.conf``.
        ray_address: the Ray cluster to join; None starts one here (or uses the one this process is connected to).

    Raises:
        SessionError: another SparkSession is active, or Ray or Spark does not start.
        MissingDependencyError: no JDK 17.

    Example:
        with spark_on_ray("nightly", executors=2) as spark:
            predictions = pipeline.transform(spark.table("messages"))
    """
    return SparkOnRay(app_name, executors, executor_cores, executor_memory, dict(conf or {}), ray_address)


class SparkOnRay:
    """A session of Spark on Ray; made by `spark_on_ray`. One at a time in a process."""

    def __init__(
        self,
        app_name: str,
        executors: int,
        executor_cores: int,
        executor_memory: str,
        conf: dict[str, str],
        ray_address: str | None,
    ) -> None:
        self._app_name = app_name
        self._executors = executors
        self._executor_cores = executor_cores
        self._executor_memory = executor_memory
        self._conf = conf
        self._ray_address = ray_address
        self._connected = False
        self._started_ray = False
        self._environment: dict[str, str | None] = {}
        self.spark: SparkSession | None = None

    @property
    def joined(self) -> bool:
        """Whether Ray ran before this session, and so outlives it, with the engines on it."""
        return not self._started_ray

    def __enter__(self) -> SparkSession:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> SparkSession:
        """Start Ray and Spark and return the SparkSession. In a running session: return it again."""
        global _current
        if self.spark is not None:
            return self.spark
        _check_no_other_session()
        use_java()
        # A Ray that a stage started for a session without one: it knows nothing of executors, and its environment,
        # which goes with it, must not be taken for the user's.
        local_ray.stop()
        self._set_environment()
        _current = self
        atexit.register(self.stop)
        try:
            self._start_ray()
            self.spark = self._start_spark()
        except BaseException as exc:
            self.stop()
            if isinstance(exc, Exception) and not isinstance(exc, SessionError):
                raise SessionError(
                    f"Spark on Ray did not start: {type(exc).__name__}: {exc}\n"
                    "Run `platform-plugin doctor` to see what is missing on this machine."
                ) from exc
            raise
        return self.spark

    def stop(self) -> None:
        """Stop what `start` started: engines (where Ray is ours), Spark, Ray. Safe to call twice."""
        global _current
        import ray

        if _current is not self:
            return
        import raydp

        try:
            try:
                if ray.is_initialized():
                    pool.shut_down(joined=self.joined)
            finally:
                raydp.stop_spark()
                spark_conf.forget(self._spark_conf())
        except Exception:
            logger.warning("the session did not stop cleanly", exc_info=True)
        finally:
            self.spark = None
            if self._connected:
                ray.shutdown()
                self._connected = self._started_ray = False
            self._restore_environment()
            _current = None
            atexit.unregister(self.stop)

    def _start_ray(self) -> None:
        import ray

        if ray.is_initialized():
            if self._ray_address is not None:
                logger.warning("Ray is already connected; ray_address=%s is not used", self._ray_address)
        else:
            joined = self._ray_address is not None
            if joined:
                use_token()
            cpus = max(os.cpu_count() or 1, self._executors * self._executor_cores + 2)
            ray.init(
                address=self._ray_address,
                # Only logical: on one machine Spark's and the engines' shares overlap anyway.
                num_cpus=None if joined else cpus,
                include_dashboard=None if joined else False,
                runtime_env=shipping.runtime_env() if joined else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=True,
            )
            self._connected, self._started_ray = True, not joined
        # Ray turned token authentication on in ray.init; what starts from here on must know.
        self._environment.setdefault("RAY_AUTH_MODE", os.environ.get("RAY_AUTH_MODE"))

    def _start_spark(self) -> SparkSession:
        import raydp

        spark: SparkSession = raydp.init_spark(
            self._app_name,
            self._executors,
            self._executor_cores,
            self._executor_memory,
            configs=self._spark_conf(),
        )
        if not self._started_ray and self._ray_address is not None:
            spark.sparkContext.addPyFile(str(shipping.archive()))
        return spark

    def _spark_conf(self) -> dict[str, str]:
        return spark_conf.spark_conf(self._conf, own_ray=self._started_ray)

    def _set_environment(self) -> None:
        wanted = dict(ENVIRONMENT)
        if self._ray_address is None:
            wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        for name, value in wanted.items():
            self._environment[name] = os.environ.get(name)
            if name.startswith("PYSPARK") or name not in os.environ:
                os.environ[name] = value

    def _restore_environment(self) -> None:
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment = {}


def _check_no_other_session() -> None:
    from py4j.java_gateway import JavaClass
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _current is not None:
        raise SessionError("a Spark-on-Ray session is running in this process already; stop() it first.")
    active: Any = SparkContext._active_spark_context
    if SparkSession.getActiveSession() is not None or active is not None:
        raise SessionError(
            f"a SparkSession is active in this process (master {active.master if active else 'remote'}), and RayDP "
            "did not start it: Spark cannot move to Ray while it runs.\n"
            "Call spark.stop() first and use the session that spark_on_ray() returns."
        )
    gateway: Any = SparkContext._gateway
    if gateway is not None and not isinstance(gateway.jvm.org.apache.spark.deploy.raydp.RayAppMaster, JavaClass):
        # The JVM of a stopped plain session lacks RayDP's classes, and a JVM's classpath is fixed: start anew.
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait(timeout=10)
        SparkContext._gateway = None
        SparkContext._jvm = None
