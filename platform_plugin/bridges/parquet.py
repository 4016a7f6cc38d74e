"""The bridge by way of parquet files, in a folder that Spark and Ray both reach; for Spark sessions whose executors do
not run on Ray's nodes.

The files of a run lie in a folder of its own below `handOffDir`, until the answers are released or the program ends.
"""

from __future__ import annotations

import atexit
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_plugin.errors import ConfigError, SchemaError, SessionError

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
        self._folder = Path(folder.removeprefix("file://"))

    def check_session(self, spark: SparkSession) -> None:
        """Raise SessionError unless this process is connected to Ray; any SparkSession will do."""
        import ray

        if not ray.is_initialized():
            raise SessionError(
                'handOff="parquet" hands rows to a Ray cluster, and this process is connected to none.\n'
                "Call ray.init(address=...) first, or use the session that spark_on_ray() returns."
            )

    def check(self, schema: StructType) -> None:
        """Raise SchemaError for columns that parquet does not give back as they were."""
        twice = sorted({n for n in schema.names if schema.names.count(n) > 1})
        if twice:
            raise SchemaError(f"columns {twice} stand twice in the frame; rename or drop one of each pair.")
        if not schema.names:
            raise SchemaError("a frame without columns cannot cross to Ray: its rows would be lost.")
        for field in schema.fields:
            bad = _cannot_cross(field.dataType)
            if bad:
                raise SchemaError(
                    f"column {field.name!r} of type {field.dataType.simpleString()} cannot cross to Ray in parquet "
                    f"({bad}); cast it or leave it out."
                )

    @contextmanager
    def to_ray(self, requests: DataFrame) -> Iterator[ray.data.Dataset]:
        """Write the rows, in one Spark action, and read them; the files go when the context is left."""
        import ray
        from pyspark.sql.pandas.types import to_arrow_schema

        self.check(requests.schema)
        path = self._folder / f"requests-{uuid.uuid4().hex[:12]}"
        try:
            with _conf(requests.sparkSession, WRITING):
                requests.write.parquet(f"file://{path}")
            files = [str(p) for p in sorted(path.glob("*.parquet"))]
            schema = to_arrow_schema(requests.schema)
            dataset = ray.data.read_parquet(files) if files else ray.data.from_arrow(schema.empty_table())
            dataset.context.enable_progress_bars = False
            dataset.context.execution_options.preserve_order = True
            dataset = dataset.materialize()
            yield dataset if dataset.count() else ray.data.from_arrow(schema.empty_table())
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def to_spark(self, answers: ray.data.Dataset, schema: StructType, spark: SparkSession) -> DataFrame:
        """Write the dataset and return its rows as a frame of `schema`; see `Bridge.to_spark`."""
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import to_arrow_schema

        target = to_arrow_schema(schema)
        name = f"{ANSWERS}{uuid.uuid4().hex[:12]}"
        path = self._folder / name
        rows = answers.count()
        if not rows:
            return spark.createDataFrame([], schema).alias(name)
        cast = answers.map_batches(
            lambda table: table.select(target.names).cast(target), batch_format="pyarrow", batch_size=None
        )
        cast.context.enable_progress_bars = False
        cast.write_parquet(str(path))
        _written[name] = path
        frame = spark.read.schema(schema).parquet(f"file://{path}").alias(name)
        return frame.select(*[F.col(f"`{f.name}`") for f in schema.fields])

    def release(self, frame: DataFrame) -> None:
        """Delete the answers behind `frame`; evaluating it afterwards fails."""
        plan = frame._jdf.queryExecution().analyzed().toString()
        for name in [n for n in _written if n in plan]:
            shutil.rmtree(_written.pop(name), ignore_errors=True)


BRIDGE = ParquetBridge
_written: dict[str, Path] = {}


@atexit.register
def _delete_all() -> None:
    for path in _written.values():
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _conf(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    before: dict[str, Any] = {key: spark.conf.get(key, None) for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value) if value is not None else spark.conf.unset(key)


def _cannot_cross(kind: DataType) -> str | None:
    from pyspark.sql import types as t

    if isinstance(kind, t.NullType):
        return "parquet has no void"
    if isinstance(kind, t.YearMonthIntervalType | t.DayTimeIntervalType):
        return "an interval comes back as a number"
    if isinstance(kind, t.UserDefinedType):
        return _cannot_cross(kind.sqlType())
    if isinstance(kind, t.ArrayType):
        return _cannot_cross(kind.elementType)
    if isinstance(kind, t.MapType):
        return _cannot_cross(kind.keyType) or _cannot_cross(kind.valueType)
    if isinstance(kind, t.StructType):
        return next((bad for f in kind.fields if (bad := _cannot_cross(f.dataType))), None)
    return None
