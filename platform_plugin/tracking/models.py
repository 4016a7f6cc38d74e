"""Logs a pipeline as an MLflow model; what is written into it is `flavour`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.ml import PipelineModel, Transformer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, StructType

from platform_plugin.errors import ConfigError, SchemaError, SessionError
from platform_plugin.schema import column
from platform_plugin.tracking import loading
from platform_plugin.tracking import signature as signatures

if TYPE_CHECKING:
    from mlflow.models.model import ModelInfo

EXAMPLE_ROWS = 5
WEIGHTS = ("reference", "copy")


def log_model(
    model: Transformer,
    name: str,
    *,
    input_example: Any,
    signature: Any,
    registered_model_name: str | None,
    alias: str | None,
    weights: str,
    pip_requirements: list[str] | None,
    **options: Any,
) -> ModelInfo:
    """Do as ``platform_plugin.tracking.log_model`` says."""
    import mlflow

    if weights not in WEIGHTS:
        raise ConfigError(f"weights={weights!r} is not one of {', '.join(WEIGHTS)}.")
    if input_example is None and signature is None:
        raise ConfigError(
            "log_model needs input_example, a few rows as the pipeline takes them, or a signature: without either "
            "nobody can tell which columns the model takes. Pass input_example=df.limit(3)."
        )
    spark = _session()
    frame = _frame(spark, input_example)
    registered = registered_model_name or (name if alias else None)
    logged = _log(
        model,
        name,
        columns=frame.schema if frame is not None else None,
        signature=signature,
        example=_example(frame) if frame is not None else None,
        copy_weights=weights == "copy",
        pip_requirements=pip_requirements,
        registered_model_name=registered,
        **options,
    )
    if alias and registered:
        mlflow.MlflowClient().set_registered_model_alias(registered, alias, str(logged.registered_model_version))
    return logged


def log_stage(stage: Any, columns: StructType, name: str, run_id: str) -> None:
    """Log one stage to a run, without an example: what ``autolog(log_models=True)`` does."""
    _log(stage, name, columns=columns, signature=None, example=None, copy_weights=False, run_id=run_id)


def _log(
    model: Any,
    name: str,
    *,
    columns: StructType | None,
    signature: Any,
    example: Any,
    copy_weights: bool,
    pip_requirements: list[str] | None = None,
    **options: Any,
) -> ModelInfo:
    from mlflow.models import Model

    from platform_plugin.tracking import flavour

    pipeline = model if isinstance(model, PipelineModel) else PipelineModel([model])
    made = output_columns(pipeline, columns) if columns is not None else None
    answers = _answers(pipeline, columns, made)
    if signature is None:
        assert columns is not None
        assert made is not None
        signature = signatures.signature(columns, made[answers])
    logged: ModelInfo = Model.log(
        artifact_path=None,
        name=name,
        flavor=flavour,
        flavor_name="spark",
        validate_serving_input=False,  # it would start the engine
        pipeline=pipeline,
        signature=signature,
        input_example=example,
        columns=columns.json() if columns is not None else "",
        answers=answers,
        copy_weights=copy_weights,
        pip_requirements=pip_requirements,
        **options,
    )
    return logged


def output_columns(model: Any, columns: StructType) -> StructType:
    """Return the schema that a pipeline makes of `columns`; nothing is transformed, and no engine starts."""
    from pyspark.ml.wrapper import JavaTransformer
    from pyspark.sql.types import _parse_datatype_json_string

    if isinstance(model, PipelineModel):
        for stage in model.stages:
            columns = output_columns(stage, columns)
        return columns
    if hasattr(model, "transformSchema"):
        made: StructType = model.transformSchema(columns)
        return made
    spark: Any = _session()
    if isinstance(model, JavaTransformer):
        model._transfer_params_to_java()
        java: Any = model._java_obj
        taken = spark._jvm.org.apache.spark.sql.types.DataType.fromJson(columns.json())
        found = _parse_datatype_json_string(java.transformSchema(taken).json())
        assert isinstance(found, StructType)
        return found
    # A transformer of somebody else, in Python: it is lazy, as Spark's are.
    return model.transform(spark.createDataFrame([], columns)).schema  # type: ignore[no-any-return]


def _answers(pipeline: Any, columns: StructType | None, made: StructType | None) -> str:
    """Return the column that ``predict`` returns: the last one that a stage calls its output."""
    names = made.names if made is not None else None
    for stage in reversed(pipeline.stages):
        for param in ("outputCol", "predictionCol"):
            if stage.hasParam(param) and stage.isDefined(param):
                made_by: str = stage.getOrDefault(param)
                if names is None or made_by in names:
                    return made_by
    new = [name for name in names or [] if columns is None or name not in columns.names]
    if not new:
        raise SchemaError("the pipeline makes no new column, so there is nothing that a model could return.")
    return new[-1]


def _frame(spark: SparkSession, example: Any) -> DataFrame | None:
    import pandas as pd

    if example is None or isinstance(example, DataFrame):
        return example
    if isinstance(example, dict):
        example = [example]
    if isinstance(example, list) and example and all(isinstance(row, dict) for row in example):
        return spark.createDataFrame(example)
    if not isinstance(example, pd.DataFrame) or example.empty:
        raise ConfigError(
            f"input_example is a {type(example).__name__}; a Spark or pandas frame with a row or more, a dict or a "
            "list of dicts is wanted."
        )
    # pandas would hand Spark NaN for a text that is missing.
    return spark.createDataFrame(example.astype(object).where(example.notna(), None))


def _example(frame: DataFrame) -> Any:
    """Return the first rows for MLflow to keep, as JSON takes them: a decimal is a double in its signature too."""
    plain = [
        column(field.name).cast("double").alias(field.name)
        if isinstance(field.dataType, DecimalType)
        else column(field.name)
        for field in frame.schema
    ]
    return frame.limit(EXAMPLE_ROWS).select(*plain).toPandas()


def _session() -> SparkSession:
    spark = loading.running_session()
    if spark is None:
        raise SessionError("a pipeline is saved by Spark, and no session runs; start one with spark_on_ray().")
    return spark
