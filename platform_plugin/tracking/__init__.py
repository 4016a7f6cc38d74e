"""MLflow: tracked runs (`autolog`) and logged models (`log_model`, `load_stage`). The extra ``mlflow``.

No other module of this project imports mlflow, but evaluation and the engine of MLflow models. Importing this package
loads none; its functions do.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from platform_plugin import listeners
from platform_plugin.errors import MissingDependencyError

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.models.model import ModelInfo
    from pyspark.ml import Transformer
    from pyspark.sql import DataFrame

    from platform_plugin.tracking.runs import MlflowTracker

__all__ = ["autolog", "flush", "load_stage", "log_model"]

_tracker: MlflowTracker | None = None


def autolog(
    disable: bool = False,
    log_models: bool = False,
    log_samples: bool = False,
    log_system_metrics: bool = True,
) -> None:
    """Log every ``transform`` of this project's stages to MLflow: in the active run, or in a run of its own.

    Runs on: driver. Params are the stage's, its model's profile and versions; metrics, those of its report; artifacts,
    the report, a sample of requests, a latency histogram and a timeline. A further stage of the same run has names that
    begin with its outputCol; a further transform of the same stage is the next step. Logging goes on beside the job, on
    a thread: a transform waits a second for it at most, the end of the process five. A server that is down or slow is
    warned of once.

    Args:
        disable: log no more.
        log_models: log the stage as an MLflow model too, once a run.
        log_samples: put prompts and answers into the sample; without it only their figures.
        log_system_metrics: log processor, memory, disk and network of the driver's machine while a transform runs.

    Raises:
        MissingDependencyError: mlflow is not installed.
    """
    global _tracker
    _need_mlflow()
    from platform_plugin.tracking.runs import MlflowTracker

    if _tracker is not None:
        listeners.unsubscribe(_tracker)
    if disable:
        return
    made = MlflowTracker(log_samples=log_samples, log_models=log_models, log_system_metrics=log_system_metrics)
    if _tracker is not None:
        made.courier = _tracker.courier
    _tracker = made
    listeners.subscribe(made)


def flush(timeout_s: float = 30.0) -> bool:
    """Wait until what `autolog` logged so far is with the server, `timeout_s` seconds at most; return whether it is."""
    return _tracker is None or _tracker.courier.flush(timeout_s)


def log_model(
    model: Transformer,
    name: str,
    *,
    input_example: DataFrame | pd.DataFrame | list[dict[str, Any]] | dict[str, Any] | None = None,
    signature: Any = None,
    registered_model_name: str | None = None,
    alias: str | None = None,
    weights: str = "reference",
    pip_requirements: list[str] | None = None,
    **options: Any,
) -> ModelInfo:
    """Log a pipeline, or one stage, as an MLflow model of the flavours ``spark`` and ``python_function``.

    Runs on: driver, in a session. Takes seconds: no engine starts, and no requirement is inferred. In a fresh process,
    ``mlflow.spark.load_model(uri).transform(df)`` gives frames and ``mlflow.pyfunc.load_model(uri).predict(pandas)``
    the list of answers of the last stage.

    Args:
        model: a PipelineModel or a stage.
        name: of the logged model.
        input_example: a few rows as the pipeline takes them: the signature is made of their types. Required unless
            `signature` is given; it is logged, so it should hold nothing that is secret.
        signature: an ``mlflow.models.ModelSignature``, in place of the one that is made.
        registered_model_name: also register a version under this name.
        alias: given to that version; without a `registered_model_name`, `name` is registered.
        weights: "reference": the model's profile, or its folder with a checksum; "copy": the folder's files go along.
        pip_requirements: in place of the pinned ones that are made.
        options: passed to ``mlflow.models.Model.log``: `run_id`, `metadata`, `tags`, `params`, `step`.

    Raises:
        ConfigError: neither an example nor a signature; weights of another word, or none that could be copied.
        SchemaError: the pipeline does not fit the example.
    """
    _need_mlflow()
    from platform_plugin.tracking import models

    logged: ModelInfo = models.log_model(
        model,
        name,
        input_example=input_example,
        signature=signature,
        registered_model_name=registered_model_name,
        alias=alias,
        weights=weights,
        pip_requirements=pip_requirements,
        **options,
    )
    return logged


def load_stage(uri: str, output_col: str | None = None) -> Any:
    """Return the stage of a logged model that an engine answers; neither Spark nor an engine starts.

    Runs on: driver, or any process that scores rows (``scoreInstance``).

    Args:
        uri: as MLflow takes it: ``models:/name@alias``, ``runs:/id/name``, a folder; or of a pipeline that Spark saved.
        output_col: which one, where the pipeline has several.

    Raises:
        ConfigError: nothing there, no such stage, or several.
        EngineStartError: the model's folder is not the one that was logged.
    """
    _need_mlflow()
    from platform_plugin.tracking import loading

    return loading.load_stage(uri, output_col)


def _need_mlflow() -> None:
    if importlib.util.find_spec("mlflow") is None:
        raise MissingDependencyError(
            'mlflow is not installed, which tracking needs: pip install "platform-plugin[mlflow]"'
        )
