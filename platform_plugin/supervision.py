"""A job of the cluster that the driver watches: it runs in a thread of its own, so that the driver can interrupt it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from platform_plugin.errors import EngineError, HandOffError, PlatformPluginError
from platform_plugin.keeper import LOST
from platform_plugin.monitor import Standing, Watch

T = TypeVar("T")
Watcher = Callable[[Standing], None]

POLL_S = 0.25
CANCEL_S = 30.0


class Job(Generic[T]):
    """Runs a function in a thread, from now on."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self.result: T | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._run, name="platform-plugin-inference", daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as exc:
            self.error = exc
        finally:
            self.done.set()


def supervise(function: Callable[[], T], run: Watch, watch: Watcher) -> tuple[Job[T], Standing]:
    """Run a job to its end, good or bad, and return it with the run's last standing. Runs on: driver.

    `watch` is called about four times a second with how far the run is; what it raises ends the run, as Ctrl-C does:
    the workers are told to stop, the engine aborts what is in flight, and the engine stays warm.
    """
    import ray

    job = Job(function)
    try:
        while not job.done.wait(POLL_S):
            watch(ray.get(run.tell("standing")))
    except BaseException as exc:
        ray.get(run.tell("stop", type(exc).__name__))
        job.done.wait(CANCEL_S)
        raise
    finally:
        standing: Standing = ray.get(run.tell("standing"))
        run.tell("forget")
    return job, standing


def own_error(exc: BaseException) -> PlatformPluginError:
    """Return the error of ours that was wrapped, or an EngineError with the last words of what was wrapped."""
    from ray.exceptions import ObjectLostError

    seen: list[BaseException] = []
    queue: list[BaseException | None] = [exc]
    while queue:
        found = queue.pop(0)
        if found is None or found in seen:
            continue
        seen.append(found)
        if isinstance(found, PlatformPluginError):
            return type(found)(*found.args)
        if isinstance(found, ObjectLostError):
            return HandOffError(LOST)
        queue += [getattr(found, "cause", None), found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
    return EngineError(f"the run ended: {type(seen[-1]).__name__}: {seen[-1]}")
