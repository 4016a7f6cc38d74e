"""The bridge protocol: how requests cross from Spark to Ray and answers cross back.

To add a bridge, write a file ``bridges/<name>.py`` that defines ``BRIDGE``, a class that satisfies `Bridge`;
``setHandOff("<name>")`` finds it by its file name and the conformance suite tests it.
"""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from platform_plugin.errors import UnknownPluginError, near

if TYPE_CHECKING:
    import ray.data
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Bridge(Protocol):
    """Carries frames between Spark and Ray. Runs on: driver."""

    def check_session(self, spark: SparkSession) -> None:
        """Raise SessionError where this bridge cannot serve the session."""
        ...

    def check(self, schema: StructType) -> None:
        """Raise SchemaError, by column name and type, for what this bridge cannot carry."""
        ...

    def to_ray(self, requests: DataFrame) -> AbstractContextManager[ray.data.Dataset]:
        """Hand the rows to Ray, one Spark action, partition order kept; leaving the context frees what it pinned."""
        ...

    def to_spark(self, answers: ray.data.Dataset, schema: StructType, spark: SparkSession) -> DataFrame:
        """Return the materialized dataset as a DataFrame of exactly `schema`, every field nullable.

        The frame may be evaluated any number of times until `release` is called with it.
        """
        ...

    def release(self, frame: DataFrame) -> None:
        """Drop the answers behind `frame` (one that `to_spark` returned, or one derived from it)."""
        ...


def find_bridges() -> list[str]:
    """Return the names of all bridges, by their file names."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load_bridge(name: str, folder: str | None = None) -> Bridge:
    """Return the bridge `name`; `folder` is where it may keep files. Raises UnknownPluginError with the names found."""
    names = find_bridges()
    if name not in names:
        raise UnknownPluginError(f"handOff={name!r} is not known; found: {', '.join(names)}.{near(name, names)}")
    bridge: Bridge = importlib.import_module(f"{__name__}.{name}").BRIDGE(folder)
    return bridge
