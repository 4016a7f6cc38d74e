"""Frames in files: read and written in four formats; what is written appears whole or not at all.

Where a job's rows come from and what becomes of them is the command's business (`predict`), not this file's.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from platform_plugin.errors import ConfigError, MissingDependencyError
from platform_plugin.schema import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "delta", "csv", "json")

# Spark's own defaults would cut the spaces around a text, and mark a quote with a backslash, as nobody else does.
CSV = {"header": True, "escape": '"', "ignoreLeadingWhiteSpace": False, "ignoreTrailingWhiteSpace": False}


def settings(formats: set[str], jars: str | None) -> dict[str, str]:
    """Return what a session needs for these formats: Delta's jars, of `jars` or as Maven has them, and its names.

    Raises:
        MissingDependencyError: Delta is wanted, and delta-spark is not installed.
    """
    made = {"spark.jars": jars} if jars else {}
    if "delta" not in formats:
        return made
    try:
        version = importlib.metadata.version("delta-spark")
    except importlib.metadata.PackageNotFoundError as exc:
        raise MissingDependencyError(
            'the format delta needs the package delta-spark: pip install "platform-plugin[delta]"'
        ) from exc
    if not jars:
        made["spark.jars.packages"] = f"io.delta:delta-spark_2.12:{version}"
    return made | {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def read(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Return the rows at `path`. Types of CSV and JSON are found by Spark, which reads them for it.

    Raises:
        ConfigError: nothing there, or not of this format; in Spark's words.
    """
    try:
        if kind == "csv":
            return spark.read.csv(path, inferSchema=True, multiLine=True, **CSV)  # type: ignore[arg-type]
        return spark.read.format(kind).load(path)
    except AnalysisException as exc:
        raise ConfigError(f"{path!r} cannot be read as {kind}: {str(exc).splitlines()[0]}") from exc


def write(frame: DataFrame, path: str, kind: str, *, overwrite: bool) -> None:
    """Write the rows to `path`, which readers see with all of them or not at all.

    A folder is written beside it and then renamed, which a file system does at once; an object store copies, and may
    be seen halfway. Delta does it by its log.

    Raises:
        ConfigError: it is there already, and `overwrite` is not set.
    """
    if not overwrite:
        check_absent(frame.sparkSession, path)
    if kind == "delta":
        frame.write.format(kind).mode("overwrite" if overwrite else "error").option("overwriteSchema", "true").save(
            path
        )
        return
    with _beside(frame.sparkSession, path) as partial:
        if kind == "csv":
            flat(frame).write.csv(partial, **CSV)  # type: ignore[arg-type]
        else:
            frame.write.format(kind).save(partial)


def rehearse(spark: SparkSession, schema: StructType, path: str, kind: str) -> None:
    """Write no rows of this schema beside `path`, and remove them: what refuses them does so before the work.

    Raises:
        ConfigError: the folder cannot be written, or the format does not take a column; in Spark's words.
    """
    empty = spark.createDataFrame([], schema)
    system, place = _place(spark, path)
    trial = _sibling(spark, place, "trial")
    try:
        (flat(empty) if kind == "csv" else empty).write.format(kind).save(trial.toString())
    except Exception as exc:
        words = str(exc).strip().splitlines()[0]
        raise ConfigError(f"rows of this pipeline cannot be written to {path!r} as {kind}: {words}") from exc
    finally:
        with contextlib.suppress(Exception):
            system.delete(trial, True)


def check_absent(spark: SparkSession, path: str) -> None:
    """Raise ConfigError where something is at `path`."""
    system, place = _place(spark, path)
    if system.exists(place):
        raise ConfigError(f"output {path!r} is there already; name another, or pass --overwrite to replace it.")


def flat(frame: DataFrame) -> DataFrame:
    """Return the frame with nested columns as JSON texts and binary ones in base64, as CSV can hold them."""
    made = []
    for field in frame.schema:
        value = column(field.name)
        if isinstance(field.dataType, StructType | ArrayType | MapType):
            value = F.to_json(value)
        elif isinstance(field.dataType, BinaryType):
            value = F.base64(value)
        made.append(value.alias(field.name))
    return frame.select(*made)


@contextmanager
def _beside(spark: SparkSession, path: str) -> Iterator[str]:
    """Yield a path beside `path`, and put what was written there in its place; on an error it is removed."""
    system, place = _place(spark, path)
    partial, replaced = (_sibling(spark, place, word) for word in ("partial", "replaced"))
    try:
        yield partial.toString()
        if system.exists(place):
            _rename(system, place, replaced)
        try:
            _rename(system, partial, place)
        except BaseException:
            if system.exists(replaced):
                _rename(system, replaced, place)
            raise
    finally:
        for left in (partial, replaced):
            with contextlib.suppress(Exception):
                system.delete(left, True)


def _sibling(spark: SparkSession, place: Any, word: str) -> Any:
    """Return a path beside `place` that readers of a folder's files leave out, as it begins with "_"."""
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(place.getParent(), f"_{word}-{uuid.uuid4().hex[:8]}-{place.getName()}")


def _rename(system: Any, source: Any, target: Any) -> None:
    if not system.rename(source, target):
        raise OSError(f"{source.toString()} could not be renamed to {target.toString()}")


def _place(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the Hadoop file system of a path, and the path in it."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return system, system.makeQualified(place)
