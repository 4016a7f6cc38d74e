"""How the hub's token reaches the replicas of a cluster that the driver joined.

Names only stand in metadata. The values stay in the memory of one actor that lives as long as the driver; they are
never in a runtime_env, a constructor's arguments or a closure, all of which a cluster's pages show.
"""

from __future__ import annotations

import os
from typing import Any

NAMES = ("HF_TOKEN", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "PLATFORM_PLUGIN_CACHE")
ACTOR, NAMESPACE = "credentials", "platform_plugin"


class Credentials:
    """Holds the values. Runs on: Ray actor."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def put(self, values: dict[str, str]) -> None:
        """Keep `values`."""
        self._values = values

    def get(self) -> dict[str, str]:
        """Return what was kept."""
        return self._values

    def __repr__(self) -> str:
        return f"Credentials({sorted(self._values)})"


def publish() -> Any:
    """Offer this process's credentials to the replicas it starts, and return the actor. Runs on: driver."""
    import ray

    values = {name: os.environ[name] for name in NAMES if os.environ.get(name)}
    actor: Any = (
        ray.remote(Credentials).options(name=ACTOR, namespace=NAMESPACE, num_cpus=0, get_if_exists=True).remote()
    )
    ray.get(actor.put.remote(values))
    return actor


def fetch() -> None:
    """Set the credentials in this process's environment, where it has none. Runs on: Ray actor."""
    import ray

    try:
        actor: Any = ray.get_actor(ACTOR, namespace=NAMESPACE)
    except ValueError:
        return
    for name, value in ray.get(actor.get.remote()).items():
        # One that is set to nothing, as a container's template does, counts as not set.
        os.environ[name] = os.environ.get(name) or value
