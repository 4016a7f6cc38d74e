"""Evaluation of models: metrics in Spark, comparison with a baseline, gates, a report, runs in MLflow.

The names are loaded when they are first used: the stages need parts of this folder, and it needs the stages.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from platform_plugin.evaluation.evaluating import evaluate
    from platform_plugin.evaluation.result import EvaluationResult

__all__ = ["EvaluationResult", "evaluate"]
_HOMES = {"EvaluationResult": "result", "evaluate": "evaluating"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
