"""Few requests: the driver passes them to the engine itself, where Ray Data would take seconds to begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin.forwarder import Forwarder, Limits

if TYPE_CHECKING:
    import ray.data

MAX_BYTES = 16 * 2**20


def is_small(requests: ray.data.Dataset, asked: int, limits: Limits) -> bool:
    """Return whether all requests are in flight at once anyway, and fit a driver's memory many times over."""
    return asked <= limits.batch_rows * limits.in_flight and (requests.size_bytes() or 0) <= MAX_BYTES


def answer(requests: ray.data.Dataset, make: Callable[[], Forwarder]) -> ray.data.Dataset:
    """Answer every request and return the materialized answers. Runs on: driver, in a thread without an event loop.

    Raises what the forwarder raises, in an ExceptionGroup.
    """
    import ray

    blocks: list[pa.Table] = ray.get(requests.to_arrow_refs())

    async def all_blocks() -> list[pa.Table]:
        one = make()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(block)) for block in blocks]
        return [task.result() for task in tasks]

    answers: list[Any] = [ray.put(table) for table in asyncio.run(all_blocks())]
    return ray.data.from_arrow_refs(answers)
