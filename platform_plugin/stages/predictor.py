"""The LLM stage: a prompt a row, an answer a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pyspark import keyword_only

from platform_plugin.config import Ask
from platform_plugin.requests import Requests, Source
from platform_plugin.stages.base import AnsweredStage
from platform_plugin.stages.params import HasPrompt
from platform_plugin.template import PromptTemplate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class LLMPredictor(HasPrompt, AnsweredStage):
    """A Spark ML Transformer that asks an LLM for every row; eager: the requests are answered inside ``transform``.

    The answers come from vLLM engines on Ray, which stay warm for the next transform; the frame comes back with every
    input column as it was, the answer in `outputCol` and, for a row that cannot be answered, the reason in
    `errorCol`. Runs on: driver.

    Args:
        inputCol, promptTemplate, messagesCol: where a row's request comes from; exactly one of the three.
        systemPrompt: prepended as the system message.
        chatTemplate: "auto", the model's own where it has one, or "none", raw completion.
        outputCol, errorCol, detailsCol: "prediction", "<outputCol>_error", and none.
        model, engine, engineArgs: a profile, folder or hub id; "vllm" or "echo"; as vLLM spells them.
        samplingParams: as vLLM spells them, over temperature 0 and max_tokens 256.
        handleInvalid: "keep" or "skip" rows that cannot be answered.
        deduplicate: "auto", True or False: answer equal requests once.
        prefixOrdering: order the requests for the engine's prefix cache.
        batchSize: rows a call to an engine.
        minReplicas, maxReplicas: engines that start at once, and at most.
        idleTimeout, startTimeout: seconds until an idle engine stops; that an engine may take to start.
        handOff: "auto" or "raydp".
        trustRemoteCode: run code that comes with the model.

    Raises:
        ConfigError: a param of another name, or a value that is wrong; from ``transform`` and ``transformSchema``.
        SchemaError: a column that is missing, of a wrong type, reserved or already there.
        SessionError: from ``transform``, in a session that does not run on Ray.
        EngineStartError: the engine does not start, in its own words.

    Example:
        >>> from platform_plugin.stages import LLMPredictor
        >>> stage = LLMPredictor(promptTemplate="Which topic: {message}", samplingParams={"max_tokens": 8})
        >>> stage.getOutputCol(), stage.getErrorCol()
        ('prediction', 'prediction_error')
    """

    @keyword_only
    def __init__(
        self,
        *,
        inputCol: str | None = None,
        promptTemplate: str | None = None,
        messagesCol: str | None = None,
        systemPrompt: str | None = None,
        chatTemplate: str | None = None,
        outputCol: str | None = None,
        errorCol: str | None = None,
        detailsCol: str | None = None,
        model: str | None = None,
        engine: str | None = None,
        engineArgs: dict[str, Any] | None = None,
        samplingParams: dict[str, Any] | None = None,
        handleInvalid: str | None = None,
        deduplicate: str | bool | None = None,
        prefixOrdering: bool | None = None,
        batchSize: int | None = None,
        minReplicas: int | None = None,
        maxReplicas: int | None = None,
        idleTimeout: float | None = None,
        startTimeout: float | None = None,
        handOff: str | None = None,
        trustRemoteCode: bool | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(self._input_kwargs)  # type: ignore[attr-defined]

    def setParams(self, **params: Any) -> Self:
        """Set any number of params at once, by the names of the constructor."""
        return self._given(params)

    def ask(self) -> Ask:
        """Return what is asked of each request."""
        return Ask(
            system_prompt=self.getSystemPrompt() if self.isDefined(self.systemPrompt) else None,
            messages=self.isDefined(self.messagesCol),
            chat_template=self.getChatTemplate(),
            sampling=self.getSamplingParams(),
        )

    def check(self, columns: StructType) -> None:
        """Raise for a source of prompts that is missing, or does not fit the frame."""
        self._source().check(columns)

    def requests(self, df: DataFrame) -> Requests:
        """Return the requests of a frame, as Spark expressions."""
        return Requests.build(
            df,
            self._source(),
            deduplicate=self._deduplicates(),
            prefix_ordering=self.getPrefixOrdering(),
        )

    def _source(self) -> Source:
        template = self.getPromptTemplate() if self.isDefined(self.promptTemplate) else None
        return Source(
            input_col=self.getInputCol() if self.isDefined(self.inputCol) else None,
            template=PromptTemplate.parse(template) if template is not None else None,
            messages_col=self.getMessagesCol() if self.isDefined(self.messagesCol) else None,
        )
