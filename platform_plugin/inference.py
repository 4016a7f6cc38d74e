"""Step 8: the requests stream through the engine. The only ``map_batches`` that calls engines.

Runs on: driver. What runs in Ray Data's actors is `forwarder`'s; where engines come from, `pool`'s; what becomes of the
answers, the bridge's.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from platform_plugin import direct
from platform_plugin.config import Ask
from platform_plugin.errors import HandOffError
from platform_plugin.forwarder import Forwarder, Limits
from platform_plugin.monitor import Standing, Watch
from platform_plugin.supervision import Watcher, own_error, supervise
from platform_plugin.tally import Tally

if TYPE_CHECKING:
    import ray.data

# In flight per replica: with 64 rows a batch, as many as an engine schedules at once, so that it never waits for us.
BATCHES_IN_FLIGHT = 16
# Blocks that a forwarder works on at once: the next one's batches fill the engine while the last ones of this end.
BLOCKS_IN_FLIGHT = 4
REPLICAS_PER_FORWARDER = 8


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

    `watch` is called about four times a second with how far the run is; see `supervise`.

    Raises:
        EngineStartError: a replica that was lost could not be replaced.
        HandOffError: a block of requests came back with another number of rows.
    """
    asked = requests.count()
    run = Watch.start()
    # What fails is raised here, or asked again.
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    limits = Limits(batch_rows, BATCHES_IN_FLIGHT * min(max_replicas, REPLICAS_PER_FORWARDER), max_replicas)
    forwarder = (app, ask, run, output)
    if direct.is_small(requests, asked, limits):
        answering: Callable[[], ray.data.Dataset] = functools.partial(
            direct.answer, requests, functools.partial(Forwarder, *forwarder, limits)
        )
    else:
        answering = _streamed(requests, limits, *forwarder).materialize
    job, standing = supervise(answering, run, watch)
    if job.error is not None:
        raise own_error(job.error) from job.error
    watch(standing)
    made = job.result
    assert made is not None
    if made.count() != asked:
        raise HandOffError(f"{asked} requests were handed to Ray and {made.count()} answers came back.")
    return made, standing


def _streamed(requests: ray.data.Dataset, limits: Limits, *forwarder: Any) -> ray.data.Dataset:
    """Return the lazy dataset of the answers, which Ray Data's actors ask for as fast as the engine gives them."""
    from ray.data import ActorPoolStrategy

    answers = requests.map_batches(
        Forwarder,
        fn_constructor_args=(*forwarder, limits),
        batch_size=None,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            size=math.ceil(limits.replicas / REPLICAS_PER_FORWARDER),
            max_concurrent_calls_per_actor=BLOCKS_IN_FLIGHT,
        ),
        num_cpus=0,
    )
    answers.context.enable_progress_bars = False
    return answers


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
