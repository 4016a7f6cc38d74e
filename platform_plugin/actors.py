"""Ray actors that a driver keeps warm from run to run."""

from __future__ import annotations

import threading
from typing import Any

_kept: dict[str, Any] = {}
_lock = threading.Lock()


def warm_actor(kind: type, name: str, **options: Any) -> Any:
    """Return this driver's actor `name`, started if it does not live. Runs on: driver; ends with it.

    One that dies comes back without what it knew, under the same name, and answers the calls that it owed.
    """
    import ray

    with _lock:
        lasting = {"max_restarts": -1, "max_task_retries": -1}
        actor: Any = ray.remote(kind).options(name=name, num_cpus=0, get_if_exists=True, **lasting, **options).remote()
        # Ray ends a named actor with the handle that made it; handles that found it by its name do not count.
        if name not in _kept or _kept[name]._actor_id != actor._actor_id:
            _kept[name] = actor
        return _kept[name]
