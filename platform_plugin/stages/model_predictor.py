"""The stage of a model that is no LLM."""

from __future__ import annotations

from typing import Any, Self

from pyspark import keyword_only
from pyspark.ml.param import Param, Params

from platform_plugin.ddl import read_type
from platform_plugin.errors import ConfigError
from platform_plugin.model_work import ModelWork
from platform_plugin.predictors import ModelConfig, described
from platform_plugin.stages.convert import json_dict
from platform_plugin.stages.mapped import MappedStage
from platform_plugin.stages.params import text


class ModelPredictor(MappedStage):
    """A Spark ML Transformer that asks a model on Ray actors, batch by batch; lazy: it runs when Spark wants its rows.

    A model takes a dict of arrays, one a column, and gives a dict of arrays. It is loaded once an actor, for all
    transforms. Rows stay as they are and in their order, in any session and in streams. Runs on: driver; the model on
    Ray actors.

    Args:
        model: an MLflow model (models:/, runs:/, a folder with an MLmodel); a TorchScript file (.pt, .ts); a
            .safetensors file, with moduleClass; or "package.module:Class" with predict(inputs) -> outputs.
        moduleClass: "package.module:Class" of the torch module that the weights are for.
        modelArgs: what the constructor of a class takes.
        inputCols: numbers and booleans become 1-d arrays, strings arrays of objects, arrays of numbers and spark.ml
            vectors 2-d arrays.
        outputSchema: what the model gives, as Spark DDL: "double", "array<float>", "label STRING, score DOUBLE".
        outputCol, errorCol: "prediction", "<outputCol>_error".
        handleInvalid: "keep" or "skip" rows with a null (NullInput), an array of another length than the rows beside
            it (BadShape), or for which the model raises; "error": the first one ends the job.
        onRay: a dict of the actors' options, as `udf_compat.configure`, over what that set.

    Raises:
        ConfigError: a param, an option or the model is wrong; from ``transform`` and ``transformSchema``.
        SchemaError: a column that is missing, of a type that no array is made of, reserved or already there.

    Example:
        >>> from platform_plugin.stages import ModelPredictor
        >>> stage = ModelPredictor(model="fraud.pt", inputCols=["features"], outputSchema="float", outputCol="risk")
        >>> stage.getErrorCol(), stage.getHandleInvalid()
        ('risk_error', 'keep')
    """

    model = text("model", "an MLflow model, a TorchScript or safetensors file, or package.module:Class")
    moduleClass = text("moduleClass", "package.module:Class of the torch module that safetensors weights are for")
    modelArgs = Param(Params._dummy(), "modelArgs", "what the constructor of a class takes", json_dict)
    outputSchema = text("outputSchema", "what the model gives, as Spark DDL: a type, or fields")

    @keyword_only
    def __init__(
        self,
        *,
        model: str | None = None,
        moduleClass: str | None = None,
        modelArgs: dict[str, Any] | None = None,
        inputCols: list[str] | None = None,
        outputSchema: str | None = None,
        outputCol: str | None = None,
        errorCol: str | None = None,
        handleInvalid: str | None = None,
        onRay: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        kwargs = self._input_kwargs  # type: ignore[attr-defined]
        super().__init__(kwargs, handle_invalid="keep")
        self._setDefault(modelArgs={})

    def getModel(self) -> str:
        return self.getOrDefault(self.model)

    def setModel(self, value: str) -> Self:
        return self._set(model=value)

    def getModuleClass(self) -> str:
        return self.getOrDefault(self.moduleClass)

    def setModuleClass(self, value: str) -> Self:
        return self._set(moduleClass=value)

    def getModelArgs(self) -> dict[str, Any]:
        return self.getOrDefault(self.modelArgs)

    def setModelArgs(self, value: dict[str, Any]) -> Self:
        return self._set(modelArgs=value)

    def getOutputSchema(self) -> str:
        return self.getOrDefault(self.outputSchema)

    def setOutputSchema(self, value: str) -> Self:
        return self._set(outputSchema=value)

    def work(self) -> ModelWork:
        """Return what is done to the rows, checked. Raises ConfigError."""
        if not self.isDefined(self.model):
            raise ConfigError("ModelPredictor has no model; explainParams() lists what it takes.")
        if not self.isDefined(self.outputSchema):
            raise ConfigError(
                "ModelPredictor has no outputSchema; say what the model gives: 'double', 'array<float>' or "
                "'label STRING, score DOUBLE'."
            )
        config = ModelConfig.of(
            model=self.getModel(),
            module_class=self.getModuleClass() if self.isDefined(self.moduleClass) else None,
            model_args=self.getModelArgs(),
        )
        return ModelWork(described(config), self.getModel(), read_type(self.getOutputSchema(), "outputSchema"))
