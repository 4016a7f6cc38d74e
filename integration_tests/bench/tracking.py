"""autolog_overhead: seconds that autolog adds to a warm transform, with a real MLflow server on this machine."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import mlflow

from integration_tests.bench import Bench
from integration_tests.bench._banking import messages
from integration_tests.tracking_server import tracking_server
from platform_plugin import LLMPredictor, autolog
from platform_plugin.tracking import flush

ROWS, TIMES = 1000, 7


def run(bench: Bench) -> None:
    """Transform by turns with and without, after one of each; the echo engine, so that what is added shows."""
    stage = LLMPredictor(inputCol="message", engine="echo")
    frame = bench.spark.createDataFrame([(i, text) for i, text in enumerate(messages(ROWS))], "id long, message string")
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder, tracking_server(Path(folder)) as server:
        mlflow.set_tracking_uri(server.uri)
        for turn in range(2 * (TIMES + 1)):
            tracked = turn % 2 == 1
            autolog(disable=not tracked, log_samples=True)
            began = time.monotonic()
            stage.transform(frame)
            seconds[tracked].append(time.monotonic() - began)
            # What is still on its way must not slow the next turn, which is another's.
            flush(60)
        autolog(disable=True)
    off, on = (statistics.median(seconds[tracked][1:]) for tracked in (False, True))
    bench.record("autolog_overhead", on - off, "s", without=off, with_autolog=on, share=(on - off) / off)
