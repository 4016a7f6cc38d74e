"""Tracked runs and logged models against a real MLflow server, and `predict` as a scheduler runs it."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.sql import DataFrame, SparkSession

from integration_tests.tracking_server import Server, tracking_server
from platform_plugin import LLMPredictor, RunReport, autolog, files, log_model
from platform_plugin.tracking import flush

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
JARS = Path(__file__).parents[2] / "shared/jars"
CLEAN = "SELECT *, trim(message) AS clean FROM __THIS__"
ROWS = [
    (1, " my card is lost ", "Oslo"),
    (2, None, "Lima"),
    (3, "unanswerable", "Oslo"),
    (4, "my card is lost", "Oslo"),
]


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    autolog(disable=True)


@pytest.fixture(scope="module")
def df(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, "id long, message string, city string")


def fitted(df: DataFrame, llm: LLMPredictor) -> PipelineModel:
    return Pipeline(stages=[SQLTransformer(statement=CLEAN), llm]).fit(df)


def by_id(frame: DataFrame) -> dict[int, str | None]:
    return {row["id"]: row["topic"] for row in frame.collect()}


def read(run_id: str, path: str) -> Any:
    return json.loads(Path(mlflow.artifacts.download_artifacts(f"runs:/{run_id}/{path}")).read_text())


def test_what_a_transform_did_is_in_the_run(server: Server, df: DataFrame, echo: Callable[..., LLMPredictor]) -> None:
    llm = echo(promptTemplate="{clean} in {city}", outputCol="topic")
    autolog(log_samples=True, log_models=True)
    with mlflow.start_run() as run:
        answers = by_id(fitted(df, llm).transform(df))
    assert flush(60)
    run = mlflow.get_run(run.info.run_id)
    report = llm.lastReport
    assert report is not None
    assert RunReport.from_dict(read(run.info.run_id, "topic/report.json")) == report
    assert run.data.metrics["rows"] == 4
    assert run.data.metrics["distinct"] == report.distinct == 2
    assert run.data.metrics["output_tokens"] == report.output_tokens > 0
    assert run.data.params["promptTemplate"] == "{clean} in {city}"
    assert run.data.metrics["system/cpu_utilization_percentage"] >= 0
    table = read(run.info.run_id, "topic/sample.json")
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    shown = {row["prompt"]: row["output"] for row in rows}
    assert shown == {"my card is lost in Oslo": answers[1], "unanswerable in Oslo": None}
    assert [row["error"] for row in rows if row["output"] is None] == [*report.failed]
    model = mlflow.pyfunc.load_model(f"models:/{run.outputs.model_outputs[0].model_id}")
    assert model.metadata.metadata["platform_plugin"]["answers"] == "topic"


def test_a_server_that_goes_away_takes_no_row_with_it(
    tmp_path: Path, server: Server, df: DataFrame, echo: Callable[..., LLMPredictor], caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = fitted(df, echo(promptTemplate="{clean} in {city}", outputCol="topic"))
    expected = by_id(pipeline.transform(df))
    autolog()
    try:
        with tracking_server(tmp_path / "other") as other:
            mlflow.set_tracking_uri(other.uri)
            mlflow.set_experiment(__name__)
            assert by_id(pipeline.transform(df)) == expected
            assert flush(60)
            assert len(mlflow.search_runs(output_format="list")) == 1
            other.stop()
            with caplog.at_level(logging.WARNING, "platform_plugin"):
                for _ in range(2):
                    assert by_id(pipeline.transform(df)) == expected
                assert flush(60)
    finally:
        mlflow.set_tracking_uri(server.uri)
        mlflow.set_experiment(__name__)
    told = [record.getMessage() for record in caplog.records if "does not take" in record.getMessage()]
    assert len(told) == 1, told


FRESH = """
import json, sys
import mlflow, pandas
mlflow.set_tracking_uri(sys.argv[1])
rows = json.loads(sys.argv[2])
frame = pandas.DataFrame(rows, columns=["id", "message", "city"])
model = mlflow.pyfunc.load_model("models:/topics@champion")
predicted = model.predict(frame)
from pyspark.sql import SparkSession
spark = SparkSession.getActiveSession()
df = spark.createDataFrame([tuple(row) for row in rows], "id long, message string, city string")
loaded = mlflow.spark.load_model("models:/topics@champion").transform(df)
transformed = {row["id"]: row["topic"] for row in loaded.collect()}
import platform_plugin
print(json.dumps([predicted, transformed, platform_plugin.__file__]))
"""


@pytest.mark.slow
def test_with_only_its_requirements_a_logged_model_answers_as_the_original(
    server: Server, df: DataFrame, echo: Callable[..., LLMPredictor], script: Callable[..., Any], tmp_path: Path
) -> None:
    pipeline = fitted(df, echo(promptTemplate="{clean} in {city}", outputCol="topic"))
    expected = by_id(pipeline.transform(df))
    with mlflow.start_run():
        log_model(pipeline, "topics", input_example=df, alias="champion")
    folder = mlflow.artifacts.download_artifacts("models:/topics@champion", dst_path=str(tmp_path))
    python = tmp_path / "venv/bin/python"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "-q", "--python", sys.executable, str(tmp_path / "venv")], check=True)
    install = [*uv, "pip", "install", "-q", "--python", str(python), "-r", f"{folder}/requirements.txt"]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(f"no package index that uv reaches: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    # From a folder where nothing of this checkout can be imported.
    (tmp_path / "fresh.py").write_text(FRESH)
    ran = subprocess.run(
        [str(python), "fresh.py", server.uri, json.dumps(ROWS)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RAY_AUTH_MODE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    predicted, transformed, home = json.loads(ran.stdout.splitlines()[-1])
    assert home.startswith(str(tmp_path / "venv"))
    assert predicted == [expected[row[0]] for row in ROWS]
    assert {int(key): value for key, value in transformed.items()} == expected
    assert [value is None for value in predicted] == [False, True, True, False]


def test_the_readme_tells_how(server: Server, df: DataFrame, echo: Callable[..., LLMPredictor]) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = (text for text in re.findall(r"```py\n(.*?)```", readme, re.DOTALL) if "log_model(" in text)
    llm = echo(promptTemplate="{clean} in {city}", outputCol="topic")
    names: dict[str, Any] = {"df": df, "model": fitted(df, llm)}
    exec(example, names)
    expected = by_id(names["topics"])
    assert by_id(names["again"]) == expected
    assert names["answers"] == [expected[row[0]] for row in ROWS]
    given = dict(zip(("id", "clean", "city"), (1, "my card is lost", "Oslo"), strict=True))
    assert names["stage"].scoreInstance(given)["topic"] == expected[1]


PREDICT = """
from platform_plugin.cli import main
main()
"""


@pytest.fixture(scope="module")
def saved(df: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    args = {"max_model_len": 64, "fail_on": "unanswerable"}
    llm = LLMPredictor(promptTemplate="{clean} in {city}", outputCol="topic", engine="echo", engineArgs=args)
    fitted(df, llm).save(str(folder / "pipeline"))
    df.coalesce(1).write.parquet(str(folder / "rows"))
    return folder


@pytest.mark.slow
def test_predict_writes_every_row_and_says_how_it_ended(
    saved: Path, script: Callable[..., Any], spark: SparkSession
) -> None:
    paths = ["--pipeline", str(saved / "pipeline"), "--input", str(saved / "rows"), "--output", str(saved / "out")]
    ran = script(PREDICT, arguments=["predict", *paths, "--output-format", "csv", "--strict"])
    last = ran.finish(400).splitlines()[-1]
    assert ran.process.returncode == 3, ran.errors()
    assert last.startswith("predict ok rows=4 no_answer=2 requests=2 ")
    assert last.endswith(f"output={saved / 'out'}")
    rows = files.read(spark, str(saved / "out"), "csv").collect()
    assert {row["id"] for row in rows} == {1, 2, 3, 4}
    assert {row["message"] for row in rows} == {row[1] for row in ROWS}
    assert {json.loads(row["topic_error"])["type"] for row in rows if row["topic_error"]} >= {"NullPrompt"}
    assert sorted(path.name for path in saved.iterdir()) == ["out", "pipeline", "rows"], "nothing is left beside it"


@pytest.mark.slow
def test_predict_reads_and_writes_delta(saved: Path, script: Callable[..., Any], df: DataFrame) -> None:
    jars = ",".join(str(path) for path in sorted(JARS.glob("delta-*.jar")))
    if not jars:
        pytest.skip(f"no Delta jars in {JARS}")
    arguments = ["predict", "--pipeline", str(saved / "pipeline"), "--input", str(saved / "rows"), "--json"]
    arguments += ["--output", str(saved / "delta"), "--output-format", "delta", "--jars", jars]
    told = script(PREDICT, arguments=arguments).found(400)
    assert (told["status"], told["rows"], told["no_answer"]) == ("ok", 4, 2)
    assert told["reports"][0]["rows"] == 4
    (log,) = (saved / "delta/_delta_log").glob("*.json")
    added = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    assert sum(json.loads(one["stats"])["numRecords"] for one in added) == 4
