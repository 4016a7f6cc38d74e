"""The engine pool: each engine is one Ray Serve application, named after its signature.

Engines stay warm between transforms and are shared by stages, threads and notebook cells. How one
is deployed is `deployment`'s; what runs inside a replica, `replica`'s; what a transform asks of it is `inference`'s.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from platform_plugin.config import Replicas
from platform_plugin.credentials import publish
from platform_plugin.deployment import check_placement, target
from platform_plugin.engines import EngineSpec
from platform_plugin.errors import EngineStartError

if TYPE_CHECKING:
    from ray.serve.handle import DeploymentHandle

logger = logging.getLogger(__name__)

PREFIX = "pp-"
POLL_S = 1.0
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")

_lock = threading.Lock()
_ranges: dict[str, Replicas] = {}
_credentials: Any = None


def app_name(spec: EngineSpec) -> str:
    """Return the name of the engine's application: readable, and equal exactly for equal engines."""
    model = re.sub(r"[^a-zA-Z0-9.]+", "-", spec.config.model)[-24:].strip("-")
    return f"{PREFIX}{spec.config.engine}-{model}-{spec.config.signature()}"


def start(spec: EngineSpec, replicas: Replicas, *, joined: bool) -> str:
    """Deploy the engine, or find it warm, and wait until it is ready; return the application's name.

    Runs on: driver. A wider range than that of the running engine widens it in place.

    Args:
        joined: whether the cluster is one that this process joined: it may grow, and does not see our environment.

    Raises:
        PlacementError: no node of a cluster that cannot grow could ever hold a replica.
        EngineStartError: the engine's own words, once; or what it waited for, after ``start_timeout_s``.
    """
    name = app_name(spec)
    with _lock:
        if not joined:
            check_placement(spec.placement())
        status = _status(name)
        if status in FAILED:
            release(name)
        wanted = _widest(_ranges.get(name), replicas)
        if status not in ("RUNNING", "DEPLOYING") or wanted != _ranges.get(name):
            _deploy(spec, name, wanted, joined)
            _ranges[name] = wanted
    try:
        _wait(handle(name), name, replicas.start_timeout_s)
    except EngineStartError:
        release(name)
        raise
    return name


def find(spec: EngineSpec) -> str | None:
    """Return the application's name if this process has started the engine, and it may be called at once."""
    name = app_name(spec)
    return name if name in _ranges else None


def handle(name: str) -> DeploymentHandle[Any]:
    """Return the handle to the engine `name`. Runs on: driver or Ray actor."""
    from ray import serve

    _quiet()
    return serve.get_app_handle(name)


def value(response: Any, timeout_s: float | None = None) -> Any:
    """Wait for a call's result, in a thread: a notebook's cells run in an event loop, where Serve refuses to wait."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(response.result, timeout_s=timeout_s).result()


def release(name: str) -> None:
    """Stop one engine and its processes."""
    from ray import serve

    _ranges.pop(name, None)
    serve.delete(name)


def release_engines() -> list[str]:
    """Stop the engines that this project runs on the connected cluster, and return their names. Runs on: driver."""
    from ray import serve

    names = [name for name in serve.status().applications if name.startswith(PREFIX)] if _serving() else []
    for name in names:
        _ranges.pop(name, None)
    if names:
        _client().delete_apps(names)
    return names


def shut_down(*, joined: bool) -> None:
    """Let go of the engines, and stop them where the session started Ray. Runs on: driver."""
    global _credentials
    if not joined:
        release_engines()
    if _serving():
        # Their threads would ask the next session's cluster for this one's objects.
        _client().shutdown_cached_handles()
    _ranges.clear()
    _credentials = None


def _client() -> Any:
    from ray.serve.context import _get_global_client

    return _get_global_client()


def _deploy(spec: EngineSpec, name: str, replicas: Replicas, joined: bool) -> None:
    from ray import serve

    global _credentials
    _quiet()
    if not _serving():
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"})
    if _credentials is None and joined:
        _credentials = publish()
    serve.run_many([target(spec, name, replicas)], wait_for_applications_running=False)


def _quiet() -> None:
    logging.getLogger("ray.serve").setLevel(logging.ERROR)


def _wait(handle: DeploymentHandle[Any], name: str, timeout_s: float) -> None:
    from ray import serve
    from ray.serve.exceptions import DeploymentUnavailableError

    began = time.monotonic()
    response = handle.ready.remote()
    while True:
        try:
            value(response, POLL_S)
            return
        except TimeoutError:
            pass
        except DeploymentUnavailableError:
            # What the handle heard last is that the engine of this name was released.
            time.sleep(POLL_S)
            response = handle.ready.remote()
        except Exception as exc:
            raise _start_error(exc) from exc
        app = serve.status().applications.get(name)
        waited = time.monotonic() - began
        if app is None or app.status in FAILED:
            raise EngineStartError(f"engine {name} could not be deployed: {_message(app)}")
        if waited > timeout_s:
            raise EngineStartError(
                f"engine {name} is not ready after startTimeout={timeout_s:g} s; {_message(app)}\n"
                "Raise startTimeout if the model is still loading, or give the cluster what the replica asks for."
            )


def _start_error(exc: Exception) -> EngineStartError:
    cause = getattr(exc, "cause", None) or exc
    if isinstance(cause, EngineStartError):
        return EngineStartError(*cause.args)
    return EngineStartError(f"the engine's process ended while it started: {type(exc).__name__}: {exc}")


def _message(app: Any) -> str:
    if app is None:
        return "its application is gone"
    texts = [app.message, *(d.message for d in app.deployments.values())]
    return " ".join(t for t in texts if t) or f"its status is {app.status}"


def _status(name: str) -> str | None:
    from ray import serve

    if not _serving():
        return None
    app = serve.status().applications.get(name)
    return str(app.status.value) if app else None


def _serving() -> bool:
    import ray

    return ray.is_initialized() and any(
        a.get("name") == "SERVE_CONTROLLER_ACTOR" for a in ray.util.list_named_actors(all_namespaces=True)
    )


def _widest(running: Replicas | None, wanted: Replicas) -> Replicas:
    if running is None:
        return wanted
    low = max(running.min_replicas, wanted.min_replicas)
    high = max(running.max_replicas, wanted.max_replicas)
    return running.model_copy(update={"min_replicas": low, "max_replicas": high})
