"""Vectors of texts: the embedded MiniLM through vLLM against the same model through transformers; echoes beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.clustering import KMeans
from pyspark.sql import DataFrame, SparkSession

from platform_plugin import LLMEmbedder, LLMPredictor, release_engines
from platform_plugin.errors import ConfigError
from platform_plugin.profiles import load_profile
from platform_plugin.weights import ensure_weights

pytestmark = [pytest.mark.ray]
TEXTS = (
    *("my card was stolen", "my card has been stolen", "where is my driver", "the driver never came"),
    *(None, " ", "word " * 600),
)


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(list(enumerate(TEXTS)), "id int, message string")


@pytest.fixture(scope="module", autouse=True)
def _engines_end() -> Iterator[None]:
    """Give the memory back, and let later tests count their own engines."""
    yield
    release_engines()


def vectors(frame: DataFrame, name: str = "embedding") -> dict[int, Any]:
    return {row["id"]: row[name] for row in frame.collect()}


def kinds(frame: DataFrame) -> dict[int, str]:
    errors = frame.where("embedding_error is not null").select("id", "embedding_error.type").collect()
    return {row["id"]: row["type"] for row in errors}


def by_transformers(texts: list[str]) -> Any:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = ensure_weights(load_profile("minilm-l6-v2"))
    tokens = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(mean).numpy()


@pytest.mark.vllm
def test_vectors_are_those_of_the_model(texts: DataFrame) -> None:
    pytest.importorskip("vllm", reason="vllm is not installed: the extra `cpu` or `gpu`")
    stage = LLMEmbedder(inputCol="message", detailsCol="details")
    made = stage.transform(texts)
    found = vectors(made)
    wanted = by_transformers([t for t in TEXTS[:4] if t])
    assert np.abs(np.array([found[i] for i in range(4)]) - wanted).max() < 1e-5
    assert kinds(made) == {4: "NullPrompt", 5: "EmptyPrompt", 6: "PromptTooLong"}
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.distinct, report.failed) == (7, 5, {"PromptTooLong": 1})
    assert report.prompt_tokens > 20
    assert "out" not in str(report).split("tokens")[1].splitlines()[0]

    scored = stage.scoreInstances([{"id": i, "message": text} for i, text in enumerate(TEXTS)])
    assert [row["embedding"] and len(row["embedding"]) for row in scored] == [384] * 4 + [None] * 3
    assert np.abs(np.array([row["embedding"] for row in scored[:4]]) - wanted).max() < 1e-5

    cut = stage.copy({stage.promptTooLong: "truncate_right", stage.outputType: "vector"}).transform(texts)
    assert kinds(cut) == {4: "NullPrompt", 5: "EmptyPrompt"}
    assert vectors(cut)[6].size == 384
    assert cut.where("id = 6").first().details["truncated"]


def echoing(**params: Any) -> LLMEmbedder:
    return LLMEmbedder(inputCol="message", engine="echo", engineArgs={"max_model_len": 64}, **params)


def test_vectors_feed_stages_of_spark_and_survive_a_save(texts: DataFrame, tmp_path: Path) -> None:
    good = texts.where("id < 4")
    embedder = echoing(outputType="vector", poolingParams={"dimensions": 8})
    model = Pipeline(stages=[embedder, KMeans(featuresCol="embedding", k=2, seed=1)]).fit(good)
    model.write().overwrite().save(str(tmp_path / "model"))
    again = PipelineModel.load(str(tmp_path / "model"))
    clusters = again.transform(good)
    assert clusters.schema["embedding"] == embedder.transformSchema(good.schema)["embedding"]
    assert vectors(clusters, "embedding") == vectors(model.transform(good), "embedding")
    groups = vectors(clusters, "cluster" if "cluster" in clusters.columns else "prediction")
    assert groups[0] == groups[1] != groups[2]
    scored = embedder.scoreInstance({"id": 0, "message": TEXTS[0]})
    assert scored["embedding"] == vectors(clusters)[0]


def test_skip_and_stream(texts: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    kept = echoing(handleInvalid="skip").transform(texts)
    assert sorted(vectors(kept)) == [0, 1, 2, 3]
    texts.where("id < 5").coalesce(1).write.json(str(tmp_path / "in"))
    stream = spark.readStream.schema(texts.schema).json(str(tmp_path / "in"))
    stage = echoing(outputType="vector")
    query = stage.transform(stream).writeStream.format("memory").queryName("embedded").trigger(availableNow=True)
    query.start().awaitTermination(120)
    assert vectors(spark.table("embedded")) == vectors(stage.transform(texts.where("id < 5")))


def test_example_of_the_readme_runs(texts: DataFrame) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = (text for text in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "KMeans" in text)
    names: dict[str, Any] = {"df": texts}
    exec(example.replace('inputCol="message"', 'inputCol="message", engine="echo"'), names)
    assert names["groups"].transform(texts).count() == 5


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (echoing(poolingParams={"dimension": 8}), "'dimension' is not known.*dimensions"),
        (echoing(poolingParams={"dimensions": "8"}), "dimensions='8', but it must be an integer"),
        (LLMEmbedder(inputCol="message", promptTemplate="{message}"), "inputCol and promptTemplate"),
        (LLMPredictor(inputCol="message", model="minilm-l6-v2"), "embeds here.*LLMEmbedder"),
        (LLMEmbedder(inputCol="message", engineArgs={"runner": "generate"}), "generates here.*LLMPredictor"),
    ],
)
def test_mistakes_are_told_before_the_cluster_moves(texts: DataFrame, stage: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stage.transformSchema(texts.schema)


def test_preflight_counts_tokens_and_no_output(texts: DataFrame) -> None:
    found = echoing().preflight(texts)
    assert (found.rows, found.distinct, found.output_tokens_bound, found.too_long) == (7, 5, 0, 1)
    assert "vectors" in str(found)


def test_params_are_told_in_json(tmp_path: Path) -> None:
    echoing(outputType="vector").save(str(tmp_path / "stage"))
    (part,) = (tmp_path / "stage/metadata").glob("part-*")
    saved = json.loads(part.read_text())
    assert saved["class"] == "platform_plugin.stages.LLMEmbedder"
    assert saved["paramMap"]["outputType"] == "vector"
