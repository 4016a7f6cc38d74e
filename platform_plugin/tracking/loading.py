"""Finds a saved pipeline, or one stage of it: of an MLflow model or of a folder that Spark wrote."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.ml.util import DefaultParamsReader

from platform_plugin.errors import ConfigError
from platform_plugin.saved import locate
from platform_plugin.tracking import references

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MLFLOW_URI = re.compile(r"(models|runs|mlflow-artifacts|http|https|s3|gs|wasbs?|abfss?|dbfs):/")


def load_stage(uri: str, output_col: str | None = None) -> Any:
    """Do as ``platform_plugin.tracking.load_stage`` says."""
    root = fetch(uri)
    found = {stage.getOrDefault("outputCol"): stage for stage in _stages(root)}
    chosen = {name: stage for name, stage in found.items() if output_col in (None, name)}
    if len(chosen) != 1:
        names = ", ".join(repr(name) for name in sorted(found)) or "none"
        wanted = f"output_col={output_col!r}" if output_col else "one stage"
        raise ConfigError(
            f"{uri} has stages of this project with these outputs: {names}; {wanted} is wanted. "
            "Name one with output_col; the whole pipeline loads with mlflow.spark.load_model(uri)."
        )
    (stage,) = chosen.values()
    references.verify(stage, _references(root))
    return stage


def load_pipeline(uri: str) -> Any:
    """Return the pipeline (or stage) at a URI or path, for ``transform``. Runs on: driver, in a session.

    Raises:
        ConfigError: nothing there that Spark saved.
    """
    if not is_mlflow(uri):
        return _load_saved(uri)
    import mlflow.spark

    return mlflow.spark.load_model(uri)


def is_mlflow(uri: str) -> bool:
    """Return whether `uri` is an MLflow model, by its scheme or its file MLmodel."""
    return bool(_MLFLOW_URI.match(uri)) or (Path(uri) / "MLmodel").is_file()


def fetch(uri: str) -> Path:
    """Return the local folder of a model or saved pipeline; downloads it where it is not local."""
    if not _MLFLOW_URI.match(uri):
        path = Path(uri.removeprefix("file://"))
        if not path.is_dir():
            raise ConfigError(f"{uri!r} is not a folder, and not the URI of an MLflow model (models:/name@alias).")
        return path
    import mlflow.artifacts
    from mlflow.exceptions import MlflowException

    try:
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri))
    except MlflowException as exc:
        raise ConfigError(f"{uri!r} could not be loaded: {str(exc).splitlines()[0]}") from exc


def running_session() -> SparkSession | None:
    """Return the session of this process, from whichever thread; Spark knows an active one a thread."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return SparkSession.getActiveSession()
    return SparkSession.builder.getOrCreate()


def _stages(root: Path) -> Iterator[Any]:
    for file in sorted(root.rglob("metadata/part-*")):
        lines = file.read_text().splitlines()
        metadata = json.loads(lines[0]) if lines else {}
        name = metadata.get("class", "")
        if not name.startswith(references.OWN):
            continue
        module, _, kind = name.rpartition(".")
        stage: Any = getattr(importlib.import_module(module), kind)()
        stage._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(stage, metadata)
        model = stage.getOrDefault("model")
        stage.set(stage.model, locate(model, str(file.parents[1])))
        yield stage


def _references(root: Path) -> list[dict[str, Any]]:
    if not (root / "MLmodel").is_file():
        return []
    from mlflow.models import Model

    metadata: dict[str, Any] = Model.load(str(root / "MLmodel")).metadata or {}
    found: list[dict[str, Any]] = metadata.get("platform_plugin", {}).get("weights", [])
    return found


def _load_saved(path: str) -> Any:
    from py4j.protocol import Py4JJavaError
    from pyspark.ml import PipelineModel

    spark = running_session()
    assert spark is not None
    try:
        metadata = DefaultParamsReader.loadMetadata(path, spark.sparkContext)
    except (Py4JJavaError, ValueError) as exc:
        raise ConfigError(f"{path!r} is not a pipeline that Spark saved (it has no metadata).") from exc
    if metadata["class"] in ("pyspark.ml.pipeline.PipelineModel", "org.apache.spark.ml.PipelineModel"):
        return PipelineModel.load(path)
    if metadata["class"].endswith("pipeline.Pipeline"):
        raise ConfigError(f"{path!r} is a Pipeline that was not fitted; save what its fit() returns.")
    return DefaultParamsReader.loadParamsInstance(path, spark.sparkContext)
