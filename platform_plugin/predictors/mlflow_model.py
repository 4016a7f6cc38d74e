"""A model that MLflow logged, of whatever flavour, as a pyfunc."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from platform_plugin.errors import ConfigError, MissingDependencyError
from platform_plugin.predictors import ModelConfig, Predict, stamp

WHAT = "an MLflow model: models:/name@alias, models:/name/3, runs:/id/name, or a folder with a file MLmodel"
REMEMBERED_S = 30.0
_versions: dict[tuple[str, str], tuple[float, str]] = {}
_URIS = ("models:/", "runs:/", "mlflow-artifacts:/")


def takes(model: str) -> bool:
    """Return whether it is one of MLflow's URIs, or a folder with an MLmodel."""
    return model.startswith(_URIS) or (Path(model) / "MLmodel").is_file()


def described(config: ModelConfig) -> ModelConfig:
    """Note where MLflow's server is. Raises ConfigError, MissingDependencyError."""
    if config.model_args:
        raise ConfigError("modelArgs goes with a class or a .safetensors file; an MLflow model is built already.")
    if not config.model.startswith(_URIS):
        path = Path(config.model).absolute()
        return config.model_copy(update={"model": str(path), "stamp": stamp(path / "MLmodel")})
    mlflow = _mlflow()
    uris = {"tracking_uri": mlflow.get_tracking_uri(), "registry_uri": mlflow.get_registry_uri()}
    if config.model.startswith("models:/") and "@" in config.model:
        uris["model"] = _version(config.model, uris["registry_uri"])
    return config.model_copy(update=uris)


def load(config: ModelConfig) -> Predict:
    """Load the model, from the server that the driver knew."""
    mlflow = _mlflow()
    if config.tracking_uri:
        mlflow.set_tracking_uri(config.tracking_uri)
    if config.registry_uri:
        mlflow.set_registry_uri(config.registry_uri)
    return _Pyfunc(mlflow.pyfunc.load_model(config.model))


def _version(uri: str, registry: str) -> str:
    """Return the version that an alias stands for now, so that all actors have the same; looked up again in a while."""
    seen, found = _versions.get((registry, uri), (0.0, ""))
    if not found or time.monotonic() - seen > REMEMBERED_S:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        name, _, alias = uri.removeprefix("models:/").partition("@")
        try:
            found = f"models:/{name}/{MlflowClient().get_model_version_by_alias(name, alias).version}"
        except MlflowException as exc:
            raise ConfigError(f"model={uri!r}: the registry {registry} has no such model or alias: {exc}") from exc
        _versions[registry, uri] = time.monotonic(), found
    return found


class _Pyfunc:
    """Calls a pyfunc with a frame, or with arrays where its signature has tensors."""

    def __init__(self, model: Any) -> None:
        self._model = model
        inputs = model.metadata.get_input_schema()
        self._tensors = inputs is not None and inputs.is_tensor_spec()
        self._named = self._tensors and inputs.has_input_names()

    def __call__(self, inputs: dict[str, Any]) -> Any:
        """Return what the model predicts."""
        import pandas as pd

        if self._tensors:
            return self._model.predict(inputs if self._named else next(iter(inputs.values())))
        columns = {name: list(array) if array.ndim > 1 else array for name, array in inputs.items()}
        return self._model.predict(pd.DataFrame(columns))


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.pyfunc
    except ImportError as exc:
        raise MissingDependencyError("MLflow models need mlflow: pip install platform-plugin[mlflow]") from exc
    return mlflow
