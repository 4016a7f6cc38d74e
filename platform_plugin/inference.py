"""Step 8: the requests stream through the engine. The only ``map_batches`` that calls engines.

Runs on: driver. What runs in Ray Data's actors is `forwarder`'s; where engines come from, `pool`'s; what becomes of the
answers, the bridge's.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from platform_plugin.config import Ask
from platform_plugin.errors import EngineError, HandOffError, PlatformPluginError
from platform_plugin.forwarder import Forwarder, Limits
from platform_plugin.monitor import Standing, Watch
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    import ray.data

Watcher = Callable[[Standing], None]

# In flight per replica: with 64 rows a batch, as many as an engine schedules at once, so that it never waits for us.
BATCHES_IN_FLIGHT = 16
# Blocks that a forwarder works on at once: the next one's batches fill the engine while the last ones of this end.
BLOCKS_IN_FLIGHT = 4
REPLICAS_PER_FORWARDER = 8
POLL_S = 0.25
CANCEL_S = 30.0


def infer(
    requests: ray.data.Dataset,
    app: str,
    ask: Ask,
    output: pa.DataType,
    *,
    batch_rows: int,
    max_replicas: int,
    watch: Watcher,
) -> tuple[ray.data.Dataset, Standing]:
    """Answer every request and return the materialized answers with the run's last standing. Runs on: driver.

    `watch` is called about four times a second with how far the run is; what it raises ends the run, as Ctrl-C does:
    the workers are told to stop, the engine aborts what is in flight, and the engine stays warm.

    Raises:
        EngineStartError: a replica that was lost could not be replaced.
        HandOffError: a block of requests came back with another number of rows.
    """
    import ray
    from ray.data import ActorPoolStrategy

    asked = requests.count()
    run = Watch.start()
    # What fails is raised here, or asked again.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    limits = Limits(batch_rows, BATCHES_IN_FLIGHT * min(max_replicas, REPLICAS_PER_FORWARDER), max_replicas)
    answers = requests.map_batches(
        Forwarder,
        fn_constructor_args=(app, ask, run, output, limits),
        batch_size=None,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            size=math.ceil(max_replicas / REPLICAS_PER_FORWARDER),
            max_concurrent_calls_per_actor=BLOCKS_IN_FLIGHT,
        ),
        num_cpus=0,
    )
    answers.context.enable_progress_bars = False
    worker = _Worker(answers)
    try:
        while not worker.done.wait(POLL_S):
            watch(ray.get(run.tell("standing")))
    except BaseException as exc:
        ray.get(run.tell("stop", type(exc).__name__))
        worker.done.wait(CANCEL_S)
        raise
    finally:
        standing: Standing = ray.get(run.tell("standing"))
        run.tell("forget")
    if worker.error is not None:
        raise _own(worker.error) from worker.error
    watch(standing)
    made = worker.result
    assert made is not None
    if made.count() != asked:
        raise HandOffError(f"{asked} requests were handed to Ray and {made.count()} answers came back.")
    return made, standing


def count(answers: ray.data.Dataset) -> tuple[Tally, int]:
    """Sum what the answers say, each exactly once, where they lie; also their size in bytes. Runs on: driver."""
    import ray

    @ray.remote(num_cpus=0)
    def one(block: pa.Table) -> tuple[Tally, int]:
        part = Tally()
        part.add(block)
        return part, block.nbytes

    tally, size = Tally(), 0
    for part, size_bytes in ray.get([one.remote(ref) for ref in answers.to_arrow_refs()]):
        tally.merge(part)
        size += size_bytes
    return tally, size


class _Worker:
    """Materializes a dataset in a thread, so that the driver's own thread can watch, and can be interrupted."""

    def __init__(self, dataset: ray.data.Dataset) -> None:
        self._dataset = dataset
        self.result: ray.data.Dataset | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._run, name="platform-plugin-inference", daemon=True).start()

    def _run(self) -> None:
        try:
            self.result = self._dataset.materialize()
        except BaseException as exc:
            self.error = exc
        finally:
            self.done.set()


def _own(exc: BaseException) -> BaseException:
    """Return the error of ours that Ray wrapped, or an EngineError with the last words of what it wrapped."""
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [exc]
    while queue:
        found = queue.pop(0)
        if found is None or found in seen:
            continue
        seen.append(found)
        if isinstance(found, PlatformPluginError):
            return type(found)(*found.args)
        queue += [getattr(found, "cause", None), found.__cause__, found.__context__, *getattr(found, "exceptions", ())]
    return EngineError(f"the run ended: {type(seen[-1]).__name__}: {seen[-1]}")
