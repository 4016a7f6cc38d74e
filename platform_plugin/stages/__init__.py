"""The Spark ML face: each stage at the path ``platform_plugin.stages.<Class>``, which is written in saved pipelines."""

from platform_plugin.stages.embedder import LLMEmbedder
from platform_plugin.stages.evaluator import PredictionEvaluator
from platform_plugin.stages.judge import LLMJudge
from platform_plugin.stages.model_predictor import ModelPredictor
from platform_plugin.stages.predictor import LLMPredictor
from platform_plugin.stages.udf_predictor import UDFPredictor

__all__ = ["LLMEmbedder", "LLMJudge", "LLMPredictor", "ModelPredictor", "PredictionEvaluator", "UDFPredictor"]

for _name in __all__:
    # Spark saves a stage under its module's path, and a JVM twin has the same one: it must not name our files.
    globals()[_name].__module__ = __name__
