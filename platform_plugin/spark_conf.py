"""The settings that a session of Spark on Ray starts with, and how they leave the JVM again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platform_plugin.profiles import conf_dir

# RayDP and Spark reach into these packages by reflection; without them the app master dies in its first hand-off.
OPEN_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.math", "java.net", "java.nio"),
    *("java.text", "java.time", "java.util", "java.util.concurrent", "sun.nio.ch", "sun.util.calendar"),
)
ADD_OPENS = " ".join(f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in OPEN_PACKAGES)


def spark_conf(own: Mapping[str, str], *, own_ray: bool) -> dict[str, str]:
    """Return all settings: ``conf/spark-defaults.conf``, then `own`. Runs on: driver.

    `own_ray`: Ray is on this machine, and the session's own.
    """
    conf = dict(_read_defaults(conf_dir() / "spark-defaults.conf"))
    conf["spark.log4j.config.file.name"] = str(conf_dir() / "log4j2.properties")
    if own_ray:
        # On one machine the executors' cores would only keep the engines from being placed.
        conf["spark.ray.raydp_spark_executor.actor.resource.cpu"] = "0"
        # The user's own modules, as this process sees them.
        conf["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(p for p in _import_path() if p)
    conf.update(own)
    for who in ("driver", "executor"):
        key = f"spark.{who}.extraJavaOptions"
        conf[key] = f"{ADD_OPENS} {conf.get(key, '')}".strip()
    conf["spark.ray.raydp_app_master.extraJavaOptions"] = ADD_OPENS
    return conf


def forget(conf: Mapping[str, str]) -> None:
    """Take the settings out of the JVM, which outlives its session and would give them to the next one."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    for key in conf if jvm is not None else ():
        jvm.java.lang.System.clearProperty(key)


def _read_defaults(path: Path) -> list[tuple[str, str]]:
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return [(key, value.strip()) for key, value in pairs]


def _import_path() -> list[str]:
    main = sys.modules.get("__main__")
    home = getattr(main, "__file__", None)
    own = [str(Path(home).resolve().parent)] if home else [str(Path.cwd())]
    return [*own, *(p for p in sys.path if p and "site-packages" not in p and Path(p).is_dir())]
