"""dedup_gain: rows of which 30 % ask what another one asks, with `deduplicate` on over off."""

from __future__ import annotations

from typing import Any

from integration_tests.bench import Bench
from integration_tests.bench._banking import SYSTEM, messages
from platform_plugin import LLMPredictor

ROWS = 600


def run(bench: Bench) -> None:
    """Answer the rows both ways in one warm engine; other messages each time, so that no cache helps the second."""
    tokens = {"max_tokens": 24, "ignore_eos": True}
    seconds: dict[bool, float] = {}
    for deduplicate, start in ((True, 0), (False, ROWS)):
        texts = messages(int(ROWS * 0.7), start)
        texts += texts[: ROWS - len(texts)]
        frame: Any = bench.spark.createDataFrame(list(enumerate(texts)), "id long, message string")
        stage = LLMPredictor(inputCol="message", systemPrompt=SYSTEM, samplingParams=tokens, deduplicate=deduplicate)
        if deduplicate:
            stage.transform(frame.limit(16))
        stage.transform(frame)
        report = stage.lastReport
        assert report is not None
        seconds[deduplicate] = report.seconds
    bench.record("dedup_gain", seconds[False] / seconds[True], "ratio", off_s=seconds[False], on_s=seconds[True])
