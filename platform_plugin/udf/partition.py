"""One partition of an iterator function on an actor: a thread that is fed and drained step by step.

An iterator function pulls its rows when it wants them and yields when it likes, so it needs a thread of its own. The
actor's main thread waits while that one runs: user code is never run at twice in a process, as in PySpark's worker.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from typing import Any

import pyarrow as pa

from platform_plugin.udf.failure import Failure
from platform_plugin.udf.framing import END_OF_ARROW, Load, batches
from platform_plugin.udf.rebatching import rebatched
from platform_plugin.udf.task import Task, lives

MOST_KEPT = 16 * 2**20
"""Bytes of output that wait to be fetched before the function has to wait."""
MOST_LENT = 64 * 2**20
"""Bytes of loads in Ray's store that may be held; what a function reads beyond is copied, and its load is let go."""
_WORTH_LENDING = 2**16
FORGOTTEN_S = 3600.0


class _AbandonedError(BaseException):
    """Ends the thread of a partition that nobody reads any more."""


class Partition:
    """Runs one iterator function over one partition. Runs on: Ray actor.

    Args:
        outputs: two, used in turns: one is written to while the other is on its way; memory that was used before.
    """

    def __init__(
        self,
        function: Any,
        serializer: Any,
        task: Task,
        batch_rows: int | None = None,
        outputs: list[Load] | None = None,
    ) -> None:
        self._function = function
        self._serializer = serializer
        self._task = task
        self._batch_rows = batch_rows
        self._begun = False
        self._changed = threading.Condition()
        self._input: list[memoryview] = []
        self._input_ended = False
        self._hungry = False
        self._held: dict[int, int] = {}
        self._loads = itertools.count()
        self.outputs = outputs or [Load(), Load()]
        for output in self.outputs:
            output.clear()
        self._state = "waiting"
        self._failure: Failure | None = None
        self._abandoned = False
        self._touched = time.monotonic()
        self._thread: threading.Thread | None = None

    def step(self, load: pa.Buffer | None, last: bool) -> tuple[str, Any]:
        """Feed `load`, wait until the function wants more or has much to give, and return state and output."""
        self._touched = time.monotonic()
        # Another partition may have run since.
        self._task.enter()
        with self._changed:
            if load is not None:
                self._take(load)
            if last and not self._input_ended:
                self._input.append(memoryview(END_OF_ARROW))
                self._input_ended = True
                self._hungry = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="udf-partition", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._state != "waiting" or self._hungry or self._full())
            full = self._full()
            output = self.outputs[0].buffer()
            # The one before is Ray's by now: an actor's next call begins when the last one's answer is in the store.
            self.outputs.reverse()
            self.outputs[0].clear()
            self._changed.notify_all()
            if self._state == "failed":
                return "failed", self._failure
            return ("more" if full and self._state == "waiting" else self._state), output

    def _take(self, load: pa.Buffer) -> None:
        """Queue the batches of a load, which is a whole stream, as a further piece of this partition's one stream."""
        load = rebatched(load, self._batch_rows) if self._batch_rows else load
        # Whole, by whichever part of it is kept; given back, in whichever thread, when nothing points to it any more.
        place = next(self._loads)
        self._held[place] = load.size
        weakref.finalize(load, self._held.pop, place).atexit = False
        schema, messages = batches(memoryview(load))
        if not self._begun:
            self._input.append(memoryview(schema))
            self._begun = True
        self._input += messages
        self._hungry = False

    def abandon(self) -> None:
        """Let the function's thread end at its next read or write."""
        with self._changed:
            self._abandoned = True
            self._changed.notify_all()

    def orphaned(self) -> bool:
        """Return whether the Spark worker that feeds this partition is gone, or seems so."""
        import ray

        same = self._task.machine == ray.get_runtime_context().get_node_id()
        return not lives(self._task.process) if same else time.monotonic() - self._touched > FORGOTTEN_S

    def _run(self) -> None:
        state = "ended"
        try:
            rows = self._serializer.load_stream(_Source(self))
            self._serializer.dump_stream(self._function(self._task.split, rows), _Sink(self))
        except BaseException as exc:
            state, self._failure = "failed", Failure.of(exc, __file__)
        with self._changed:
            self._state = state
            self._changed.notify_all()

    def _full(self) -> bool:
        return self.outputs[0].size > MOST_KEPT

    def read(self, size: int) -> bytes | memoryview:
        """Return `size` bytes of the input, fewer only at its end; waits for them. Called by the function's thread."""
        found: bytes | memoryview = b""
        with self._changed:
            while len(found) < size:
                if not self._input:
                    if self._input_ended:
                        break
                    self._hungry = True
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._input or self._input_ended or self._abandoned)
                if self._abandoned:
                    raise _AbandonedError
                if self._input:
                    head = self._input[0]
                    taken = head[: size - len(found)]
                    found = bytes(found) + taken if found else self._lend(taken)
                    if len(taken) < len(head):
                        self._input[0] = head[len(taken) :]
                    else:
                        self._input.pop(0)
        return found

    def _lend(self, data: memoryview) -> bytes | memoryview:
        """Return `data` as it lies in Ray's store, where it is worth it and not too much of that is held already."""
        if len(data) < _WORTH_LENDING or sum(list(self._held.values())) > MOST_LENT:
            return bytes(data)
        return data

    def write(self, data: Any) -> int:
        """Take output; waits while much of it lies unfetched. Called by the function's thread."""
        with self._changed:
            self._changed.wait_for(lambda: not self._full() or self._abandoned)
            if self._abandoned:
                raise _AbandonedError
            # Copied: what it came from is the function's to change.
            size = self.outputs[0].write(data)
            self._changed.notify_all()
        return size


class _Source:
    """The input as the file that PySpark's serializers and pyarrow read."""

    closed = False

    def __init__(self, partition: Partition) -> None:
        self.read = partition.read


class _Sink:
    """The output as the file that PySpark's serializers and pyarrow write."""

    closed = False

    def __init__(self, partition: Partition) -> None:
        self.write = partition.write

    def flush(self) -> None:
        """Nothing is held back."""
