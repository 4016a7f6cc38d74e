"""end_to_end_over_raw_engine: tokens/s of a warm ``transform`` over those of the raw engine, on the same messages."""

from __future__ import annotations

from typing import Any

from integration_tests.bench import Bench
from integration_tests.bench._banking import SYSTEM, messages
from integration_tests.bench._raw import RawEngine
from platform_plugin import LLMPredictor

SAMPLING = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}


def run(bench: Bench) -> None:
    """Run 400 and 2,000 messages on both sides, in turns; both engines are warm, and idle while the other works."""
    stage = LLMPredictor(inputCol="message", systemPrompt=SYSTEM, samplingParams=SAMPLING)
    transform(bench, stage, messages(64, 2400))
    raw = RawEngine()
    try:
        raw.generate(SYSTEM, messages(64, 2400), **SAMPLING)
        for count in (400, 2000):
            seconds, tokens = raw.generate(SYSTEM, messages(count), **SAMPLING)
            report = transform(bench, stage, messages(count))
            ours, theirs = report.output_tokens / report.seconds, tokens / seconds
            bench.record(
                f"end_to_end_over_raw_engine{'' if count == 2000 else '_400'}",
                ours / theirs,
                "ratio",
                end_to_end_tokens_per_s=ours,
                raw_tokens_per_s=theirs,
                engine_busy_share=report.engine_busy_share or 0.0,
                prefix_hit_rate=report.prefix_hit_rate or 0.0,
                **{f"seconds_{name.replace(' ', '_')}": value for name, value in report.steps.items()},
            )
    finally:
        raw.close()


def transform(bench: Bench, stage: LLMPredictor, texts: list[str]) -> Any:
    """Transform the messages and return the report."""
    frame = bench.spark.createDataFrame([(i, text) for i, text in enumerate(texts)], "id long, message string")
    stage.transform(frame)
    report = stage.lastReport
    assert report is not None
    if report.failed or report.refused:
        raise SystemExit(f"rows failed, the figure would lie: {report}")
    return report
