"""Spark ML stages whose predictions run on Ray actors with vLLM engines: the public names, and nothing else.

A name is loaded when it is first used, so that importing this package loads no Spark, Ray or engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from platform_plugin.answers import release_answers
    from platform_plugin.evaluation import evaluate
    from platform_plugin.pool import release_engines
    from platform_plugin.report import RunReport
    from platform_plugin.session import SparkOnRay, spark_on_ray
    from platform_plugin.stages import (
        LLMEmbedder,
        LLMJudge,
        LLMPredictor,
        ModelPredictor,
        PredictionEvaluator,
        UDFPredictor,
    )
    from platform_plugin.tracking import autolog, load_stage, log_model

__version__ = "0.1.0"

_HOMES = {
    "LLMEmbedder": "stages",
    "LLMJudge": "stages",
    "LLMPredictor": "stages",
    "ModelPredictor": "stages",
    "PredictionEvaluator": "stages",
    "RunReport": "report",
    "SparkOnRay": "session",
    "UDFPredictor": "stages",
    "autolog": "tracking",
    "evaluate": "evaluation",
    "load_stage": "tracking",
    "log_model": "tracking",
    "release_answers": "answers",
    "release_engines": "pool",
    "spark_on_ray": "session",
}
__all__ = [
    "LLMEmbedder",
    "LLMJudge",
    "LLMPredictor",
    "ModelPredictor",
    "PredictionEvaluator",
    "RunReport",
    "SparkOnRay",
    "UDFPredictor",
    "autolog",
    "evaluate",
    "load_stage",
    "log_model",
    "release_answers",
    "release_engines",
    "spark_on_ray",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
