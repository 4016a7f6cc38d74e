"""prefix_ordering_gain, prefix_hit_rate_ordered, prefix_hit_rate_shuffled: 32 prefixes of about 500 tokens x 8 rows,
shuffled, in a KV cache that is too small for all of them.
"""

from __future__ import annotations

import random

from integration_tests.bench import Bench
from integration_tests.bench._banking import messages
from platform_plugin import LLMPredictor, release_engines

PREFIXES, EACH = 32, 8
# About 8 of the 32 prefixes: 23 KB a token for this model.
ARGS = {"kv_cache_memory_bytes": 96 * 2**20, "max_num_seqs": 4, "max_model_len": 1024}


def run(bench: Bench) -> None:
    """Run the same rows with prefixOrdering on and off, each in a fresh engine."""
    rng = random.Random(7)
    words = [w for text in messages(1500) for w in text.split()]
    prefixes = [" ".join(rng.choices(words, k=360)) for _ in range(PREFIXES)]
    tails = messages(PREFIXES * EACH, 1500)
    prompts = [f"{prefix}\n\n{tails.pop()}" for prefix in prefixes for _ in range(EACH)]
    rng.shuffle(prompts)
    frame = bench.spark.createDataFrame([(p,) for p in prompts], "message string").repartition(1)
    seconds, rates = {}, {}
    for ordered in (False, True):
        release_engines()
        stage = LLMPredictor(
            inputCol="message",
            engineArgs=ARGS,
            samplingParams={"max_tokens": 4, "ignore_eos": True},
            prefixOrdering=ordered,
            batchSize=8,
        )
        stage.transform(frame.limit(2))
        stage.transform(frame)
        report = stage.lastReport
        assert report is not None
        seconds[ordered], rates[ordered] = report.answering_s, report.prefix_hit_rate or 0.0
    bench.record(
        "prefix_ordering_gain",
        seconds[False] / seconds[True],
        "ratio",
        shuffled_seconds=seconds[False],
        ordered_seconds=seconds[True],
    )
    bench.record("prefix_hit_rate_ordered", rates[True], "share")
    bench.record("prefix_hit_rate_shuffled", rates[False], "share")
    release_engines()
