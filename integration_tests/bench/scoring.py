"""scoring_overhead_ms: what ``scoreInstance`` adds to a direct call of the warm engine, for one row and one token."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from integration_tests.bench import Bench
from integration_tests.bench._banking import messages
from platform_plugin import LLMPredictor, pool

CALLS = 100


def run(bench: Bench) -> None:
    """Ask messages by both ways, in turns, of the engine with the real model."""
    assert bench.spark is not None  # its session started Ray
    stage = LLMPredictor(inputCol="message", samplingParams={"max_tokens": 1})
    texts = messages(2 * CALLS)
    stage.scoreInstance({"message": texts[0]})
    handle = pool.handle(pool.app_name(stage.spec()))
    ask = stage.ask()

    def direct(text: str) -> Any:
        return handle.infer.remote(pa.table({"key": [b"0"], "prompt": [text]}), ask).result()

    scored, called = [], []
    # Each text once: a prompt that was asked before is half answered from the prefix cache.
    for number, text in enumerate(texts):
        if number % 2:
            called.append(_seconds(lambda text=text: direct(text)))
        else:
            scored.append(_seconds(lambda text=text: stage.scoreInstance({"message": text})))
    ours, theirs = statistics.median(scored) * 1e3, statistics.median(called) * 1e3
    bench.record("scoring_overhead_ms", ours - theirs, "ms", score_instance_ms=ours, direct_call_ms=theirs)


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
