"""The stages of UDFs and models, as far as they go without Ray: params, checks on the driver, errors by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mapped_functions as functions
import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

from platform_plugin import ddl
from platform_plugin.arrays import Wanted, stacked
from platform_plugin.errors import ConfigError, InvalidRowsError, SchemaError, SessionError, UdfContractError
from platform_plugin.halving import by_halves
from platform_plugin.model_rows import ModelDicts, ModelRows
from platform_plugin.predictors import ModelConfig, described, find_predictors, form_of, loaded
from platform_plugin.schema import ERROR, ERROR_TYPE
from platform_plugin.stages import ModelPredictor, UDFPredictor
from platform_plugin.udf.guarded import OUTPUT, GuardedBatch, GuardedRow
from platform_plugin.udf_rows import as_spark_takes

OWN = "mapped_functions"
FRAME = "x bigint, y bigint, text string, price decimal(5,2), numbers array<double>, pairs map<string,int>"


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> StructType:
    schema = _parse_datatype_string(FRAME)
    assert isinstance(schema, StructType)
    return schema


def udf_stage(name: str, *columns: str, **params: Any) -> UDFPredictor:
    return UDFPredictor(function=f"{OWN}:{name}", inputCols=list(columns), **params)


def model_stage(**params: Any) -> ModelPredictor:
    return ModelPredictor(**{"model": f"{OWN}:Predictor", "inputCols": ["x"], "outputSchema": "double", **params})


@pytest.mark.parametrize("bad", [[], [0], [6], [2, 3], [0, 1, 2, 3, 4, 5, 6]])
def test_halving_finds_exactly_the_rows_that_raise(bad: list[int]) -> None:
    calls = 0

    def call(start: int, stop: int) -> list[int]:
        nonlocal calls
        calls += 1
        if set(range(start, stop)) & set(bad):
            raise ValueError(start)
        return list(range(start, stop))

    parts = by_halves(call, 7)
    assert [part.start for part in parts if part.error is not None] == bad
    found = [row for part in parts for row in (part.value or [part.start])]
    assert found == list(range(7))
    assert calls <= 14


def test_a_batch_without_bad_rows_is_one_call_with_the_columns_as_they_came() -> None:
    given: list[Any] = []
    column = pd.Series([1, 2])
    frame = GuardedBatch(lambda x: given.append(x) or x)(column)
    assert given[0] is column
    assert frame[OUTPUT].dtype == np.int64
    assert list(frame[ERROR]) == [None, None]


def test_whole_numbers_beside_a_bad_row_stay_whole() -> None:
    def picky(x: pd.Series) -> pd.Series:
        if (x == 0).any():
            raise ZeroDivisionError("nought")
        return x + 2**53

    frame = GuardedBatch(picky)(pd.Series([1, 0, 3]))
    assert frame[OUTPUT][0] == 2**53 + 1
    assert isinstance(frame[OUTPUT][2], int)
    assert frame[OUTPUT].isnull().tolist() == [False, True, False]
    assert frame[ERROR][1] == {"stage": "udf", "type": "ZeroDivisionError", "message": "nought", "retryable": False}


@pytest.mark.parametrize("labels", [["b", "a"], [0, 1]])
def test_fields_of_a_frame_are_taken_by_name_or_by_place_as_pyspark_does(labels: list[Any]) -> None:
    made = GuardedBatch(lambda x: pd.DataFrame({labels[0]: x, labels[1]: x * 2}), fields=("a", "b"))(pd.Series([1]))
    assert (made["a"][0], made["b"][0]) == ((2, 1) if labels == ["b", "a"] else (1, 2))


def test_what_pyspark_refuses_of_a_pandas_udf_is_refused_in_its_words() -> None:
    with pytest.raises(PySparkRuntimeError, match="expected 2, got 1"):
        GuardedBatch(lambda x: x[1:])(pd.Series([1, 2]))
    with pytest.raises(PySparkTypeError, match=r"UDF_RETURN_TYPE|Return type of the user-defined"):
        GuardedBatch(lambda x: 7)(pd.Series([1, 2]))


def test_a_function_of_rows_has_an_error_a_row() -> None:
    guarded = GuardedRow(lambda x: 1 / x)
    assert guarded(2) == (0.5, None)
    assert guarded(0) == (None, ("udf", "ZeroDivisionError", "division by zero", False))


def model_rows(strict: bool = False, **args: Any) -> ModelRows:
    config = ModelConfig(model=f"{OWN}:Predictor", model_args=args)
    return ModelRows(config, (("x", False),), Wanted("m", OUTPUT, ddl.read_type("double", "outputSchema")), strict)


def test_model_has_no_null_and_no_row_that_it_raises_for() -> None:
    frame = model_rows()(pd.Series([None, "x", None, None]), pd.Series([1.0, 0.0, -1.0, 4.0]))
    assert frame[OUTPUT].tolist() == [1.0, None, None, 4.0]
    assert [e and e["type"] for e in frame[ERROR]] == [None, "NullInput", "ValueError", None]
    assert list(frame[ERROR][1]) == ERROR_TYPE.names
    with pytest.raises(InvalidRowsError, match="NullInput"):
        model_rows(strict=True)(pd.Series([None, "x"]), pd.Series([1.0, 0.0]))
    with pytest.raises(ValueError, match="below zero"):
        model_rows(strict=True)(pd.Series([None]), pd.Series([-1.0]))


def test_rows_as_dicts_are_asked_as_columns_are() -> None:
    found = ModelDicts(model_rows(factor=2.0))([{"x": 1}, {"x": None}, {"x": -1}])
    assert [value for value, _ in found] == [2.0, None, None]
    assert [error and error["type"] for _, error in found] == [None, "NullInput", "ValueError"]


def test_model_is_built_once_a_process() -> None:
    config = ModelConfig(model=f"{OWN}:Predictor", model_args={"factor": 3.0})
    assert loaded(config) is loaded(ModelConfig(model=f"{OWN}:Predictor", model_args={"factor": 3.0}))
    assert loaded(config) is not loaded(config.model_copy(update={"stamp": "later"}))


@pytest.mark.parametrize(
    ("lengths", "wrong"), [([2, 2], []), ([2, 3, 2], [1]), ([3, 2], [1]), ([2, 0, 2], [1]), ([], [])]
)
def test_length_that_most_rows_have_is_the_right_one(lengths: list[int], wrong: list[int]) -> None:
    array, told = stacked("f", [np.zeros(n) for n in lengths])
    assert list(told) == wrong
    assert (array is None) == (not lengths)


@pytest.mark.parametrize(
    ("schema", "given", "words"),
    [
        ("double", np.zeros(3), "an array of 3 for 2 rows"),
        ("double", np.array(["a", "b"]), "gave <U1; wanted numbers for double"),
        ("bigint", np.zeros(2), "gave float64; wanted whole numbers"),
        ("double", np.zeros((2, 3)), r"of shape \(2, 3\); wanted double, one a row"),
        ("array<float>", np.zeros(2), "an array a row"),
        ("double", {"a": np.zeros(2), "b": np.zeros(2)}, r"gave \['a', 'b'\]; wanted one array"),
        ("a double, b double", {"a": np.zeros(2)}, r"also \['b'\]"),
        ("a double, b double", np.zeros(2), "gave a ndarray; wanted a dict of arrays"),
        ("a double, b string", {"a": np.zeros(2), "b": np.zeros(2)}, "gave float64 as 'b'; wanted texts"),
    ],
)
def test_model_that_gives_something_else_is_told_what_came_and_was_wanted(schema: str, given: Any, words: str) -> None:
    with pytest.raises(UdfContractError, match=words):
        Wanted("m", OUTPUT, ddl.read_type(schema, "outputSchema")).columns(given, 2)


@pytest.mark.parametrize(
    "given", [np.zeros((2, 1)), {"any": [0.0, 0.0]}, pd.DataFrame({"y": [0, 0]}), pd.Series([0, 0])]
)
def test_one_column_comes_in_many_forms(given: Any) -> None:
    (array,) = Wanted("m", OUTPUT, ddl.read_type("float", "outputSchema")).columns(given, 2).values()
    assert (array.shape, array.dtype) == ((2,), np.float32)


DDL = [
    *("double", "array<float>", "label STRING, score DOUBLE", "struct<a:int,b:array<map<string,decimal(5,2)>>>"),
    *("`a b` int, c: timestamp_ntz", "decimal", "boolean", "binary", "date"),
]


@pytest.mark.parametrize("text", DDL)
def test_ddl_is_read_without_spark_as_spark_reads_it(spark: SparkSession, text: str) -> None:
    assert ddl._Reader(text).whole() == ddl.read_type(text, "outputSchema")


@pytest.mark.parametrize("text", ["dubble", "array<", "a b c", "", "array<int", "a int,", "%"])
@pytest.mark.parametrize("with_spark", [True, False])
def test_text_that_is_no_ddl_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, with_spark: bool
) -> None:
    monkeypatch.setattr(ddl, "_spark_runs", lambda: with_spark)
    with pytest.raises(ConfigError, match="is not Spark DDL"):
        ddl.read_type(text, "outputSchema")


@pytest.mark.parametrize(
    ("value", "kind", "taken"),
    [
        (1, "double", None),
        (1.0, "double", 1.0),
        (True, "int", None),
        (5, "string", "5"),
        ([1, "a"], "array<int>", [1, None]),
    ],
)
def test_value_of_a_plain_udf_is_taken_as_spark_does(value: Any, kind: str, taken: Any) -> None:
    assert as_spark_takes(value, ddl.read_type(kind, "returnType")) == taken


@pytest.mark.parametrize(
    ("stage", "error", "words"),
    [
        (udf_stage("plus_udf", "x", "z"), SchemaError, "inputCols='z' is not a column"),
        (udf_stage("plus_udf", "x", "y", outputCol="Text"), SchemaError, "already in the frame"),
        (udf_stage("plus_udf", "x", "y", errorCol="prediction"), SchemaError, "asked for twice"),
        (udf_stage("plus_udf"), ConfigError, "has no inputCols"),
        (udf_stage("plus_udf", "x"), ConfigError, r"inputCols names 1 columns, and .* takes \(x: .*, y: "),
        (udf_stage("plus_ufd", "x", "y"), ConfigError, "has no 'plus_ufd'. Did you mean 'plus_udf'"),
        (udf_stage("plus", "x", "y"), ConfigError, "returnType='double'"),
        (udf_stage("plus", "x", "y", returnType="dubble"), ConfigError, "returnType='dubble' is not Spark DDL"),
        (udf_stage("plus_udf", "x", "y", returnType="double"), ConfigError, "returns 'bigint' already"),
        (udf_stage("NUMBER", "x", returnType="double"), ConfigError, "is a int; wanted a function"),
        (udf_stage("running_udf", "x", handleInvalid="keep"), ConfigError, "belongs to no row"),
        (udf_stage("mean_udf", "x"), ConfigError, "grouped aggregate"),
        (udf_stage("plus_udf", "x", "y", onRay={"replica": 2}), ConfigError, "Did you mean 'replicas'"),
        (UDFPredictor(inputCols=["x"]), ConfigError, "has no function"),
        (UDFPredictor(function="__main__:f", inputCols=["x"]), ConfigError, "module of its own"),
        (UDFPredictor(function="no.such:f", inputCols=["x"]), ConfigError, "'no.such' does not import.*No module"),
        (UDFPredictor(function="rules.f", inputCols=["x"]), ConfigError, "wanted 'package.module:name'"),
        (ModelPredictor(inputCols=["x"]), ConfigError, "has no model"),
        (ModelPredictor(model="m.pt", inputCols=["x"]), ConfigError, "has no outputSchema"),
        (model_stage(model="/no/m.pt"), ConfigError, "there is no file"),
        (
            model_stage(model="/no/such"),
            ConfigError,
            "(?s)no such file or folder.*MLflow.*class.*safetensors.*TorchScript",
        ),
        (model_stage(model=f"{OWN}:Silent"), ConfigError, "has neither predict"),
        (model_stage(model=f"{OWN}:Predictr"), ConfigError, "Did you mean 'Predictor'"),
        (model_stage(moduleClass="a:B"), ConfigError, "goes with a .safetensors file only"),
        (model_stage(inputCols=["price"]), SchemaError, r"'price' is decimal\(5,2\)"),
        (model_stage(inputCols=["pairs"]), SchemaError, "'pairs' is map"),
        (model_stage(outputSchema="dubble"), ConfigError, "Did you mean 'double'|is not Spark DDL"),
    ],
)
def test_what_is_wrong_is_told_on_the_driver(frame: StructType, stage: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        stage.transformSchema(frame)


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_weights_need_the_class_that_they_are_for(frame: StructType, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"m{suffix}"
    file.touch()
    if suffix == ".safetensors":
        with pytest.raises(ConfigError, match=r"moduleClass='package\.module:Class'"):
            model_stage(model=str(file)).transformSchema(frame)
    else:
        with pytest.raises(ConfigError, match="is built already"):
            model_stage(model=str(file), modelArgs={"a": 1}).transformSchema(frame)


@pytest.mark.parametrize("handle", ["error", "keep", "skip"])
@pytest.mark.parametrize("make", [lambda **p: udf_stage("plus_udf", "x", "y", **p), model_stage], ids=["udf", "model"])
def test_output_has_the_same_schema_whatever_becomes_of_invalid_rows(frame: StructType, make: Any, handle: str) -> None:
    made = make(handleInvalid=handle).transformSchema(frame)
    assert made.names == [*frame.names, "prediction", "prediction_error"]
    assert made["prediction_error"].dataType == ERROR_TYPE


def test_stages_are_saved_loaded_and_copied_with_all_their_params(spark: SparkSession, tmp_path: Path) -> None:
    udf = udf_stage("plus", "x", "y", returnType="bigint", outputCol="sum", onRay={"replicas": [1, 2], "num_cpus": 0.5})
    model = model_stage(modelArgs={"factor": np.float64(2)}, handleInvalid="skip")
    Pipeline(stages=[udf, model]).fit(spark.range(1)).save(str(tmp_path / "saved"))
    for before, after in zip([udf, model], PipelineModel.load(str(tmp_path / "saved")).stages, strict=True):
        assert {p.name: v for p, v in before.extractParamMap().items()} == {
            p.name: v for p, v in after.extractParamMap().items()
        }
    other = model.copy({model.outputCol: "risk"})
    assert (other.getErrorCol(), model.getErrorCol()) == ("risk_error", "prediction_error")
    assert "inputCols" in udf.explainParams()
    assert model.setParams(handleInvalid="error").getHandleInvalid() == "error"
    for name in ("function", "returnType", "inputCols", "outputCol", "errorCol", "handleInvalid", "onRay"):
        title = name[0].upper() + name[1:]
        value = getattr(udf, f"get{title}")()
        assert getattr(getattr(udf, f"set{title}")(value), f"get{title}")() == value


def test_unknown_params_and_words_are_refused_with_near_names() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'inputCols'"):
        UDFPredictor(inputCol=["x"])
    with pytest.raises(ConfigError, match="is not one of error, keep, skip"):
        model_stage(handleInvalid="kep")


def test_online_face_wants_ray_and_all_inputs() -> None:
    stage = udf_stage("size_udf", "text")
    with pytest.raises(SessionError, match="not connected to Ray"):
        stage.scoreInstance({"Text": "a"})
    with pytest.raises(SchemaError, match=r"'text' is not in the row.*Did you mean 'texts'"):
        stage.scoreInstance({"texts": "a"})
    assert stage.scoreInstances([]) == []
    assert stage.lastReport is None


def test_each_form_of_model_says_what_it_takes(tmp_path: Path) -> None:
    (tmp_path / "MLmodel").touch()
    forms = {
        "models:/m/1": "mlflow_model",
        "runs:/abc/m": "mlflow_model",
        str(tmp_path): "mlflow_model",
        "a/m.pt": "torchscript",
        "m.ts": "torchscript",
        "m.safetensors": "safetensors",
        "a.b:C": "python_class",
    }
    assert {text: form_of(text) for text in forms} == forms
    assert set(find_predictors()) == set(forms.values())
    for module in find_predictors().values():
        assert module.WHAT
        assert callable(module.load)


def test_alias_is_the_version_that_it_stands_for_now(mlflow_database: str) -> None:
    import mlflow

    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(mlflow_database)
    try:
        client = mlflow.tracking.MlflowClient()
        client.create_registered_model("aliased")
        client.create_model_version("aliased", "file:///nowhere")
        client.set_registered_model_alias("aliased", "champion", "1")
        config = described(ModelConfig(model="models:/aliased@champion"))
        assert (config.model, config.tracking_uri) == ("models:/aliased/1", mlflow_database)
        with pytest.raises(ConfigError, match="has no such model or alias"):
            described(ModelConfig(model="models:/aliased@other"))
    finally:
        mlflow.set_tracking_uri(before)


def test_functions_are_what_the_stage_found() -> None:
    assert udf_stage("plus_udf", "x", "y").work().udf.function is functions.plus
    assert udf_stage("size_udf", "text").work().output.simpleString() == "bigint"
