"""The actors of all UDFs of one driver: started when a task first asks, shared by tasks, stopped when idle.

One manager a driver, itself an actor, because Spark's tasks ask for actors long after the driver made the plan, and
may ask again when they have been stopped. What an actor does is `replica`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import Any

from platform_plugin.actors import warm_actor
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.replica import UdfReplica

LOOK_S = 1.0
CROWDED_S = 1.0
"""How long an actor may wait for its place before unused ones of other UDFs have to make room."""
SILENT_S = 30.0
"""A task that was silent for so long may be gone; its UDF's actors may have to make room."""


@dataclass
class Member:
    """One actor of a pool, ready or on its way."""

    handle: Any
    start: asyncio.Task[None]
    since: float
    machine: str = ""
    pid: int = 0
    failure: str = ""


@dataclass
class Pool:
    """The actors of one UDF and the tasks that use them."""

    name: str
    options: UdfOptions
    members: list[Member] = field(default_factory=list)
    leases: dict[str, float] = field(default_factory=dict)
    used: float = field(default_factory=time.monotonic)
    started: int = 0

    def ready(self) -> list[Member]:
        """Return the members that may be called."""
        return [m for m in self.members if m.machine]

    def in_use(self) -> bool:
        """Return whether a task holds a lease and has been heard of within the idle time."""
        now = time.monotonic()
        return any(now - seen < self.options.idle_timeout for seen in self.leases.values())


class UdfPools:
    """Starts, shares and stops the actors of UDFs. Runs on: Ray actor, one a driver."""

    def __init__(self) -> None:
        self._pools: dict[str, Pool] = {}
        self._watch: asyncio.Task[None] | None = None

    async def lease(self, key: str, name: str, options: UdfOptions, task: str) -> list[tuple[Any, str]]:
        """Return the actors of a UDF with the machine of each, at least one; wait while the first one starts.

        Args:
            key: what the UDF's code and options are known by.
            task: whoever asks; counted until `release`, or until it has been silent for the idle time.

        Raises:
            RuntimeError: none could be started, or none within ``start_timeout``; says what was waited for.
        """
        if self._watch is None:
            self._watch = asyncio.create_task(self._look_after())
        pool = self._pools.setdefault(key, Pool(name, options))
        pool.leases[task] = pool.used = time.monotonic()
        began = time.monotonic()
        while True:
            self._grow(pool)
            if pool.ready():
                return self._handles(pool)
            failed = next((m.failure for m in pool.members if m.failure), "")
            if failed:
                self._stop(pool)
                raise RuntimeError(f"the actor of UDF {name!r} did not start: {failed}")
            waited = time.monotonic() - began
            if waited > options.start_timeout:
                self._stop(pool)
                raise RuntimeError(
                    f"UDF {name!r} waited start_timeout={options.start_timeout:g} s for an actor with "
                    f"num_cpus={options.num_cpus:g}, num_gpus={options.num_gpus:g}; {_free()}.\n"
                    "Give the cluster what the actor asks for, ask for less, or raise start_timeout."
                )
            if waited > CROWDED_S:
                self._make_room(pool)
            pool.leases[task] = time.monotonic()
            await asyncio.wait([m.start for m in pool.members], timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)

    async def touch(self, key: str, task: str) -> list[tuple[Any, str]]:
        """Say that a task still uses the UDF, and return its actors as they are now."""
        pool = self._pools.get(key)
        if pool is None:
            return []
        pool.leases[task] = pool.used = time.monotonic()
        self._grow(pool)
        return self._handles(pool)

    async def release(self, key: str, task: str) -> None:
        """Say that a task is done."""
        pool = self._pools.get(key)
        if pool is not None:
            pool.leases.pop(task, None)
            pool.used = time.monotonic()

    async def census(self) -> list[dict[str, Any]]:
        """Return the pools: name, processes, tasks that use it, actors ever started."""
        return [
            {"name": p.name, "pids": [m.pid for m in p.ready()], "tasks": len(p.leases), "started": p.started}
            for p in self._pools.values()
        ]

    def _handles(self, pool: Pool) -> list[tuple[Any, str]]:
        return [(m.handle, m.machine) for m in pool.ready()]

    def _grow(self, pool: Pool) -> None:
        least, most = pool.options.replicas
        now = time.monotonic()
        users = sum(now - seen < pool.options.idle_timeout for seen in pool.leases.values())
        while len(pool.members) < min(max(users, least, 1), most):
            # More than it must have only where that leaves a place for the first actor of another UDF.
            if len(pool.members) >= max(least, 1) and not _roomy(pool.options):
                return
            pool.members.append(self._start(pool))

    def _start(self, pool: Pool) -> Member:
        import ray

        options = pool.options
        handle: Any = (
            ray.remote(UdfReplica)
            .options(
                num_cpus=options.num_cpus,
                num_gpus=options.num_gpus,
                max_restarts=-1,
                # A task that loses an actor sends its rows again itself: it counts how often the same rows kill one.
                max_task_retries=0,
            )
            .remote()
        )
        member = Member(handle, asyncio.create_task(asyncio.sleep(0)), time.monotonic())
        member.start = asyncio.create_task(self._await(member))
        pool.started += 1
        return member

    async def _await(self, member: Member) -> None:
        try:
            member.machine, member.pid = await member.handle.ready.remote()
        except Exception as exc:
            member.failure = f"{type(exc).__name__}: {exc}"

    def _make_room(self, wanting: Pool) -> None:
        """Stop the pool that has been unused for longest, and actors on their way that others could do without."""
        for pool in self._pools.values():
            if pool is not wanting and pool.ready():
                for member in [m for m in pool.members if not m.machine]:
                    self._kill(pool, member)
        now = time.monotonic()
        unused = [
            pool
            for pool in self._pools.values()
            if pool is not wanting and pool.members and not any(now - s < SILENT_S for s in pool.leases.values())
        ]
        if unused:
            self._stop(min(unused, key=lambda p: p.used))

    def _stop(self, pool: Pool) -> None:
        for member in list(pool.members):
            self._kill(pool, member)

    def _kill(self, pool: Pool, member: Member) -> None:
        import ray

        pool.members.remove(member)
        member.start.cancel()
        with contextlib.suppress(Exception):
            ray.kill(member.handle)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            for key, pool in list(self._pools.items()):
                if pool.in_use() or now - pool.used < pool.options.idle_timeout:
                    continue
                # A call may take longer than the idle time.
                if not await _busy(pool) and not pool.in_use():
                    self._stop(pool)
                    self._pools.pop(key, None)


async def _busy(pool: Pool) -> bool:
    answers = [asyncio.wrap_future(m.handle.ready.remote().future()) for m in pool.ready()]
    if not answers:
        return False
    _, unanswered = await asyncio.wait(answers, timeout=LOOK_S)
    return bool(unanswered)


def pools() -> tuple[str, Any]:
    """Return name and handle of this driver's manager, started if need be. Runs on: driver."""
    import ray

    name = f"__pp_udfs_{ray.get_runtime_context().get_job_id()}"
    return name, warm_actor(UdfPools, name, max_concurrency=1000)


def census() -> list[dict[str, Any]]:
    """Return the UDFs that have actors now: name, pids, tasks, started. Runs on: driver."""
    import ray

    found: list[dict[str, Any]] = ray.get(pools()[1].census.remote())
    return found


def _roomy(options: UdfOptions) -> bool:
    import ray

    free = ray.available_resources()  # type: ignore[no-untyped-call]
    wanted = {"CPU": options.num_cpus, "GPU": options.num_gpus}
    return all(free.get(kind, 0) >= 2 * amount for kind, amount in wanted.items())


def _free() -> str:
    import ray

    there = ray.cluster_resources()  # type: ignore[no-untyped-call]
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    parts = [f"{kind} {free.get(kind, 0):g} of {there.get(kind, 0):g}" for kind in ("CPU", "GPU")]
    return f"free in the cluster now: {', '.join(parts)}"
