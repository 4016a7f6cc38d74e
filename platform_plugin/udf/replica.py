"""One actor of a UDF: runs PySpark's own worker code on the loads that Spark tasks send.

What converts values, checks lengths and words errors is PySpark's: the functions that its worker made of the UDF, and
its serializers, arrive whole and are run on a whole stream. Only whose turn it is, is decided here.
"""

from __future__ import annotations

import io
import time
from collections import OrderedDict
from typing import Any

import pyarrow as pa

from platform_plugin.udf.counting import flush
from platform_plugin.udf.failure import Failure
from platform_plugin.udf.framing import Load
from platform_plugin.udf.packing import loads, unpack
from platform_plugin.udf.partition import Partition
from platform_plugin.udf.rebatching import rebatched
from platform_plugin.udf.task import Task

NODES_KEPT = 32
"""Forms of a UDF (its arguments, the time zone and the like) that an actor keeps ready."""

MORE, WAITING, ENDED, FAILED, LOST = "more", "waiting", "ended", "failed", "lost"
"""What a reply says of a partition: it has more to give at once, waits for rows, is done, raised, is not known here."""


class UdfReplica:
    """Runs one UDF. Runs on: Ray actor, one call at a time, in the order of each caller."""

    def __init__(self) -> None:
        # What PySpark's worker imports, paid for before the first rows come.
        import pandas  # noqa: F401
        import pyspark.worker  # noqa: F401

        self._nodes: OrderedDict[str, tuple[Any, Any]] = OrderedDict()
        self._partitions: dict[str, Partition] = {}
        # Memory for answers, used again: the next call begins when the last one's answer is in Ray's store.
        self._outputs = [Load(), Load()]

    def ready(self) -> tuple[str, int]:
        """Return the node and the process that this is."""
        import os

        import ray

        return ray.get_runtime_context().get_node_id(), os.getpid()

    def run(
        self, key: str, node: pa.Buffer, task: Task, load: pa.Buffer, batch_rows: int | None
    ) -> tuple[str, Any, float]:
        """Evaluate a load that depends on no other; return FAILED or ENDED, the stream or Failure, and seconds.

        Args:
            key, node: what PySpark's worker made of the UDF in the task, and its digest.
        """
        began = time.monotonic()
        out, self._outputs = self._outputs[0], self._outputs[::-1]
        out.clear()
        try:
            task.enter()
            function, serializer = self._node(key, node)
            stream = _readable(serializer, rebatched(load, batch_rows) if batch_rows else load)
            serializer.dump_stream(function(task.split, serializer.load_stream(stream)), out)
        except BaseException as exc:
            return FAILED, Failure.of(exc, __file__), time.monotonic() - began
        finally:
            flush()
        return ENDED, out.buffer(), time.monotonic() - began

    def open(self, name: str, key: str, node: pa.Buffer, task: Task, batch_rows: int | None) -> tuple[str, Any, float]:
        """Begin a partition, whose loads belong to one run of the function."""
        self._forget_orphans()
        try:
            task.enter()
            function, serializer = self._node(key, node)
        except BaseException as exc:
            return FAILED, Failure.of(exc, __file__), 0.0
        outputs, self._outputs = self._outputs, [Load(), Load()]
        self._partitions[name] = Partition(function, serializer, task, batch_rows, outputs)
        return WAITING, None, 0.0

    def step(self, name: str, load: pa.Buffer | None, last: bool) -> tuple[str, Any, float]:
        """Give a partition its next rows, let it run until it wants more, and return what it wrote meanwhile."""
        began = time.monotonic()
        partition = self._partitions.get(name)
        if partition is None:
            return LOST, None, 0.0
        state, out = partition.step(load, last)
        flush()
        if state in (ENDED, FAILED):
            del self._partitions[name]
            self._outputs = partition.outputs
        return state, out, time.monotonic() - began

    def apply(self, packed: bytes, rows: list[dict[str, Any]]) -> tuple[str, Any]:
        """Return FAILED or ENDED, and a Failure or what a packed function of rows returns; Spark takes no part."""
        try:
            return ENDED, unpack(packed, False)(rows)
        except BaseException as exc:
            return FAILED, Failure.of(exc, __file__)

    def close(self, name: str) -> None:
        """Give up a partition whose task needs no more of it."""
        partition = self._partitions.pop(name, None)
        if partition is not None:
            partition.abandon()

    def _forget_orphans(self) -> None:
        for name, partition in list(self._partitions.items()):
            if partition.orphaned():
                self.close(name)

    def _node(self, key: str, node: pa.Buffer) -> tuple[Any, Any]:
        if key not in self._nodes:
            self._nodes[key] = loads(node)
            while len(self._nodes) > NODES_KEPT:
                self._nodes.popitem(last=False)
        self._nodes.move_to_end(key)
        return self._nodes[key]


def _readable(serializer: Any, load: pa.Buffer) -> Any:
    # Arrow streams behind a four-byte integer lie askew in memory: those are copied.
    return io.BytesIO(load) if type(serializer).__name__ == "CogroupUDFSerializer" else pa.BufferReader(load)
