"""An evaluation as a YAML file, for the command line: what it may say, and the frame and models it describes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, model_validator

from platform_plugin.config import Frozen
from platform_plugin.errors import ConfigError, near

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from platform_plugin.evaluation.result import EvaluationResult

_FORMATS = ("csv", "json", "parquet", "delta", "orc", "text")


class Data(Frozen):
    """Where the rows are.

    Args:
        path: file or folder, relative to the YAML file; read with `format` and `options` of Spark's reader.
        query: Spark SQL over the view `data`, such as "SELECT *, upper(x) AS label FROM data"; what it gives is
            evaluated.
        limit: rows at most, the first of the query.
    """

    path: str
    format: str = "csv"
    options: dict[str, Any] = Field(default_factory=dict)
    query: str | None = None
    limit: int | None = Field(default=None, ge=1)


class Model(Frozen):
    """One of `column` of the data, `pipeline` (a saved folder, or a URI), `predictor` (params of LLMPredictor)."""

    column: str | None = None
    pipeline: str | None = None
    predictor: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _one(self) -> Model:
        given = [name for name in ("column", "pipeline", "predictor") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of column, pipeline and predictor, not {given or 'none'}")
        return self


class EvaluationFile(Frozen):
    """What eval.yaml may say: the arguments of ``evaluate``, and where data and models come from.

    Args:
        judge: params of LLMJudge.
        session: arguments of spark_on_ray, and `conf` of Spark; used where a model or the judge must be asked.
        tracking_uri: of MLflow; without it, the one that is set (MLFLOW_TRACKING_URI).
    """

    data: Data
    models: dict[str, Model] = Field(min_length=1)
    label: str | None = None
    metrics: list[str | dict[str, Any]] | None = None
    judge: dict[str, Any] | None = None
    baseline: str | None = None
    by: str | list[str] | None = None
    key: str | list[str] | None = None
    prediction: str | None = None
    require: dict[str, float | str] | None = None
    resamples: int = 1000
    prices: str | None = None
    output: str | None = None
    name: str | None = None
    experiment: str | None = None
    log_samples: bool = False
    track: bool = True
    tracking_uri: str | None = None
    session: dict[str, Any] = Field(default_factory=dict)


def read_file(path: Path) -> EvaluationFile:
    """Return what a YAML file says; its paths are relative to it. Raises ConfigError, with the file and the field."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read: {exc.strerror or exc}. Name the YAML file of an evaluation."
        ) from exc
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{path} is not YAML: {exc}") from exc
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds {type(values).__name__}, but needs at least data and models.")
    known = EvaluationFile.model_fields
    for name in values:
        if name not in known:
            raise ConfigError(f"{path}: no field {name!r}.{near(str(name), known)} Known: {', '.join(known)}.")
    try:
        file = EvaluationFile.of(**values)
    except ConfigError as exc:
        raise ConfigError(f"{path}: {exc}") from exc
    if file.data.format not in _FORMATS:
        raise ConfigError(f"{path}: data.format={file.data.format!r} is not one of {', '.join(_FORMATS)}.")
    return file


def run_file(path: Path) -> EvaluationResult:
    """Run the evaluation of a YAML file, in a session of its own where none is active. Runs on: driver.

    Raises:
        ConfigError: what the file says is wrong; else as ``evaluate``.
    """
    from platform_plugin.evaluation.evaluating import evaluate
    from platform_plugin.evaluation.plan import read_metrics

    file = read_file(path)
    folder = path.resolve().parent
    if file.tracking_uri is not None and file.track:
        import mlflow

        mlflow.set_tracking_uri(file.tracking_uri)
    models = {name: _model(name, model, folder) for name, model in file.models.items()}
    judge = _judge(file.judge)
    if file.metrics is not None:
        read_metrics(file.metrics)  # before a session starts
    asks = judge is not None or any(model.column is None for model in file.models.values())
    with _session(file.session, asks) as spark:
        return evaluate(
            models,
            _frame(spark, file.data, folder),
            file.label,
            file.metrics,
            judge,
            file.baseline,
            file.by,
            key=file.key,
            prediction=file.prediction,
            require=file.require,
            resamples=file.resamples,
            prices=_placed(folder, file.prices),
            output=_placed(folder, file.output),
            query=file.data.query,
            name=file.name,
            experiment=file.experiment,
            log_samples=file.log_samples,
            track=file.track,
        )


def _frame(spark: SparkSession, data: Data, folder: Path) -> DataFrame:
    from pyspark.errors import PySparkException

    place = _placed(folder, data.path)
    options = {"header": True, **data.options} if data.format == "csv" else data.options
    try:
        frame = spark.read.format(data.format).options(**options).load(place)
        if data.query is not None:
            frame.createOrReplaceTempView("data")
            frame = spark.sql(data.query)
    except PySparkException as exc:
        raise ConfigError(f"data of {place!r} cannot be read: {str(exc).strip().splitlines()[0]}") from exc
    return frame.limit(data.limit) if data.limit is not None else frame


def _model(name: str, model: Model, folder: Path) -> Any:
    from platform_plugin.stages import LLMPredictor

    if model.predictor is not None:
        try:
            return LLMPredictor(**model.predictor)
        except (TypeError, ValueError) as exc:
            raise ConfigError(f"models.{name}.predictor: {exc}") from exc
    if model.pipeline is not None:
        return model.pipeline if ":/" in model.pipeline else _placed(folder, model.pipeline)
    return model.column


def _judge(params: dict[str, Any] | None) -> Any:
    from platform_plugin.stages import LLMJudge

    if params is None:
        return None
    try:
        return LLMJudge(**params)
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"judge: {exc}") from exc


@contextmanager
def _session(options: dict[str, Any], asks: bool) -> Iterator[SparkSession]:
    """Yield the active session, or one of its own: on Ray where models are asked, else a plain one."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
    elif asks:
        from platform_plugin.session import spark_on_ray

        with spark_on_ray(**{"app_name": "evaluation", "executors": 1, "executor_cores": 2, **options}) as spark:
            yield spark
    else:
        from platform_plugin.jdk import use_java

        use_java()
        builder = SparkSession.builder.appName("evaluation").config("spark.ui.showConsoleProgress", "false")
        for name, value in options.get("conf", {}).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


def _placed(folder: Path, path: str | None) -> Any:
    """Return a path relative to the folder of the YAML file, URIs as they are; None for None."""
    return path if path is None or "://" in path else str(folder / Path(path).expanduser())
