"""A class of the user's own, named by its import path: built once, asked batch by batch."""

from __future__ import annotations

from typing import Any

from platform_plugin import named
from platform_plugin.errors import ConfigError
from platform_plugin.predictors import ModelConfig, Predict

WHAT = "a class 'package.module:Class' with predict(inputs) -> outputs, built with modelArgs"


def takes(model: str) -> bool:
    """Return whether it is an import path."""
    return ":" in model and "/" not in model and not model.endswith(".py")


def described(config: ModelConfig) -> ModelConfig:
    """Import the class. Raises ConfigError where it does not, or cannot predict."""
    found = named.find(config.model, "model")
    if not callable(found):
        raise ConfigError(f"model={config.model!r} is a {type(found).__name__}; wanted a class.")
    if isinstance(found, type) and not hasattr(found, "predict") and "__call__" not in dir(found):
        raise ConfigError(
            f"model={config.model!r} has neither predict(inputs) nor __call__(inputs).\n"
            "Define predict(self, inputs: dict of arrays) -> dict of arrays."
        )
    return config.model_copy(update={"stamp": named.stamp(config.model)})


def load(config: ModelConfig) -> Predict:
    """Build an object of the class."""
    built: Any = named.find(config.model, "model")(**config.model_args)
    predict: Predict = getattr(built, "predict", built)
    return predict
