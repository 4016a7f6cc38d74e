"""The embedding stage: a text a row, a vector a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from pyspark import keyword_only
from pyspark.ml.linalg import VectorUDT
from pyspark.ml.param import Param, Params
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from platform_plugin.config import Ask, TooLong
from platform_plugin.requests import Source
from platform_plugin.schema import column
from platform_plugin.scoring import Fields
from platform_plugin.stages.base import AnsweredStage
from platform_plugin.stages.convert import json_dict, one_of
from platform_plugin.stages.params import HasInput, HasTemplate
from platform_plugin.template import PromptTemplate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class LLMEmbedder(HasInput, HasTemplate, AnsweredStage):
    """A Spark ML Transformer that embeds the text of every row; eager: it is computed inside ``transform``.

    As `LLMPredictor` with a vector for an answer: the same engines, hand-offs, errors by row and report. Texts go to
    the model as they are, without a chat template. Runs on: driver.

    Args:
        inputCol, promptTemplate: where a row's text comes from; exactly one of the two.
        promptTooLong: "error", "truncate_left" or "truncate_right".
        outputCol, errorCol, detailsCol: "embedding", "<outputCol>_error", and none.
        outputType: "array", of floats, or "vector", a dense vector of ``pyspark.ml.linalg`` for Spark's own stages.
        model, engine, engineArgs: "minilm-l6-v2", a profile, folder or hub id of a model that vLLM can pool.
        poolingParams: as vLLM spells them: ``dimensions``, ``use_activation`` (true, its default, normalizes).
        The rest: as in `LLMPredictor`.

    Raises:
        As `LLMPredictor`.

    Example:
        >>> from platform_plugin.stages import LLMEmbedder
        >>> stage = LLMEmbedder(inputCol="message", outputType="vector")
        >>> stage.getOutputCol(), stage.getModel()
        ('embedding', 'minilm-l6-v2')
    """

    ENGINE_ARGS: ClassVar[dict[str, Any]] = {"runner": "pooling"}

    outputType: Param[str] = Param(
        Params._dummy(),
        "outputType",
        "array: array<float>; vector: a dense vector of pyspark.ml.linalg",
        one_of("array", "vector"),
    )
    poolingParams = Param(
        Params._dummy(), "poolingParams", "as vLLM spells them: dimensions, use_activation", json_dict
    )

    @keyword_only
    def __init__(
        self,
        *,
        inputCol: str | None = None,
        promptTemplate: str | None = None,
        promptTooLong: str | None = None,
        outputCol: str | None = None,
        errorCol: str | None = None,
        detailsCol: str | None = None,
        outputType: str | None = None,
        model: str | None = None,
        engine: str | None = None,
        engineArgs: dict[str, Any] | None = None,
        poolingParams: dict[str, Any] | None = None,
        handleInvalid: str | None = None,
        deduplicate: str | bool | None = None,
        batchSize: int | None = None,
        minReplicas: int | None = None,
        maxReplicas: int | None = None,
        idleTimeout: float | None = None,
        startTimeout: float | None = None,
        handOff: str | None = None,
        handOffDir: str | None = None,
        trustRemoteCode: bool | None = None,
        maxErrorRate: float | None = None,
        requestTimeout: float | None = None,
        tensorParallelSize: int | None = None,
        pipelineParallelSize: int | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(self._input_kwargs)  # type: ignore[attr-defined]
        self._setDefault(model="minilm-l6-v2", outputCol="embedding", outputType="array", poolingParams={})
        # No prefix is cached, and an order costs a job.
        self._setDefault(prefixOrdering=False)

    def getOutputType(self) -> str:
        return self.getOrDefault(self.outputType)

    def setOutputType(self, value: str) -> Self:
        return self._set(outputType=value)

    def getPoolingParams(self) -> dict[str, Any]:
        return self.getOrDefault(self.poolingParams)

    def setPoolingParams(self, value: dict[str, Any]) -> Self:
        return self._set(poolingParams=value)

    def ask(self) -> Ask:
        """Return what is asked of each request."""
        return Ask(
            task="embed",
            pooling=self.getPoolingParams(),
            chat_template="none",
            prompt_too_long=cast("TooLong", self.getPromptTooLong()),
            request_timeout_s=self.getRequestTimeout(),
        )

    def check(self, columns: StructType) -> None:
        """Raise SchemaError or ConfigError for a source that the frame does not have, or that is none."""
        self.source().check(columns)

    def fields(self) -> Fields:
        """Return where a row's text is and where its vector goes."""
        source = self.source()
        return Fields(
            output=self.getOutputCol(),
            error=self.getErrorCol(),
            details=self._details_col(),
            input=source.input_col,
            template=source.template,
            vector=self.getOutputType() == "vector",
        )

    def shaped(self, answers: DataFrame) -> DataFrame:
        """Return the frame with vectors of spark.ml in place of arrays, where outputType says so."""
        if self.getOutputType() != "vector":
            return answers
        from pyspark.ml.functions import array_to_vector

        name = self.getOutputCol()
        made = F.when(column(name).isNotNull(), array_to_vector(column(name)))
        return answers.select(*[made.alias(name) if c == name else column(c) for c in answers.columns])

    def shaped_type(self, answer: DataType) -> DataType:
        """Return the type of outputCol."""
        return VectorUDT() if self.getOutputType() == "vector" else answer

    def source(self) -> Source:
        """Return where a row's prompt comes from."""
        template = self.getPromptTemplate() if self.isDefined(self.promptTemplate) else None
        return Source(
            input_col=self.getInputCol() if self.isDefined(self.inputCol) else None,
            template=PromptTemplate.parse(template) if template is not None else None,
        )
