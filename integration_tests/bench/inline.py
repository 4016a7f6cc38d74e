"""What it costs that rows, or requests, pass through Spark's own tasks.

``inline_over_identity``: rows of a stream on their way through an LLM stage, over ``mapInArrow`` that changes nothing.
``udf_over_identity``: such a ``mapInArrow`` on actors, over itself on Spark.
``inline_over_raydp``: an LLM stage's requests, over the same by raydp.
"""

from __future__ import annotations

from typing import Any

from integration_tests.bench import Bench
from integration_tests.bench._turns import apart, in_turns, median
from platform_plugin import LLMPredictor, release_answers
from udf_compat import on_ray

ROWS = 1_000_000
REQUESTS = 100_000


def run(bench: Bench) -> None:
    """Time all of it, warm."""
    _rows(bench)
    _udf(bench)
    _requests(bench)


def _rows(bench: Bench) -> None:
    """Set a million rows of 1 KB on the way of a stream's rows against ``mapInArrow`` that changes nothing.

    All rows ask the same, and a worker asks it once: it is the way of the rows that is measured, not an engine, nor its
    calls, of which ``inline_over_raydp`` has its many.
    """
    frame = _frame(bench)
    stage = LLMPredictor(inputCol="message", engine="echo")
    # What `transform` returns for a stream; a batch frame would be answered at once.
    answered = stage._stream_of(frame)
    with apart(bench.spark):
        same = frame.mapInArrow(lambda batches: batches, frame.schema)
    cold, inline, identity = in_turns(answered, same, 3)
    if answered.where("prediction = 'one'").count() != ROWS:
        raise SystemExit("rows are missing")
    sides = {"inline_s": inline, "identity_s": identity, "inline_cold_s": cold}
    # In our workers, which have joined Ray and do less between tasks, Spark's own function is faster, too.
    sides["identity_in_our_workers_s"] = median(frame.mapInArrow(lambda batches: batches, frame.schema), 3)
    bench.record("inline_over_identity", inline / identity, "ratio", **sides)


def _udf(bench: Bench) -> None:
    frame = _frame(bench)

    def same(batches: Any) -> Any:
        yield from batches

    ours = frame.mapInArrow(on_ray(same), frame.schema)
    with apart(bench.spark):
        sparks = frame.mapInArrow(same, frame.schema)
    cold, ray, identity = in_turns(ours, sparks, 3)
    bench.record("udf_over_identity", ray / identity, "ratio", ray_s=ray, identity_s=identity, ray_cold_s=cold)


def _frame(bench: Bench) -> Any:
    from pyspark.sql import functions as F

    spark = bench.spark  # which makes columns possible
    text = F.repeat(F.md5(F.col("id").cast("string")), 31)
    return spark.range(0, ROWS, 1, 32).select("id", text.alias("text"), F.lit("one").alias("message"))


def _requests(bench: Bench) -> None:
    """Set the transform of distinct requests inline against the same over raydp."""
    from pyspark.sql import functions as F

    spark = bench.spark
    message = F.concat(F.lit("message "), F.col("id").cast("string"))
    frame: Any = spark.range(0, REQUESTS, 1, 8).select(message.alias("message"))
    seconds: dict[str, float] = {}
    for way in ("raydp", "inline"):
        stage = LLMPredictor(inputCol="message", engine="echo", batchSize=1024, handOff=way)
        release_answers(stage.transform(frame.limit(1000)))
        out = stage.transform(frame)
        report = stage.lastReport
        assert report is not None
        if out.where("prediction IS NOT NULL").count() != REQUESTS:
            raise SystemExit("rows are missing")
        release_answers(out)
        seconds[way] = report.seconds
    sides = {f"{way}_s": taken for way, taken in seconds.items()}
    bench.record("inline_over_raydp", seconds["inline"] / seconds["raydp"], "ratio", **sides)
