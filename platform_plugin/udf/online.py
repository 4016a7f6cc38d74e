"""Rows without Spark: a function of rows runs on an actor of a UDF's pool, which Spark's tasks may be using too."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from platform_plugin.connection import Connection
from platform_plugin.errors import SessionError, UdfDiedError, UdfError
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import pack
from platform_plugin.udf.placing import check_place
from platform_plugin.udf.pools import pools
from platform_plugin.udf.replica import FAILED
from platform_plugin.udf.ticket import Ticket, new_name

DEATHS = 3
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Online:
    """A function of rows, on a pool's actors. Runs on: any process that is connected to Ray."""

    ticket: Ticket
    manager: Any

    @classmethod
    def of(cls, function: Callable[[Rows], Any], options: UdfOptions, name: str) -> Online:
        """Return what calls `function`, packed now. Raises SessionError, UnsupportedUdfError, PlacementError."""
        import ray

        if not ray.is_initialized():
            raise SessionError(
                "this process is not connected to Ray, where the function runs.\n"
                "Call ray.init() (or ray.init(address=...) for a cluster), or start a session with spark_on_ray()."
            )
        check_place(options, name)
        manager, handle = pools()
        return cls(Ticket(name, pack(function, name), options, Connection.of_driver(), manager), handle)

    def call(self, rows: Rows) -> Any:
        """Return what the function returns; raise what it raises.

        Raises:
            UdfError: no actor could be started; says why.
            UdfDiedError: the rows lost their actor again and again.
        """
        import ray

        name = new_name()
        try:
            for _ in range(DEATHS):
                try:
                    actor = self._actor(ray.get(self._lease(name)))
                    return _value(ray.get(actor.apply.remote(self.ticket.packed, rows)))
                except ray.exceptions.RayActorError as exc:
                    lost = exc
        except ray.exceptions.RayTaskError as exc:
            raise UdfError(str(exc.cause)) from None
        finally:
            self.manager.release.remote(self.ticket.key, name)
        raise self._died(rows, lost)

    async def acall(self, rows: Rows) -> Any:
        """Do as `call`, without blocking the event loop."""
        import ray

        name = new_name()
        try:
            for _ in range(DEATHS):
                try:
                    return _value(await self._actor(await self._lease(name)).apply.remote(self.ticket.packed, rows))
                except ray.exceptions.RayActorError as exc:
                    lost = exc
        except ray.exceptions.RayTaskError as exc:
            raise UdfError(str(exc.cause)) from None
        finally:
            self.manager.release.remote(self.ticket.key, name)
        raise self._died(rows, lost)

    def _lease(self, name: str) -> Any:
        ticket = self.ticket
        return self.manager.lease.remote(ticket.key, ticket.name, ticket.options, name)

    def _actor(self, members: list[tuple[Any, str]]) -> Any:
        return random.choice(members)[0]

    def _died(self, rows: Rows, lost: Exception) -> UdfDiedError:
        return UdfDiedError(
            f"the process that runs {self.ticket.name!r} ended {DEATHS} times while it had {len(rows)} rows: "
            f"{str(lost).splitlines()[0]}"
        )


def _value(answer: tuple[str, Any]) -> Any:
    state, found = answer
    if state == FAILED:
        raise found.exception()
    return found
