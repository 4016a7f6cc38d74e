"""What keeps blocks in Ray's object store while Spark or a frame needs them: one actor a node and driver, kept warm.

An object lives as long as its owner and its references; both are an actor's here, since a Spark worker comes and goes.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from platform_plugin.actors import warm_actor

LOST = "a process that kept blocks of this run in Ray's object store has ended. Run the transform again."


class Keeper:
    """Keeps references by the name of what needs them. Runs on: Ray actor, at most one a node and driver."""

    def __init__(self) -> None:
        self._pushed: dict[str, dict[str, Any]] = {}
        self._held: dict[str, list[Any]] = {}

    def push(self, run: str, token: str, table: pa.Table) -> None:
        """Put `table` into the node's object store and keep it for `run`."""
        import ray

        self._pushed.setdefault(run, {})[token] = ray.put(table)

    def take(self, run: str, tokens: list[str]) -> dict[str, Any]:
        """Return the references of `tokens`; what an attempt pushed that Spark gave up is not among them.

        Nor is what this actor has lost with a process of its own.
        """
        pushed = self._pushed.get(run, {})
        return {token: pushed[token] for token in tokens if token in pushed}

    def hold(self, name: str, refs: list[Any]) -> int:
        """Keep `refs` as `name` and return their number."""
        self._held[name] = refs
        return len(refs)

    def get(self, name: str, index: int) -> list[Any] | None:
        """Return the reference, in a list so that Ray hands on the reference and not the block; None if dropped."""
        refs = self._held.get(name)
        return None if refs is None else [refs[index]]

    def drop(self, name: str) -> None:
        """Let go of what was pushed or held as `name`."""
        self._pushed.pop(name, None)
        self._held.pop(name, None)


def keeper(node: str) -> tuple[str, Any]:
    """Return name and handle of this driver's keeper on a node, started if need be. Runs on: driver."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    name = f"__pp_keeper_{ray.get_runtime_context().get_job_id()}_{node[:12]}"
    return name, warm_actor(Keeper, name, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
