"""The bridge of a RayDP session: Arrow tables through the object store of the node that a Spark task runs on.

Both directions are Spark tasks that talk to Ray actors. RayDP's own ``from_spark`` is not used: it persists and
counts the frame, copies each partition through the executor's heap, and fails for the rest of the session after one
executor restart; its ``to_spark`` goes through pandas (maps, nullable integers and empty frames are lost).
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin import remote
from platform_plugin.connection import Connection
from platform_plugin.crossing import arrow_schema, check_columns, no_arrow
from platform_plugin.errors import HandOffError, SessionError
from platform_plugin.keeper import LOST, keeper

if TYPE_CHECKING:
    import ray.data
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

BLOCK_BYTES = 16 * 2**20
TASK_BYTES = 64 * 2**20
ROWS_PER_BATCH = 10_000
ANSWERS = "__pp_answers_"


class RaydpBridge:
    """Spark -> Ray -> Spark by way of actors; for sessions whose executors run on Ray's nodes. Runs on: driver."""

    def __init__(self, folder: str | None = None) -> None:
        """Take no notice of `folder`: nothing is kept in files."""

    def check_session(self, spark: SparkSession) -> None:
        """Raise SessionError unless the session runs on Ray."""
        import ray

        context: Any = getattr(spark, "_sc", None)
        if context is None or not str(context.master).startswith("ray") or not ray.is_initialized():
            raise SessionError(
                f"this SparkSession (master {context.master if context else 'remote'}) does not run on Ray, so its "
                "rows cannot be handed to an engine.\n"
                "Start it with `with spark_on_ray(...) as spark:` from platform_plugin, after the other session was "
                'stopped; or leave handOff at "auto".'
            )

    def check(self, schema: StructType) -> None:
        """Raise SchemaError for columns that cannot cross."""
        check_columns(schema, no_arrow)

    @contextmanager
    def to_ray(self, requests: DataFrame) -> Iterator[ray.data.Dataset]:
        """Push the rows to Ray in one Spark action, in the order of the partitions."""
        import ray
        from pyspark.sql.pandas.types import to_arrow_schema

        self.check(requests.schema)
        connection = Connection.of_driver()
        nodes = [
            n["NodeID"]
            for n in ray.nodes()  # type: ignore[no-untyped-call]
            if n["Alive"]
        ]
        run = uuid.uuid4().hex[:12]
        keepers = {node: keeper(node) for node in nodes}
        names = {node: name for node, (name, _) in keepers.items()}
        try:
            pushed = requests.mapInArrow(
                _pusher(connection, run, names), "node string, token string, rows bigint"
            ).collect()
            refs: dict[str, Any] = {}
            for node, (_, actor) in keepers.items():
                tokens = [r.token for r in pushed if r.node == node]
                if tokens:
                    refs.update(ray.get(actor.take.remote(run, tokens)))
            if any(r.token not in refs for r in pushed):
                raise HandOffError(LOST)
            blocks = [refs[r.token] for r in pushed]
            if not blocks:
                blocks = [ray.put(to_arrow_schema(requests.schema).empty_table())]
            yield ray.data.from_arrow_refs(blocks)
        finally:
            for _, actor in keepers.values():
                actor.drop.remote(run)

    def to_spark(self, answers: ray.data.Dataset, schema: StructType, spark: SparkSession) -> DataFrame:
        """Return the dataset's rows as a frame of `schema`; see `Bridge.to_spark`."""
        import ray
        from pyspark.sql.types import StructField, StructType

        schema = StructType([StructField(field.name, field.dataType) for field in schema.fields])
        connection = Connection.of_driver()
        name = f"{ANSWERS}{uuid.uuid4().hex[:12]}"
        place, actor = keeper(ray.get_runtime_context().get_node_id())
        blocks = ray.get(actor.hold.remote(name, answers.to_arrow_refs()))
        _held[name] = actor
        if not blocks:
            return spark.createDataFrame([], schema).alias(name)
        # A Spark task costs a tenth of a second before its first row: no more of them than there is work for.
        wanted = math.ceil((answers.size_bytes() or 0) / TASK_BYTES)
        tasks = min(blocks, max(wanted, spark.sparkContext.defaultParallelism))
        index = spark.range(0, blocks, 1, tasks)
        return index.mapInArrow(_fetcher(connection, place, name, schema), schema).alias(name)

    def release(self, frame: DataFrame) -> None:
        """Drop the answers behind `frame`; evaluating it afterwards fails."""
        import ray

        plan = remote.plan_text(frame) if _held else ""
        for name in [n for n in _held if n in plan]:
            ray.get(_held.pop(name).drop.remote(name))


BRIDGE = RaydpBridge
_held: dict[str, Any] = {}


def _pusher(connection: Connection, run: str, names: dict[str, str]) -> Any:
    def push(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on: Spark executor. Sends blocks of about 16 MB and yields one receipt a block."""
        ray = connection.open()
        node = ray.get_runtime_context().get_node_id()
        if node not in names:
            raise HandOffError(
                f"a Spark executor runs on node {node}, which joined Ray after the hand-off began; run it again."
            )
        actor = ray.get_actor(names[node])

        def send(block: list[pa.RecordBatch]) -> pa.RecordBatch:
            table, token = _owned(pa.Table.from_batches(block)), uuid.uuid4().hex
            ray.get(actor.push.remote(run, token, table))
            return pa.RecordBatch.from_pydict({"node": [node], "token": [token], "rows": [table.num_rows]})

        block: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows:
                block.append(batch)
                size += batch.nbytes
            if size >= BLOCK_BYTES:
                yield send(block)
                block, size = [], 0
        if block:
            yield send(block)

    return push


def _owned(table: pa.Table) -> pa.Table:
    """Return a table that Ray can pickle: what the JVM sends of a nested column may lack a buffer of an empty part."""
    if not any(pa.types.is_nested(field.type) for field in table.schema):
        return table
    return table.take(pa.array(range(table.num_rows), pa.int64()))


def _fetcher(connection: Connection, place: str, name: str, schema: StructType) -> Any:
    target = arrow_schema(schema)

    def fetch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs on: Spark executor. Yields the blocks whose numbers come in."""
        ray = connection.open()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                try:
                    found = ray.get(ray.get_actor(place).get.remote(name, index))
                except ValueError:  # no such actor
                    found = None
                if found is None:
                    raise HandOffError(
                        "the answers of this frame were released, or what held them has ended, a session or a process; "
                        "run transform again, or write the frame before you release it."
                    )
                block = ray.get(found[0])
                # A block without rows may come without a schema.
                if block.num_rows:
                    yield from (block.select(target.names).cast(target).to_batches(max_chunksize=ROWS_PER_BATCH))

    return fetch
