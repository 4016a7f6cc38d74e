"""Moves the stream of one Spark task through the actors of its UDF, several loads at a time, answers in order."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from platform_plugin.errors import UdfDiedError
from platform_plugin.udf.framing import END_OF_ARROW, START_OF_ARROW, Load, batches
from platform_plugin.udf.kinds import Kind
from platform_plugin.udf.lease import Lease, Member
from platform_plugin.udf.loads import Loads
from platform_plugin.udf.packing import digest
from platform_plugin.udf.replica import ENDED, FAILED, LOST, MORE
from platform_plugin.udf.task import Task
from platform_plugin.udf.ticket import Ticket, new_name

DEATHS = 3
"""So often the same rows may lose their actor before the task gives up."""
REMEMBERED = 64 * 2**20
"""Bytes of a partition that are kept, to begin it again on another actor when its own is lost."""
INLINE = 2**16


@dataclass
class Call:
    """A load on its way."""

    load: Load | None
    last: bool
    member: Member
    answer: Any
    deaths: int = 0


def send(ticket: Ticket, kind: Kind, node: bytes, split: int, source: IO[bytes], out: IO[bytes]) -> Any:
    """Run one task's UDF on its actors; return the user's exception, if it raised. Runs on: Spark executor."""
    with Lease(ticket, Task.of_worker(split)) as lease:
        loads = Loads(kind, source, ticket.options.batch_rows)
        sender = _Whole if kind.whole else _Apart
        return sender(ticket, kind, node, lease, loads, out).run()


class _Sender:
    def __init__(self, ticket: Ticket, kind: Kind, node: bytes, lease: Lease, loads: Loads, out: IO[bytes]) -> None:
        self._ticket = ticket
        self._kind = kind
        self._rows = ticket.options.batch_rows if kind.resizable else None
        self._key = digest(node)
        buffer = pa.py_buffer(node)
        self._node = lease.ray.put(buffer) if len(node) > INLINE else buffer
        self._lease = lease
        self._loads = loads
        self._out = out
        self._calls: deque[Call] = deque()

    def _answer(self, call: Call) -> Any:
        """Wait for an answer; None where the actor was lost with it."""
        from ray.exceptions import RayActorError

        ray = self._lease.ray
        while True:
            self._lease.touch()
            ready, _ = ray.wait([call.answer], timeout=self._lease.patience_s)
            if ready:
                break
        try:
            return ray.get(call.answer)
        except RayActorError as exc:
            call.deaths += 1
            if call.deaths >= DEATHS:
                rows = f"{call.load.rows} rows" if call.load is not None and call.load.rows else "a batch"
                raise UdfDiedError(
                    f"the process that runs UDF {self._ticket.name!r} ended {DEATHS} times while it had {rows} of "
                    f"partition {self._lease.task.split}: {str(exc).splitlines()[0]}\n"
                    "The rows make the process end: too much memory, a crash in native code, or os._exit."
                ) from None
            return None


class _Apart(_Sender):
    """For kinds whose frames stand alone: any actor takes any load."""

    def run(self) -> Any:
        """Send all loads; return the exception of the first that failed."""
        written = False
        for state, answer in self._answers():
            if state == FAILED:
                return answer.exception()
            written = self._write(memoryview(answer), written)
        if written and self._kind.arrow_out:
            self._out.write(END_OF_ARROW)
        return None

    def _answers(self) -> Iterator[tuple[str, Any]]:
        while not (self._loads.ended and not self._calls):
            if not self._loads.ended and len(self._calls) < self._ticket.options.in_flight:
                load = self._loads.next()
                if load.frames:
                    self._calls.append(self._submit(load))
                continue
            call = self._calls.popleft()
            found = self._answer(call)
            call.member.load -= 1
            if found is None:
                deaths = call.deaths
                self._lease.renew()
                again = self._submit(call.load)
                again.deaths = deaths
                self._calls.appendleft(again)
                continue
            self._loads.took(found[2])
            yield found[0], found[1]

    def _submit(self, load: Load | None) -> Call:
        assert load is not None
        member = self._lease.least_busy()
        member.load += 1
        answer = member.handle.run.remote(
            self._key, self._node, self._lease.task_for(member), load.buffer(), self._rows
        )
        return Call(load, False, member, answer)

    def _write(self, answer: memoryview, begun: bool) -> bool:
        if not self._kind.arrow_out:
            self._out.write(answer)
            return True
        schema, messages = batches(answer[len(START_OF_ARROW) :])
        if messages and not begun:
            self._out.write(START_OF_ARROW)
            self._out.write(schema)
        for message in messages:
            self._out.write(message)
        return begun or bool(messages)


class _Whole(_Sender):
    """For kinds whose partition is one call: all its loads go to one actor, in order."""

    def run(self) -> Any:
        """Send all loads; return the exception that ended the function."""
        self._sent: list[tuple[Load | None, bool]] = []
        self._sent_size = 0
        self._written = 0
        self._skip = 0
        self._deaths = 0
        self._open()
        try:
            return self._drive()
        finally:
            self._member.handle.close.remote(self._name)

    def _drive(self) -> Any:
        while True:
            if not self._loads.ended and len(self._calls) < self._ticket.options.in_flight:
                load = self._loads.next()
                self._step(load, self._loads.ended)
                continue
            if not self._calls:
                self._step(None, True)
            call = self._calls.popleft()
            call.deaths = self._deaths
            found = self._answer(call)
            self._deaths = call.deaths
            if found is None or found[0] == LOST:
                self._again()
                continue
            state, answer, seconds = found
            if state == FAILED:
                return answer.exception()
            self._write(memoryview(answer) if answer is not None else memoryview(b""))
            if call.load is not None:
                self._loads.took(seconds)
            if state == ENDED:
                return None
            if state == MORE and not self._calls:
                self._step(None, self._loads.ended)

    def _open(self) -> None:
        self._name = new_name()
        self._member = self._lease.least_busy()
        self._member.load += 1
        task = self._lease.task_for(self._member)
        answer = self._member.handle.open.remote(self._name, self._key, self._node, task, self._rows)
        self._calls.append(Call(None, False, self._member, answer))

    def _step(self, load: Load | None, last: bool) -> None:
        buffer = load.buffer() if load is not None and (load.frames or not self._sent) else None
        if load is not None:
            self._sent_size += load.size
            self._sent.append((load, last))
            if self._sent_size > REMEMBERED:
                self._sent = [(None, False)]
        answer = self._member.handle.step.remote(self._name, buffer, last)
        self._calls.append(Call(load, last, self._member, answer))

    def _again(self) -> None:
        """Begin the partition anew on another actor, and leave out what has been written of it."""
        sent = self._sent
        if self._sent_size > REMEMBERED:
            raise UdfDiedError(
                f"the process that runs UDF {self._ticket.name!r} was lost in the middle of partition "
                f"{self._lease.task.split}, of which more than {REMEMBERED >> 20} MB had been sent: an iterator "
                "function must begin it anew.\nSpark does so where it may try a task again: local[2,4] in place of "
                "local[2]; or use smaller partitions."
            )
        self._calls.clear()
        self._skip = self._written
        self._lease.renew()
        time.sleep(0)
        self._sent, self._sent_size = [], 0
        self._open()
        for load, last in sent:
            self._step(load, last)

    def _write(self, answer: memoryview) -> None:
        left_out = min(self._skip, len(answer))
        self._skip -= left_out
        self._out.write(answer[left_out:])
        self._written += len(answer) - left_out
