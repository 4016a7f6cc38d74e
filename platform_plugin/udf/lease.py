"""What one Spark task holds while it uses a UDF's actors: their handles, kept up to date with the manager."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from platform_plugin.errors import UdfError
from platform_plugin.udf.task import Task
from platform_plugin.udf.ticket import Ticket, new_name

TOUCH_S = 2.0


@dataclass
class Member:
    """One actor as this task sees it; `load`: calls of this task that it has not answered."""

    handle: Any
    machine: str
    load: int = 0


class Lease:
    """A task's hold on the actors of a UDF. Runs on: Spark executor."""

    patience_s = TOUCH_S

    def __init__(self, ticket: Ticket, task: Task) -> None:
        self.ray: Any = ticket.connection.open()
        self._machine = self.ray.get_runtime_context().get_node_id()
        self.task = replace(task, machine=self._machine)
        self._afar: Any = None
        self._ticket = ticket
        self._name = new_name()
        self._members: list[Member] = []
        self._touched = time.monotonic()
        self._answer: Any = None
        try:
            self._manager = self.ray.get_actor(ticket.manager)
        except ValueError:
            raise UdfError(
                f"the session in which UDF {ticket.name!r} was made has ended, and its actors with it; make the frame "
                "(or register the function) again."
            ) from None

    def __enter__(self) -> Self:
        self.renew()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._manager.release.remote(self._ticket.key, self._name)

    def renew(self) -> None:
        """Ask for actors, and wait until there is one."""
        from ray.exceptions import RayTaskError

        ticket = self._ticket
        try:
            found = self.ray.get(self._manager.lease.remote(ticket.key, ticket.name, ticket.options, self._name))
        except RayTaskError as exc:
            raise UdfError(str(exc.cause)) from None
        self._see(found)

    def touch(self) -> None:
        """Tell the manager, now and then, that the task is alive, and hear of new actors."""
        if self._answer is not None:
            ready, _ = self.ray.wait([self._answer], timeout=0)
            if ready:
                self._see(self.ray.get(self._answer))
                self._answer = None
        if self._answer is None and time.monotonic() - self._touched > TOUCH_S:
            self._touched = time.monotonic()
            self._answer = self._manager.touch.remote(self._ticket.key, self._name)

    def least_busy(self) -> Member:
        """Return the actor with the fewest calls of this task; of equals, tasks begin at different ones."""
        turn = self.task.split % len(self._members)
        order = self._members[turn:] + self._members[:turn]
        return min(order, key=lambda member: member.load)

    def task_for(self, member: Member) -> Any:
        """Return the task's description for an actor: with its files' bytes where they are on another machine."""
        if member.machine == self._machine:
            return self.task
        if self._afar is None:
            self._afar = self.ray.put(self.task.with_contents())
        return self._afar

    def _see(self, found: list[tuple[Any, str]]) -> None:
        known = {m.handle._actor_id: m for m in self._members}
        if found:
            self._members = [known.get(handle._actor_id, Member(handle, machine)) for handle, machine in found]
