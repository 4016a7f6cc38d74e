"""UDFs and models as stages, on real actors: Spark's own answers, errors by row, one load an actor, persistence."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import safetensors.torch
import torch
from pyspark.ml import Pipeline
from pyspark.ml.functions import array_to_vector
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from integration_tests import mapped_cases as cases
from platform_plugin.errors import ConfigError
from platform_plugin.stages import ModelPredictor, UDFPredictor

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]

CASES = "integration_tests.mapped_cases"
# One pool, so that the tests do not wait for actors of their own.
POOL = {"pool": "mapped", "num_cpus": 0.5, "replicas": 1}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    """100 rows in four partitions: `value` is 13 once, `signed` negative and `whole` nought in a few rows."""
    rows = spark.range(0, 100, 1, 4)
    return rows.select(
        "id",
        F.col("id").cast("double").alias("value"),
        F.when(F.col("id").isin(7, 8, 60), -1.0).otherwise(F.col("id").cast("double")).alias("signed"),
        (F.col("id") % 40).alias("whole"),
        F.concat(F.lit("row "), F.col("id")).alias("text"),
        F.array(F.col("id") * 0.5, F.lit(1.0)).alias("features"),
    )


def udf_stage(name: str, *columns: str, **params: Any) -> UDFPredictor:
    return UDFPredictor(function=f"{CASES}:{name}", inputCols=list(columns), **{"onRay": POOL, **params})


def model_stage(name: str, *columns: str, **params: Any) -> ModelPredictor:
    return ModelPredictor(model=f"{CASES}:{name}", inputCols=list(columns), **{"onRay": POOL, **params})


def rows(made: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in made.collect()]


WHOLE = ("plus_one_udf", "id"), ("parts_udf", "value", "text"), ("word_udf", "id")
STREAMS = ("iterated_udf", "value", "text"), ("batch_udf", "value")


@pytest.mark.parametrize("handle", ["error", "keep"])
@pytest.mark.parametrize("case", [*WHOLE, *STREAMS], ids=lambda case: case[0])
def test_udf_answers_as_on_spark_in_the_order_of_the_rows(frame: DataFrame, case: tuple[str, ...], handle: str) -> None:
    name, *columns = case
    stage = udf_stage(name, *columns, handleInvalid=handle)
    if handle == "keep" and case in STREAMS:
        with pytest.raises(ConfigError, match="belongs to no row"):
            stage.transform(frame)
        return
    wanted = frame.select("*", getattr(cases, name)(*columns).alias("prediction"))
    made = stage.transform(frame)
    assert made.drop("prediction_error").collect() == wanted.collect()
    assert made.schema["prediction"].dataType == wanted.schema["prediction"].dataType
    assert made.schema == stage.transformSchema(frame.schema)


def test_plain_functions_are_called_by_batch_or_by_row_as_their_hints_say(frame: DataFrame) -> None:
    by_batch = udf_stage("plus_one", "id", returnType="bigint", outputCol="a")
    by_row = udf_stage("word", "id", returnType="bigint", outputCol="b")
    made = rows(by_row.transform(by_batch.transform(frame)))
    assert [(row["a"], row["b"]) for row in made] == [(n + 1, n * 10) for n in range(100)]


def test_the_users_exception_ends_the_job_under_its_own_name(frame: DataFrame) -> None:
    with pytest.raises(Exception, match=r"NegativeError: -1 has no root"):
        udf_stage("root_udf", "signed").transform(frame).collect()


@pytest.mark.parametrize(
    ("name", "columns", "bad", "told"),
    [
        ("root_udf", ["signed"], [7, 8, 60], ("NegativeError", "-1 has no root")),
        ("parts_udf", ["signed", "text"], [7, 8, 60], ("NegativeError", "no parts")),
        ("reciprocal_udf", ["whole"], [0, 40, 80], ("ZeroDivisionError", "division by zero")),
    ],
)
def test_rows_that_a_udf_raises_for_are_kept_with_the_error_or_left_out(
    frame: DataFrame, name: str, columns: list[str], bad: list[int], told: tuple[str, str]
) -> None:
    stage = udf_stage(name, *columns, handleInvalid="keep")
    made = stage.transform(frame)
    kept = rows(made)
    assert [row["id"] for row in kept] == list(range(100))
    assert [row["id"] for row in kept if row["prediction_error"]] == bad
    assert [row["id"] for row in kept if row["prediction"] is None] == bad
    error = {"stage": "udf", "type": told[0], "message": told[1], "retryable": False}
    assert kept[bad[0]]["prediction_error"] == error
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.failed) == (100, {told[0]: 3})
    assert report.seconds > 0

    skipped = stage.copy({stage.handleInvalid: "skip"}).transform(frame)
    assert skipped.schema == made.schema
    assert rows(skipped) == [row for row in kept if not row["prediction_error"]]


def test_function_is_called_once_a_row_though_errors_are_filtered(frame: DataFrame) -> None:
    stage = udf_stage("reciprocal_udf", "whole", handleInvalid="skip")
    assert stage.lastReport is None
    made = stage.transform(frame)
    report = stage.lastReport
    assert report is not None
    assert report.rows == 0  # lazy
    assert len(made.where("prediction > 0.5").collect()) == 3
    report = stage.lastReport
    assert report is not None
    assert report.rows == 100


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one linear module as TorchScript, as safetensors and as an MLflow model."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    module = cases.Linear(2)
    torch.jit.script(module).save(str(folder / "linear.pt"))
    safetensors.torch.save_file(module.state_dict(), folder / "linear.safetensors")
    weights = module.layer.weight.detach().numpy()[0], float(module.layer.bias.detach())

    class Loaded(mlflow.pyfunc.PythonModel):  # type: ignore[misc, name-defined]
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]  # MLflow reads hints
            return pd.DataFrame({"y": [float(np.dot(f, weights[0]) + weights[1]) for f in model_input["features"]]})

    mlflow.pyfunc.save_model(str(folder / "linear"), python_model=Loaded(), pip_requirements=[])
    return folder


FORMS: dict[str, dict[str, Any]] = {
    "linear.pt": {},
    "linear.safetensors": {"moduleClass": f"{CASES}:Linear", "modelArgs": {"width": 2}},
    "linear": {},
}


@pytest.mark.parametrize("form", FORMS)
def test_model_of_each_form_predicts_with_arrays_and_vectors(frame: DataFrame, models: Path, form: str) -> None:
    stage = ModelPredictor(
        model=str(models / form), **FORMS[form], inputCols=["features"], outputSchema="float", onRay=POOL
    )
    vectors = frame.withColumn("features", array_to_vector("features")) if form == "linear.pt" else frame
    module = cases.Linear(2)
    module.load_state_dict(safetensors.torch.load_file(models / "linear.safetensors"))
    wanted = module(torch.tensor([[n * 0.5, 1.0] for n in range(100)])).detach().numpy()[:, 0]
    made = rows(stage.transform(vectors))
    assert [row["prediction"] for row in made] == pytest.approx(wanted.tolist(), rel=1e-5)
    assert {row["prediction_error"] for row in made} == {None}
    assert stage.scoreInstance({"features": [1.5, 1.0]})["prediction"] == pytest.approx(float(wanted[3]), rel=1e-5)


def weighted(folder: Path | None = None, **params: Any) -> ModelPredictor:
    args = {"weight": 2.0} | ({"folder": str(folder)} if folder is not None else {})
    more = {"outputSchema": "label STRING, score DOUBLE", "modelArgs": args, **params}
    return model_stage("Weighted", "value", "features", **more)


def test_model_is_loaded_once_an_actor_by_all_transforms_and_callers(frame: DataFrame, tmp_path: Path) -> None:
    own = {"num_cpus": 0.5, "replicas": 1}
    stage = weighted(tmp_path, onRay=own)
    first = rows(stage.transform(frame))
    other = stage.copy({stage.outputCol: "again", stage.handleInvalid: "skip", stage.outputSchema: "score float"})
    assert len(rows(other.transform(frame))) == 99
    asked = [{"value": row["value"], "features": row["features"]} for row in first]
    assert stage.scoreInstances(asked) == [
        {"value": row["value"], "features": row["features"], **{k: row[k] for k in ("prediction", "prediction_error")}}
        for row in first
    ]
    assert asyncio.run(stage.ascoreInstance(asked[3])) == stage.scoreInstance(asked[3])
    assert first[60]["prediction"] == {"label": "high", "score": 62.0}
    assert first[13]["prediction"] is None
    assert first[13]["prediction_error"] == {
        "stage": "model",
        "type": "NegativeError",
        "message": "13 is bad luck",
        "retryable": False,
    }
    assert len(list(tmp_path.iterdir())) == 1


def test_nulls_and_arrays_of_another_length_are_errors_of_their_rows(frame: DataFrame) -> None:
    holes = frame.where("id < 10").coalesce(1)
    holes = holes.withColumn("value", F.expr("if(id = 1, null, value)"))
    strange = "case id when 2 then array(1d) when 3 then null when 4 then array(1d, null) else features end"
    holes = holes.withColumn("features", F.expr(strange))
    stage = weighted()
    made = rows(stage.transform(holes))
    told = {row["id"]: row["prediction_error"]["type"] for row in made if row["prediction_error"]}
    assert told == {1: "NullInput", 2: "BadShape", 3: "NullInput", 4: "NullInput"}
    assert "'features' has 1 numbers where the rows beside it have 2" in made[2]["prediction_error"]["message"]
    assert made[5]["prediction"] == {"label": "low", "score": 7.0}
    asked = [{"value": row["value"], "features": row["features"]} for row in made]
    scored = stage.scoreInstances(asked)
    assert [row["prediction_error"] for row in scored] == [row["prediction_error"] for row in made]
    strict = weighted(handleInvalid="error")
    with pytest.raises(Exception, match=r"InvalidRowsError: 1 rows have no answer \(1 NullInput\)"):
        strict.transform(holes.where("id < 2")).collect()
    with pytest.raises(Exception, match="NegativeError: 13 is bad luck"):
        strict.transform(frame).collect()


def test_whole_numbers_beside_nulls_stay_whole(spark: SparkSession) -> None:
    big = spark.createDataFrame([(2**53 + 1,), (None,)], "whole long").coalesce(1)
    made = rows(model_stage("Plain", "whole", outputSchema="long").transform(big))
    assert [row["prediction"] for row in made] == [2**54 + 2, None]


def test_model_is_given_an_array_a_column(spark: SparkSession, frame: DataFrame) -> None:
    typed = frame.withColumn("flag", F.lit(True)).withColumn("vector", array_to_vector("features"))
    columns = ["id", "value", "text", "flag", "features", "vector"]
    made = rows(model_stage("Kinds", *columns, outputSchema="string").transform(typed.limit(3)))
    assert {row["prediction"] for row in made} == {"id i1; value f1; text O1; flag b1; features f2; vector f2"}


@pytest.mark.parametrize(
    ("gives", "schema", "words"),
    [
        ("too few", "double", r"gave an array of \d+ for \d+ rows"),
        ("texts", "double", "gave <U.*wanted numbers for double"),
        ("another name", "x double, z double", r"gave \['x', 'y'\]; wanted also \['z'\]"),
        ("a matrix", "double", r"gave an array of shape \(\d, 2\); wanted double"),
        ("a number", "double", "gave a int"),
    ],
)
def test_what_a_model_should_not_give_is_named(frame: DataFrame, gives: str, schema: str, words: str) -> None:
    stage = model_stage("Strange", "value", outputSchema=schema, modelArgs={"gives": gives})
    with pytest.raises(Exception, match=f"UdfContractError: the model .*Strange' {words}"):
        stage.transform(frame.limit(5)).collect()


@pytest.mark.parametrize(
    ("name", "columns"),
    [("root_udf", ["signed"]), ("parts_udf", ["signed", "text"]), ("reciprocal_udf", ["whole"]), ("word_udf", ["id"])],
)
def test_online_face_of_a_udf_answers_as_transform(frame: DataFrame, name: str, columns: list[str]) -> None:
    stage = udf_stage(name, *columns, handleInvalid="keep")
    made = rows(stage.transform(frame))
    given = [{column: row[column] for column in frame.columns} for row in made]
    assert stage.scoreInstances(given) == made


def test_streams_have_answers_errors_and_a_live_report(spark: SparkSession, frame: DataFrame, tmp_path: Path) -> None:
    frame.write.parquet(str(tmp_path / "in"))
    stage = udf_stage("root_udf", "signed", handleInvalid="keep")
    stream = stage.transform(spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")))
    query = stream.writeStream.format("memory").queryName("mapped").trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.table("mapped")
    assert found.count() == 100
    assert found.where("prediction_error is not null").count() == 3
    assert found.schema.simpleString() == stage.transformSchema(frame.schema).simpleString()
    report = stage.lastReport
    assert report is not None
    assert (report.rows, report.failed) == (100, {"NegativeError": 3})


RULES = """
import pandas as pd
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType

def length(text: pd.Series) -> pd.Series:
    return text.str.len()

length = pandas_udf(length, LongType())
"""
PROGRAM = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyspark.ml import PipelineModel
from platform_plugin.jdk import use_java

use_java()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.createDataFrame([("hello", [0.5, 1.0]), (None, None)], "message string, features array<double>")
os.chdir(os.environ["MODELS"])
{example}
loaded = PipelineModel.load(os.environ["SAVED"])
again = loaded.transform(df.limit(1)).first()
print(json.dumps({{"rows": [row.asDict(True) for row in scored.collect()], "again": again.asDict(True),
                   "one": one, "report": risk.lastReport.rows}}))
"""
README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.fixture(scope="module", autouse=True)
def fresh(
    spark: SparkSession, models: Path, tmp_path_factory: pytest.TempPathFactory, script: Callable[..., Any]
) -> Any:
    """A program with the README's example and a saved pipeline; it runs beside this module's tests."""
    folder = str(tmp_path_factory.mktemp("pipeline") / "saved")
    example = next(e for e in re.findall(r"```py\n(.*?)```", README, re.DOTALL) if "UDFPredictor(" in e)
    (models / "risk.pt").write_bytes((models / "linear.pt").read_bytes())
    stages = [
        UDFPredictor(function="rules:length", inputCols=["message"], outputCol="length"),
        ModelPredictor(model=str(models / "risk.pt"), inputCols=["features"], outputSchema="float"),
    ]
    Pipeline(stages=stages).fit(spark.range(1)).save(folder)
    return script(PROGRAM.format(example=example), ("rules.py", RULES), MODELS=str(models), SAVED=folder)


def test_example_of_the_readme_and_a_saved_pipeline_run_in_a_fresh_process(fresh: Any) -> None:
    ran = fresh.found(300)
    first, second = ran["rows"]
    assert first["length"] == ran["again"]["length"] == 5
    assert first["risk"] == pytest.approx(ran["again"]["prediction"])
    assert first["risk"] == pytest.approx(ran["one"]["risk"])
    assert second["risk_error"]["type"] == "NullInput"
    assert ran["report"] == 2


CONNECT = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {sys.argv[1]} pyspark-shell"
from platform_plugin.jdk import use_java
use_java()
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
from platform_plugin.stages import ModelPredictor, UDFPredictor
df = spark.createDataFrame([(4, 2), (None, 0)], "whole long, n long").coalesce(1)
own = {"pool": "connect", "num_cpus": 0}
cases = "integration_tests.mapped_cases"
udf = UDFPredictor(function=f"{cases}:reciprocal", returnType="double", inputCols=["n"], onRay=own)
udf.setHandleInvalid("keep")
model = ModelPredictor(model=f"{cases}:Plain", inputCols=["whole"], outputSchema="long", outputCol="m", onRay=own)
found = [row.asDict(True) for row in model.transform(udf.transform(df)).collect()]
print(json.dumps({"rows": found, "report": [udf.lastReport.rows, udf.lastReport.failed]}))
"""
JARS = Path(__file__).parents[2] / "shared/jars"


@pytest.mark.slow
def test_stages_in_a_session_of_spark_connect(script: Callable[..., Any]) -> None:
    pytest.importorskip("grpc_status", reason="the extra `connect` is not installed")
    jar = next(JARS.glob("spark-connect_*.jar"), None)
    if jar is None:
        pytest.skip(f"no jar of Spark Connect in {JARS}")
    root = str(Path(__file__).parents[1])
    ran = script(CONNECT, arguments=[str(jar)], PYTHONPATH=root).found(300)
    first, second = ran["rows"]
    assert (first["prediction"], first["m"]) == (0.5, 8)
    assert (second["prediction"], second["m"]) == (None, None)
    assert (second["prediction_error"]["type"], second["m_error"]["type"]) == ("ZeroDivisionError", "NullInput")
    assert ran["report"] == [2, {"ZeroDivisionError": 1}]
