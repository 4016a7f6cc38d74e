"""Reads a stage as Spark does, and finds the weights that were saved with its pipeline."""

from __future__ import annotations

from typing import Any, TypeVar

from pyspark.ml.util import DefaultParamsReader, MLReadable

from platform_plugin.saved import locate

S = TypeVar("S", bound=MLReadable[Any])


class StageReader(DefaultParamsReader[S]):
    """What ``read()`` of a stage returns. Runs on: driver."""

    def load(self, path: str) -> S:
        """Read the stage at `path`. Raises ConfigError where weights that were saved with it are missing."""
        stage: Any = super().load(path)
        if stage.isDefined("model"):
            model = stage.getOrDefault("model")
            if locate(model, path) != model:
                stage.set(stage.model, locate(model, path))
        found: S = stage
        return found
