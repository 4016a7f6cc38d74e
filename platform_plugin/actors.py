"""Ray actors that a driver keeps warm from run to run."""

from __future__ import annotations

import threading
from typing import Any

_kept: dict[str, Any] = {}
_lock = threading.Lock()


def warm_actor(kind: type, name: str, **options: Any) -> Any:
    """Return this driver's actor `name`, started if it does not live. Runs on: driver; ends with it."""
    import ray

    with _lock:
        actor: Any = ray.remote(kind).options(name=name, num_cpus=0, get_if_exists=True, **options).remote()
        # Ray ends a named actor with the handle that made it; handles that found it by its name do not count.
        if name not in _kept or _kept[name]._actor_id != actor._actor_id:
            _kept[name] = actor
        return _kept[name]
