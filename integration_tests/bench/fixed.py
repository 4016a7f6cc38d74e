"""transform_fixed_seconds: what a warm ``transform`` costs beside the answers: ten rows of one token each."""

from __future__ import annotations

import statistics

from integration_tests.bench import Bench
from integration_tests.bench._banking import messages
from integration_tests.bench.end_to_end import transform
from platform_plugin import LLMPredictor


def run(bench: Bench) -> None:
    """Transform ten rows five times after a first one that starts the engine."""
    stage = LLMPredictor(inputCol="message", samplingParams={"max_tokens": 1})
    transform(bench, stage, messages(10))
    reports = [transform(bench, stage, messages(10)) for _ in range(5)]
    steps = {
        f"seconds_{name.replace(' ', '_')}": statistics.median(r.steps[name] for r in reports)
        for name in reports[0].steps
    }
    bench.record("transform_fixed_seconds", statistics.median(r.seconds for r in reports), "s", **steps)
