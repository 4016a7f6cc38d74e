"""Which replica a batch goes to: neighbours in the order of prompts go to the same one, so that its prefix cache serves
them; Serve's own router would send each to the shorter of two queues.

Loaded by Serve where it routes, from the path that `pool` names.
"""

from __future__ import annotations

from typing import Any

from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter


class SpanRouter(ConsistentHashRouter):
    """Sends the batches of span number n (the call's session id) to the n-th replica, round and round.

    Hashing would spread a few dozen spans unevenly over a few replicas. A full replica's batches go to the next one; a
    call without a span is hashed.
    """

    def _lookup_ranked_replicas(self, routing_key: str) -> list[Any]:
        if not routing_key.isdecimal() or not self._replica_set_snapshot:
            ranked: list[Any] = super()._lookup_ranked_replicas(routing_key)
            return ranked
        replicas = sorted(self._replica_set_snapshot, key=lambda replica: replica.unique_id)
        first = int(routing_key) % len(replicas)
        return (replicas[first:] + replicas[:first])[: 1 + self._num_fallback_replicas]
