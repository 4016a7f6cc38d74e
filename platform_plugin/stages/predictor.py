"""The LLM stage: a prompt a row, an answer a row."""

from __future__ import annotations

from typing import Any, cast

from pyspark import keyword_only
from pyspark.sql.types import StructType

from platform_plugin.config import Ask, TooLong
from platform_plugin.ddl import read_type
from platform_plugin.errors import ConfigError
from platform_plugin.requests import Source
from platform_plugin.scoring import Fields
from platform_plugin.stages.base import AnsweredStage
from platform_plugin.stages.params import HasPrompt, HasShape
from platform_plugin.template import PromptTemplate

_DDL = "\nWrite it as in 'intent STRING, urgent BOOLEAN, tags ARRAY<STRING>'."


class LLMPredictor(HasPrompt, HasShape, AnsweredStage):
    """A Spark ML Transformer that asks an LLM for every row; eager: the requests are answered inside ``transform``.

    The answers come from vLLM engines on Ray, which stay warm for the next transform; the frame comes back with every
    input column as it was, the answer in `outputCol` and, for a row that cannot be answered, the reason in
    `errorCol`. A streaming frame's rows are asked as its query runs. Runs on: driver.

    Args:
        inputCol, promptTemplate, messagesCol: where a row's request comes from; exactly one of the three.
        systemPrompt: prepended as the system message.
        chatTemplate, chatTemplateKwargs: "auto", the model's own where it has one; "none", raw completion; or Jinja.
        outputCol, errorCol, detailsCol: "prediction", "<outputCol>_error", and none.
        outputSchema, outputChoices: Spark DDL, for a typed struct; the answers that there are. Both constrain decoding.
        model, engine, engineArgs: a profile, folder or hub id; "vllm" or "echo"; as vLLM spells them.
        tensorParallelSize, pipelineParallelSize: GPUs of a replica; from the profile.
        samplingParams: as vLLM spells them, over temperature 0 and max_tokens 256; with n > 1 the output is an array.
        samplingParamsCol: column with a row's own, a struct or a JSON string.
        promptTooLong: "error", "truncate_left" or "truncate_right": shortens the last user message only.
        handleInvalid: "keep" or "skip" rows that cannot be answered, or "error": raise, with the answers in lastResult.
        maxErrorRate: share of all requests whose failure stops the run.
        requestTimeout: seconds that a request may take once the engine has it.
        deduplicate: "auto", True or False: answer equal requests once.
        prefixOrdering: order the requests for the engine's prefix cache.
        batchSize: rows a call to an engine.
        minReplicas, maxReplicas: engines that start at once, and at most.
        idleTimeout, startTimeout: seconds until an idle engine stops; that an engine may take to start.
        handOff, handOffDir: "auto"; "raydp", in a session of `spark_on_ray`; "inline", where Spark's workers reach Ray;
            "parquet", with the folder that both sides reach.
        trustRemoteCode: run code that comes with the model.

    Raises:
        ConfigError: a param of another name, or a value that is wrong; from ``transform`` and ``transformSchema``.
        SchemaError: a column that is missing, of a wrong type, reserved or already there.
        SessionError: from ``transform``, with handOff="raydp" in a session that does not run on Ray.
        EngineStartError: the engine does not start, in its own words.
        InvalidRowsError: with handleInvalid="error".
        ErrorRateError, StalledError: too many requests fail, or no answer comes back for requestTimeout.

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
        chatTemplateKwargs: dict[str, Any] | None = None,
        samplingParamsCol: str | None = None,
        outputSchema: str | None = None,
        outputChoices: list[str] | None = None,
        promptTooLong: str | None = None,
        maxErrorRate: float | None = None,
        requestTimeout: float | None = None,
        tensorParallelSize: int | None = None,
        pipelineParallelSize: int | None = None,
        handOffDir: str | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__(self._input_kwargs)  # type: ignore[attr-defined]

    def ask(self) -> Ask:
        """Return what is asked of each request."""
        return Ask(
            system_prompt=self.getSystemPrompt() if self.isDefined(self.systemPrompt) else None,
            messages=self.isDefined(self.messagesCol),
            chat_template=self.getChatTemplate(),
            chat_template_kwargs=self.getChatTemplateKwargs(),
            sampling=self.getSamplingParams(),
            prompt_too_long=cast("TooLong", self.getPromptTooLong()),
            choices=tuple(self.getOutputChoices()) if self.isDefined(self.outputChoices) else None,
            output_type=kind.jsonValue() if (kind := self.answer_struct()) is not None else None,
            request_timeout_s=self.getRequestTimeout(),
        )

    def answer_struct(self) -> StructType | None:
        """Return the struct of outputSchema, or None where the answer is text. Raises ConfigError."""
        if not self.isDefined(self.outputSchema):
            return None
        text = self.getOutputSchema()
        kind = read_type(text, "outputSchema")
        if not isinstance(kind, StructType):
            raise ConfigError(f"outputSchema={text!r} is a {kind.simpleString()}, and a struct is wanted.{_DDL}")
        return kind

    def check(self, columns: StructType) -> None:
        """Raise for a source of prompts that is missing, or does not fit the frame."""
        self.source().check(columns)

    def fields(self) -> Fields:
        """Return where a row's request is and where its answer goes."""
        source = self.source()
        return Fields(
            output=self.getOutputCol(),
            error=self.getErrorCol(),
            details=self._details_col(),
            input=source.input_col,
            template=source.template,
            messages=source.messages_col,
            sampling=source.sampling_col,
        )

    def source(self) -> Source:
        """Return where a row's prompt comes from."""
        template = self.getPromptTemplate() if self.isDefined(self.promptTemplate) else None
        return Source(
            input_col=self.getInputCol() if self.isDefined(self.inputCol) else None,
            template=PromptTemplate.parse(template) if template is not None else None,
            messages_col=self.getMessagesCol() if self.isDefined(self.messagesCol) else None,
            sampling_col=self.getSamplingParamsCol() if self.isDefined(self.samplingParamsCol) else None,
        )
