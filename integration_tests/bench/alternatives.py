"""over_hf_pandas_udf, over_sync_batches, over_ray_data_llm: ``transform`` over what teams do without it.

Every side answers the same prompts with the same few-shot prefix, greedily, to the same number of tokens.
raw_over_sync_batches is the bound of over_sync_batches: what the engine alone gains when it has everything at once,
before Spark and Ray are in it.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Any

from integration_tests.bench import Bench
from integration_tests.bench._banking import SYSTEM, messages
from integration_tests.bench._raw import RawEngine
from integration_tests.bench.end_to_end import SAMPLING, transform
from platform_plugin import LLMPredictor, release_engines
from platform_plugin.profiles import load_profile
from platform_plugin.weights import ensure_weights

ROWS, BATCH = 128, 8
SYNC_ROWS = 512
NEW_TOKENS = int(SAMPLING["max_tokens"])


def run(bench: Bench) -> None:
    """Measure ours warm, then each alternative with its model loaded before the clock starts."""
    folder = ensure_weights(load_profile("smollm2-135m"))
    stage = LLMPredictor(inputCol="message", systemPrompt=SYSTEM, samplingParams=SAMPLING)
    transform(bench, stage, messages(64, 2400))
    report = transform(bench, stage, messages(ROWS))
    ours = ROWS * NEW_TOKENS / report.seconds
    theirs = ROWS * NEW_TOKENS / _hf_pandas_udf(bench, folder)
    bench.record("over_hf_pandas_udf", ours / theirs, "ratio", tokens_per_s=ours, hf_pandas_udf_tokens_per_s=theirs)
    report = transform(bench, stage, messages(SYNC_ROWS))
    release_engines()
    tokens = SYNC_ROWS * NEW_TOKENS
    ours, theirs = tokens / report.seconds, tokens / _sync_batches(bench, folder)
    bench.record("over_sync_batches", ours / theirs, "ratio", tokens_per_s=ours, sync_batches_tokens_per_s=theirs)
    raw = tokens / _raw()
    bench.record("raw_over_sync_batches", raw / theirs, "ratio", raw_tokens_per_s=raw, sync_batches_tokens_per_s=theirs)
    if importlib.util.find_spec("ray.llm") is None or importlib.util.find_spec("ray.data.llm") is None:
        sys.stdout.write("over_ray_data_llm: ray.data.llm is not installed here\n")
        return
    sys.stdout.write(
        "over_ray_data_llm: not run; the extra ray[llm] pins another vLLM than ours, so that both sides cannot have "
        "the same engine in one environment\n"
    )


def _hf_pandas_udf(bench: Bench, folder: str) -> float:
    """Return the seconds of HF ``generate`` in batches of 8 inside an iterator pandas UDF, on two Spark cores."""
    import pandas as pd
    from pyspark.sql.functions import pandas_udf
    from pyspark.sql.types import StringType

    def generate(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        for texts in batches:
            out = []
            for i in range(0, len(texts), BATCH):
                chats = [
                    [{"role": "system", "content": SYSTEM}, {"role": "user", "content": t}]
                    for t in texts[i : i + BATCH]
                ]
                rendered = tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True)
                inputs = tokenizer(rendered, return_tensors="pt", padding=True, add_special_tokens=False)
                with torch.no_grad():
                    ids = model.generate(
                        **inputs, do_sample=False, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS
                    )
                out += tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
            yield pd.Series(out)

    # PySpark reads the hints as objects, and here they are texts.
    generate.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}
    udf: Any = pandas_udf(generate, StringType())  # type: ignore[call-overload]
    seconds = []
    for count in (BATCH * 2, ROWS):
        frame = bench.spark.createDataFrame([(t,) for t in messages(count)], "message string").repartition(2)
        began = time.monotonic()
        rows = frame.select(udf("message").alias("reply")).collect()
        seconds.append(time.monotonic() - began)
        if len(rows) != count:
            raise SystemExit("rows are missing")
    # The first, small run loads the model too; what is the same in both goes.
    per_row = (seconds[1] - seconds[0]) / (ROWS - BATCH * 2)
    return per_row * ROWS


def _sync_batches(bench: Bench, folder: str) -> float:
    """Return the seconds of vLLM's synchronous ``LLM.generate`` on batches of 8 in Ray Data's ``map_batches``."""
    import ray
    from ray.data import ActorPoolStrategy

    assert bench.spark is not None  # its session started Ray

    class Predictor:
        def __init__(self) -> None:
            import os

            os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
            from vllm import LLM, SamplingParams

            args = load_profile("smollm2-135m").engine_args
            self._llm: Any = LLM(model=folder, **args)
            self._params = SamplingParams(**SAMPLING)

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            began = time.time()
            chats = [
                [{"role": "system", "content": SYSTEM}, {"role": "user", "content": str(t)}] for t in batch["message"]
            ]
            outputs = self._llm.chat(chats, self._params, use_tqdm=False)
            import numpy as np

            return {
                "reply": np.array([o.outputs[0].text for o in outputs], dtype=object),
                "began": np.full(len(outputs), began),
                "ended": np.full(len(outputs), time.time()),
            }

    items = [{"message": t} for t in [*messages(BATCH, 2400), *messages(SYNC_ROWS)]]
    dataset = ray.data.from_items(items, override_num_blocks=1)
    rows = dataset.map_batches(
        Predictor, batch_size=BATCH, batch_format="numpy", compute=ActorPoolStrategy(size=1), num_cpus=1
    ).take_all()
    # From the second batch on: the first one warms the engine.
    began = sorted({row["began"] for row in rows})
    return float(max(row["ended"] for row in rows) - began[1])


def _raw() -> float:
    """Return the seconds of the bare engine with all messages at once."""
    engine = RawEngine()
    try:
        engine.generate(SYSTEM, messages(64, 2400), **SAMPLING)
        return engine.generate(SYSTEM, messages(SYNC_ROWS), **SAMPLING)[0]
    finally:
        engine.close()
