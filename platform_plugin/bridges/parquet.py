"""The bridge by way of parquet files, in a folder that Spark and Ray both reach; for Spark sessions whose executors do
not run on Ray's nodes.

The files of a run lie in a folder of its own below `handOffDir`, until the answers are released or the program ends.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_plugin import local_ray, remote
from platform_plugin.crossing import arrow_schema, check_columns, within
from platform_plugin.errors import ConfigError, HandOffError

if TYPE_CHECKING:
    import ray.data
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

ANSWERS = "__pp_files_"
# What Spark must write so that Arrow reads the same values: no INT96, no refusal of days before 1900.
WRITING = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


class ParquetBridge:
    """Spark -> files -> Ray -> files -> Spark. Runs on: driver."""

    def __init__(self, folder: str | None = None) -> None:
        if not folder:
            raise ConfigError(
                "handOff=\"parquet\" needs handOffDir: a folder that Spark's executors and Ray's workers both reach."
            )
        if re.match(r"(?!file:)[a-zA-Z][a-zA-Z0-9+.-]+:", folder):
            raise ConfigError(
                f"handOffDir={folder!r} is a URI; wanted the path of a folder that is mounted where Spark's executors, "
                "Ray's workers and this program run."
            )
        self._folder = Path(folder.removeprefix("file://").removeprefix("file:")).absolute()

    def check_session(self, spark: SparkSession) -> None:
        """Raise ConfigError unless the folder is here and takes files; any session will do. Connects to Ray."""
        if not self._folder.is_dir() or not os.access(self._folder, os.W_OK | os.X_OK):
            raise ConfigError(
                f"handOffDir={str(self._folder)!r} is no folder that this program can write to; "
                "make it, or name another."
            )
        local_ray.connect()

    def check(self, schema: StructType) -> None:
        """Raise SchemaError for columns that parquet does not give back as they were."""
        check_columns(schema, no_parquet, "cannot cross to Ray in parquet")

    @contextmanager
    def to_ray(self, requests: DataFrame) -> Iterator[ray.data.Dataset]:
        """Write the rows, in one Spark action, and read them; the files go when the context is left."""
        import ray

        self.check(requests.schema)
        path = self._folder / f"requests-{uuid.uuid4().hex[:12]}"
        spark = requests.sparkSession
        try:
            with _settings(spark, WRITING) if _times(requests.schema) else nullcontext():
                requests.write.parquet(f"file://{path}")
            files = [str(p) for p in sorted(path.glob("*.parquet"))]
            # Spark writes a file for a frame without rows too.
            if not files:
                raise HandOffError(
                    f"Spark wrote the requests into {path}, and nothing came here: its executors do not reach that "
                    "folder.\nSet handOffDir to one that Spark's executors, Ray's workers and this program share."
                )
            dataset = ray.data.read_parquet(files)
            dataset.context.enable_progress_bars = False
            dataset.context.execution_options.preserve_order = True
            dataset = dataset.materialize()
            empty = arrow_schema(requests.schema).empty_table()
            yield dataset if dataset.count() else ray.data.from_arrow(empty)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def to_spark(self, answers: ray.data.Dataset, schema: StructType, spark: SparkSession) -> DataFrame:
        """Write the dataset and return its rows as a frame of `schema`; see `Bridge.to_spark`."""
        from pyspark.sql.types import StructField, StructType

        schema = StructType([StructField(field.name, field.dataType) for field in schema.fields])
        target = arrow_schema(schema)
        name = f"{ANSWERS}{uuid.uuid4().hex[:12]}"
        path = self._folder / name
        if not answers.count():
            return spark.createDataFrame([], schema).alias(name)
        cast = answers.map_batches(
            lambda table: table.select(target.names).cast(target), batch_format="pyarrow", batch_size=None
        )
        cast.context.enable_progress_bars = False
        _written[name] = path
        cast.write_parquet(str(path))
        return spark.read.schema(schema).parquet(f"file://{path}").alias(name)

    def release(self, frame: DataFrame) -> None:
        """Delete the answers behind `frame`; evaluating it afterwards fails."""
        plan = remote.plan_text(frame) if _written else ""
        for name in [n for n in _written if n in plan]:
            shutil.rmtree(_written.pop(name), ignore_errors=True)


BRIDGE = ParquetBridge
_written: dict[str, Path] = {}
_lock = threading.Lock()


@atexit.register
def _delete_all() -> None:
    for path in _written.values():
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Set the session's settings for one write; two threads write one after the other."""
    with _lock:
        before: dict[str, Any] = {key: spark.conf.get(key, None) for key in wanted}
        for key, value in wanted.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                spark.conf.set(key, value) if value is not None else spark.conf.unset(key)


def no_parquet(kind: DataType) -> str | None:
    """Return why a type does not come back from parquet as it was."""
    from pyspark.sql import types as t

    if isinstance(kind, t.NullType):
        return "parquet has no void"
    if isinstance(kind, t.YearMonthIntervalType | t.DayTimeIntervalType):
        return "an interval comes back as a number"
    return None


def _times(schema: StructType) -> bool:
    from pyspark.sql import types as t

    def found(kind: DataType) -> str | None:
        return "" if not isinstance(kind, t.DateType | t.TimestampType | t.TimestampNTZType) else kind.typeName()

    return bool(within(schema, found))
