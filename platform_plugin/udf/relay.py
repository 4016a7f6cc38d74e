"""The Spark task's side: PySpark's worker reads a UDF and finds a relay, which moves bytes between JVM and actors.

PySpark's worker makes a function and a serializer of what the JVM sends it; both then run here, in the task. When one
of our functions is among what it reads, the serializer of that task (and no other) is given a relay's two methods: the
function and the serializer go to an actor, once, and after them the JVM's bytes as they come.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any

from platform_plugin.udf.kinds import Kind, kind_of
from platform_plugin.udf.packing import digest, dumps, unpack
from platform_plugin.udf.sending import send
from platform_plugin.udf.ticket import Ticket


class Arrived:
    """A UDF's function as PySpark's worker sees it: it can be looked at and sent on, and runs on an actor only."""

    def __init__(self, ticket: Ticket, signature: Any) -> None:
        self.ticket = ticket
        # PySpark's worker counts the arguments of an applyInPandas function.
        self.__signature__ = signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function here: a worker that calls it has no stream that could be relayed."""
        return unpack(self.ticket.packed, False)(*args, **kwargs)

    def __reduce__(self) -> Any:
        return unpack, (self.ticket.packed, self.ticket.options.shared_prologue)


def arrive(ticket: Ticket, signature: Any) -> Any:
    """Return what stands for the function in this process, and relay the task it is read for. Runs on: Spark executor.

    Where no UDF is being read (the function was closed over by something else), it is the function itself.
    """
    reader = _reader()
    if reader is None:
        return unpack(ticket.packed, False)
    arrived = Arrived(ticket, signature)
    serializer = reader["ser"]
    relay = vars(serializer).get("_relay")
    if relay is None:
        relay = serializer._relay = Relay(serializer, kind_of(reader["eval_type"], ticket.name))
        # Only this task's: PySpark makes a new serializer for each.
        serializer.load_stream = relay.load_stream
        serializer.dump_stream = relay.dump_stream
    relay.add(ticket)
    return arrived


class Relay:
    """Stands in for the serializer of one Spark task."""

    def __init__(self, serializer: Any, kind: Kind) -> None:
        self._serializer = serializer
        self._kind = kind
        self._tickets: list[Ticket] = []
        self._input: IO[bytes] | None = None

    def add(self, ticket: Ticket) -> None:
        """Take in one more function that Spark evaluates in this task."""
        self._tickets.append(ticket)

    def load_stream(self, stream: IO[bytes]) -> Iterator[Any]:
        """Remember the stream; nothing is converted here."""
        self._input = stream
        return iter(())

    def dump_stream(self, _: Iterator[Any], out: IO[bytes]) -> None:
        """Move the whole task's stream through the actors."""
        worker = sys._getframe(1).f_locals
        assert self._input is not None
        failure = send(self._ticket(), self._kind, self._node(worker["func"]), worker["split_index"], self._input, out)
        if failure is not None:
            raise failure

    def _node(self, function: Callable[..., Any]) -> bytes:
        """Return what PySpark's worker made of the UDFs, as the actor is to run it."""
        plain = object.__new__(type(self._serializer))
        own = ("_relay", "load_stream", "dump_stream")
        plain.__dict__.update({k: v for k, v in vars(self._serializer).items() if k not in own})
        return dumps((function, plain))

    def _ticket(self) -> Ticket:
        """Return the ticket of the functions together: Spark evaluates them as one, so one actor runs them."""
        distinct = list({ticket.key: ticket for ticket in self._tickets}.values())
        merged = distinct[0]
        for ticket in distinct[1:]:
            merged = replace(
                merged,
                name=f"{merged.name}+{ticket.name}",
                packed=digest(merged.packed).encode() + digest(ticket.packed).encode(),
                options=merged.options.together(ticket.options),
            )
        return merged


def _reader() -> dict[str, Any] | None:
    """Return the variables of the function of PySpark's worker that is reading UDFs, if one is."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "read_udfs" and "ser" in frame.f_locals:
            found: dict[str, Any] = frame.f_locals
            return found
        frame = frame.f_back
    return None


def _hide_from_traceback() -> None:
    """Let PySpark's simplified tracebacks, which leave out its own files, leave out the one line of ours too."""
    from pyspark import worker

    dump: Any = Relay.dump_stream
    dump.__code__ = dump.__code__.replace(co_filename=worker.__file__)


if "pyspark.worker" in sys.modules:
    _hide_from_traceback()
