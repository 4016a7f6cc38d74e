"""The params of a row's request and answer, and all defaults.

JSON values only, so that pipelines save, load and copy in a fresh process. camelCase stops in this folder. What goes
into an engine (`samplingParams`, `engineArgs`) is spelled as the engine spells it.
"""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters

from platform_plugin.stages.convert import json_dict, one_of, strings

DEFAULTS: dict[str, Any] = {
    "chatTemplate": "auto",
    "outputCol": "prediction",
    "model": "smollm2-135m",
    "engine": "vllm",
    "engineArgs": {},
    "samplingParams": {},
    "chatTemplateKwargs": {},
    "promptTooLong": "error",
    "handleInvalid": "keep",
    "maxErrorRate": 0.5,
    "requestTimeout": 600.0,
    "deduplicate": "auto",
    "prefixOrdering": True,
    "batchSize": 64,
    "minReplicas": 1,
    "maxReplicas": 1,
    "idleTimeout": 300.0,
    "startTimeout": 600.0,
    "handOff": "auto",
    "trustRemoteCode": False,
}


def text(name: str, doc: str) -> Param[str]:
    """Return a param that takes a string."""
    return Param(Params._dummy(), name, doc, TypeConverters.toString)


class HasInput(Params):
    """A row's text."""

    inputCol = text("inputCol", "column with the user's message, string")
    promptTooLong: Param[str] = Param(
        Params._dummy(),
        "promptTooLong",
        "error: a row error; truncate_left, truncate_right: shorten the last user message from that side",
        one_of("error", "truncate_left", "truncate_right"),
    )

    def getInputCol(self) -> str:
        return self.getOrDefault(self.inputCol)

    def setInputCol(self, value: str) -> Self:
        return self._set(inputCol=value)

    def getPromptTooLong(self) -> str:
        return self.getOrDefault(self.promptTooLong)

    def setPromptTooLong(self, value: str) -> Self:
        return self._set(promptTooLong=value)


class HasTemplate(Params):
    """A text made of several columns."""

    promptTemplate = text("promptTemplate", "the user's message as a text with {column} fields; {{ and }} for braces")

    def getPromptTemplate(self) -> str:
        return self.getOrDefault(self.promptTemplate)

    def setPromptTemplate(self, value: str) -> Self:
        return self._set(promptTemplate=value)


class HasChat(HasInput):
    """How the model is asked, whatever the stage asks it."""

    chatTemplate = text("chatTemplate", "auto: the model's own, where it has one; none: raw completion; or Jinja text")
    chatTemplateKwargs = Param(Params._dummy(), "chatTemplateKwargs", "passed to the chat template", json_dict)
    samplingParams = Param(
        Params._dummy(),
        "samplingParams",
        "as vLLM spells them; over temperature 0 and max_tokens 256",
        json_dict,
    )

    def getChatTemplate(self) -> str:
        return self.getOrDefault(self.chatTemplate)

    def setChatTemplate(self, value: str) -> Self:
        return self._set(chatTemplate=value)

    def getChatTemplateKwargs(self) -> dict[str, Any]:
        return self.getOrDefault(self.chatTemplateKwargs)

    def setChatTemplateKwargs(self, value: dict[str, Any]) -> Self:
        return self._set(chatTemplateKwargs=value)

    def getSamplingParams(self) -> dict[str, Any]:
        return self.getOrDefault(self.samplingParams)

    def setSamplingParams(self, value: dict[str, Any]) -> Self:
        return self._set(samplingParams=value)


class HasPrompt(HasChat, HasTemplate):
    """Where the request of a row comes from: exactly one of inputCol, promptTemplate and messagesCol."""

    messagesCol = text("messagesCol", "column with the conversation, array<struct<role:string,content:string>>")
    systemPrompt = text("systemPrompt", "prepended as the system message")
    samplingParamsCol = text(
        "samplingParamsCol", "column with a row's own sampling parameters, struct or JSON string; over samplingParams"
    )

    def getMessagesCol(self) -> str:
        return self.getOrDefault(self.messagesCol)

    def setMessagesCol(self, value: str) -> Self:
        return self._set(messagesCol=value)

    def getSystemPrompt(self) -> str:
        return self.getOrDefault(self.systemPrompt)

    def setSystemPrompt(self, value: str) -> Self:
        return self._set(systemPrompt=value)

    def getSamplingParamsCol(self) -> str:
        return self.getOrDefault(self.samplingParamsCol)

    def setSamplingParamsCol(self, value: str) -> Self:
        return self._set(samplingParamsCol=value)


class HasResult(Params):
    """Where results go, and what becomes of rows without one."""

    outputCol = text("outputCol", "column for the answer; it must not exist")
    errorCol = text("errorCol", "struct column for the error, null for good rows; default <outputCol>_error")
    handleInvalid: Param[str] = Param(
        Params._dummy(),
        "handleInvalid",
        "keep: a row that cannot be answered stays, with errorCol set; skip: it is left out; error: transform raises",
        one_of("keep", "skip", "error"),
    )

    def getOutputCol(self) -> str:
        return self.getOrDefault(self.outputCol)

    def setOutputCol(self, value: str) -> Self:
        return self._set(outputCol=value)

    def getErrorCol(self) -> str:
        if self.isDefined(self.errorCol):
            return self.getOrDefault(self.errorCol)
        return f"{self.getOutputCol()}_error"

    def setErrorCol(self, value: str) -> Self:
        return self._set(errorCol=value)

    def getHandleInvalid(self) -> str:
        return self.getOrDefault(self.handleInvalid)

    def setHandleInvalid(self, value: str) -> Self:
        return self._set(handleInvalid=value)


class HasOutput(HasResult):
    """What is told of an answer besides."""

    detailsCol = text("detailsCol", "struct column for finish reason, tokens and seconds; left out where unset")

    def getDetailsCol(self) -> str:
        return self.getOrDefault(self.detailsCol)

    def setDetailsCol(self, value: str) -> Self:
        return self._set(detailsCol=value)


class HasShape(Params):
    """What shape an answer has."""

    outputSchema = text("outputSchema", "Spark DDL: the answer is a struct of this type, and decoding is held to it")
    outputChoices = Param(
        Params._dummy(), "outputChoices", "the answer is one of these, and decoding is held to them", strings
    )

    def getOutputSchema(self) -> str:
        return self.getOrDefault(self.outputSchema)

    def setOutputSchema(self, value: str) -> Self:
        return self._set(outputSchema=value)

    def getOutputChoices(self) -> list[str]:
        return self.getOrDefault(self.outputChoices)

    def setOutputChoices(self, value: list[str]) -> Self:
        return self._set(outputChoices=value)
