"""A task's stream through actors that are slow, lost or deadly; the actors are in this process, and Ray is not here."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import worker
from pyspark.rdd import PythonEvalType
from pyspark.sql.pandas.serializers import ArrowStreamPandasUDFSerializer
from pyspark.sql.types import LongType
from ray.exceptions import RayActorError

from platform_plugin.errors import UdfDiedError
from platform_plugin.udf import loads, sending
from platform_plugin.udf.framing import START_OF_ARROW
from platform_plugin.udf.kinds import find_kinds
from platform_plugin.udf.lease import Member
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import dumps
from platform_plugin.udf.replica import UdfReplica
from platform_plugin.udf.task import Task

SCALAR, ITERATOR = PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
LOST = object()


class Actor:
    """A replica that is lost, with all it knows, at the calls whose numbers are given."""

    def __init__(self, lost_at: set[int]) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._lost_at = lost_at
        self._replica = UdfReplica()
        for name in ("run", "open", "step", "close"):
            setattr(self, name, SimpleNamespace(remote=self._caller(name)))

    def _caller(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments))
            if len(self.calls) in self._lost_at:
                self._replica = UdfReplica()
                return LOST
            return pickle.loads(pickle.dumps(getattr(self._replica, name)(*arguments)))

        return call


class FakeLease:
    """What `Lease` is to a task, without Ray."""

    patience_s = 0.0

    def __init__(self, actor: Actor, task: Task) -> None:
        self.task = task
        self.renewed = 0
        self.member = Member(actor, "here")
        self.ray = SimpleNamespace(put=lambda x: x, get=self._get, wait=lambda refs, timeout: (refs, []))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def _get(self, answer: Any) -> Any:
        if answer is LOST:
            raise RayActorError
        return answer

    def renew(self) -> None:
        self.renewed += 1

    def touch(self) -> None:
        pass

    def least_busy(self) -> Member:
        return self.member

    def task_for(self, member: Member) -> Task:
        return self.task


def scalar(function: Callable[..., Any]) -> bytes:
    evaluate = worker.wrap_scalar_pandas_udf(function, LongType())
    return node(lambda _, batches: (evaluate(batch[0]) for batch in batches))


def iterator(function: Callable[..., Any]) -> bytes:
    evaluate = worker.wrap_pandas_batch_iter_udf(function, LongType())
    return node(lambda _, batches: evaluate(batch[0] for batch in batches))


def node(function: Callable[..., Any]) -> bytes:
    return dumps((function, ArrowStreamPandasUDFSerializer("UTC", False, True)))


def run(
    monkeypatch: pytest.MonkeyPatch, eval_type: int, made: bytes, *, lost_at: set[int] = frozenset(), **options: Any
) -> tuple[list[int], Actor]:
    """Send 40 batches of 10 numbers; return the numbers that came back, and the actor."""
    schema = pa.schema([("x", pa.int64())])
    source = pa.BufferOutputStream()
    with pa.ipc.new_stream(source, schema) as writer:
        for number in range(40):
            writer.write_batch(pa.record_batch([pa.array(range(10 * number, 10 * number + 10))], schema))
    actor = Actor(set(lost_at))
    monkeypatch.setattr(sending, "Lease", lambda ticket, task: FakeLease(actor, task))
    monkeypatch.setattr(loads, "SMALLEST", 1000)
    monkeypatch.setattr(loads, "LARGEST", 1000)
    ticket: Any = SimpleNamespace(name="f", options=UdfOptions(**options))
    out = io.BytesIO()
    reader: Any = io.BufferedReader(io.BytesIO(source.getvalue()))  # type: ignore[arg-type]
    failure = sending.send(ticket, find_kinds()[eval_type], made, 3, reader, out)
    if failure is not None:
        raise failure
    written = out.getvalue()
    assert written.startswith(START_OF_ARROW)
    table = pa.ipc.open_stream(written[len(START_OF_ARROW) :]).read_all()
    return table.column(0).to_pylist(), actor


def plus(x: pd.Series) -> pd.Series:
    return x + 1


def running(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    before = 0
    for batch in batches:
        yield batch * 0 + before
        before += len(batch)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_loads_that_stand_apart_come_back_in_order(monkeypatch: pytest.MonkeyPatch, in_flight: int) -> None:
    found, actor = run(monkeypatch, SCALAR, scalar(plus), in_flight=in_flight)
    assert found == list(range(1, 401))
    assert len(actor.calls) > 4


def test_lost_actor_is_asked_again_for_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = run(monkeypatch, SCALAR, scalar(plus), lost_at={2, 3, 5})
    assert found == list(range(1, 401))


@pytest.mark.parametrize("lost_at", [{1}, {4}, {2, 9}])
def test_partition_whose_actor_is_lost_begins_anew_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, lost_at: set[int]
) -> None:
    found, actor = run(monkeypatch, ITERATOR, iterator(running), lost_at=lost_at, in_flight=2)
    assert found == [n // 10 * 10 for n in range(400)]
    assert sum(name == "open" for name, _ in actor.calls) == 1 + len(lost_at)


@pytest.mark.parametrize(("eval_type", "made"), [(SCALAR, scalar(plus)), (ITERATOR, iterator(running))])
def test_rows_that_lose_their_actor_each_time_end_the_task_and_are_told(
    monkeypatch: pytest.MonkeyPatch, eval_type: int, made: bytes
) -> None:
    with pytest.raises(UdfDiedError, match=r"runs UDF 'f' ended 3 times(.|\n)*partition 3"):
        run(monkeypatch, eval_type, made, lost_at=set(range(2, 1000)), in_flight=1)


def test_partition_that_is_too_large_to_remember_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "REMEMBERED", 1500)
    with pytest.raises(UdfDiedError, match=r"Spark does so where it may try a task again: local\[2,4\]"):
        run(monkeypatch, ITERATOR, iterator(running), lost_at={8}, in_flight=1)


@pytest.mark.parametrize(("eval_type", "made"), [(SCALAR, scalar(plus)), (ITERATOR, iterator(running))])
def test_batch_rows_sets_what_a_call_of_the_function_sees(
    monkeypatch: pytest.MonkeyPatch, eval_type: int, made: bytes
) -> None:
    whole, _ = run(monkeypatch, eval_type, made)
    seen: bytes = (
        scalar(lambda x: x * 0 + len(x)) if eval_type == SCALAR else iterator(lambda b: (x * 0 + len(x) for x in b))
    )
    found, _ = run(monkeypatch, eval_type, seen, batch_rows=25)
    assert len(found) == len(whole) == 400
    assert set(found) == {20}
    found, _ = run(monkeypatch, eval_type, seen, batch_rows=4)
    assert set(found) == {4, 2}


def test_users_exception_comes_back_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(x: pd.Series) -> pd.Series:
        raise ValueError("row 7 is rotten")

    with pytest.raises(ValueError, match="row 7 is rotten") as caught:
        run(monkeypatch, SCALAR, scalar(fails))
    assert caught.traceback[-1].path.name == "test_udf_sending.py"


def test_task_is_seen_by_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def where(x: pd.Series) -> pd.Series:
        from pyspark import TaskContext

        context = TaskContext.get()
        return x * 0 + (-1 if context is None else context.partitionId())

    found, _ = run(monkeypatch, SCALAR, scalar(where))
    assert set(found) == {-1}
