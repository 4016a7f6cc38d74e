"""The params of the stages: JSON values only, so that pipelines save, load and copy in a fresh process.

camelCase stops in this folder. What goes into an engine (`samplingParams`, `engineArgs`) is spelled as the engine
spells it.
"""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters

from platform_plugin.stages.convert import at_least, deduplicate, json_dict, one_of, share, strings

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


def _text(name: str, doc: str) -> Param[str]:
    return Param(Params._dummy(), name, doc, TypeConverters.toString)


class HasPrompt(Params):
    """Where the request of a row comes from: exactly one of inputCol, promptTemplate and messagesCol."""

    inputCol = _text("inputCol", "column with the user's message, string")
    promptTemplate = _text("promptTemplate", "the user's message as a text with {column} fields; {{ and }} for braces")
    messagesCol = _text("messagesCol", "column with the conversation, array<struct<role:string,content:string>>")
    systemPrompt = _text("systemPrompt", "prepended as the system message")
    chatTemplate = _text("chatTemplate", "auto: the model's own, where it has one; none: raw completion; or Jinja text")
    chatTemplateKwargs = Param(Params._dummy(), "chatTemplateKwargs", "passed to the chat template", json_dict)
    promptTooLong: Param[str] = Param(
        Params._dummy(),
        "promptTooLong",
        "error: a row error; truncate_left, truncate_right: shorten the last user message from that side",
        one_of("error", "truncate_left", "truncate_right"),
    )
    samplingParamsCol = _text(
        "samplingParamsCol", "column with a row's own sampling parameters, struct or JSON string; over samplingParams"
    )
    samplingParams = Param(
        Params._dummy(),
        "samplingParams",
        "as vLLM spells them; over temperature 0 and max_tokens 256",
        json_dict,
    )

    def getInputCol(self) -> str:
        return self.getOrDefault(self.inputCol)

    def setInputCol(self, value: str) -> Self:
        return self._set(inputCol=value)

    def getPromptTemplate(self) -> str:
        return self.getOrDefault(self.promptTemplate)

    def setPromptTemplate(self, value: str) -> Self:
        return self._set(promptTemplate=value)

    def getMessagesCol(self) -> str:
        return self.getOrDefault(self.messagesCol)

    def setMessagesCol(self, value: str) -> Self:
        return self._set(messagesCol=value)

    def getSystemPrompt(self) -> str:
        return self.getOrDefault(self.systemPrompt)

    def setSystemPrompt(self, value: str) -> Self:
        return self._set(systemPrompt=value)

    def getChatTemplate(self) -> str:
        return self.getOrDefault(self.chatTemplate)

    def setChatTemplate(self, value: str) -> Self:
        return self._set(chatTemplate=value)

    def getChatTemplateKwargs(self) -> dict[str, Any]:
        return self.getOrDefault(self.chatTemplateKwargs)

    def setChatTemplateKwargs(self, value: dict[str, Any]) -> Self:
        return self._set(chatTemplateKwargs=value)

    def getPromptTooLong(self) -> str:
        return self.getOrDefault(self.promptTooLong)

    def setPromptTooLong(self, value: str) -> Self:
        return self._set(promptTooLong=value)

    def getSamplingParamsCol(self) -> str:
        return self.getOrDefault(self.samplingParamsCol)

    def setSamplingParamsCol(self, value: str) -> Self:
        return self._set(samplingParamsCol=value)

    def getSamplingParams(self) -> dict[str, Any]:
        return self.getOrDefault(self.samplingParams)

    def setSamplingParams(self, value: dict[str, Any]) -> Self:
        return self._set(samplingParams=value)


class HasOutput(Params):
    """Where the answers go, and what becomes of rows without one."""

    outputCol = _text("outputCol", "column for the answer; it must not exist")
    errorCol = _text("errorCol", "struct column for the error, null for good rows; default <outputCol>_error")
    detailsCol = _text("detailsCol", "struct column for finish reason, tokens and seconds; left out where unset")
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

    def getDetailsCol(self) -> str:
        return self.getOrDefault(self.detailsCol)

    def setDetailsCol(self, value: str) -> Self:
        return self._set(detailsCol=value)

    def getHandleInvalid(self) -> str:
        return self.getOrDefault(self.handleInvalid)

    def setHandleInvalid(self, value: str) -> Self:
        return self._set(handleInvalid=value)


class HasShape(Params):
    """What shape an answer has."""

    outputSchema = _text("outputSchema", "Spark DDL: the answer is a struct of this type, and decoding is held to it")
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


class HasModel(Params):
    """Which model answers, in which engine."""

    model = _text("model", "a profile of conf/models, a local folder, or a hub id")
    engine = _text("engine", "vllm, or echo for tests without a model")
    engineArgs = Param(Params._dummy(), "engineArgs", "as vLLM spells them; over those of the profile", json_dict)
    trustRemoteCode = Param(
        Params._dummy(),
        "trustRemoteCode",
        "run code that comes with the model",
        TypeConverters.toBoolean,
    )

    tensorParallelSize: Param[int] = Param(
        Params._dummy(), "tensorParallelSize", "GPUs a layer is spread over", at_least(1, TypeConverters.toInt)
    )
    pipelineParallelSize: Param[int] = Param(
        Params._dummy(), "pipelineParallelSize", "GPUs the layers are spread over", at_least(1, TypeConverters.toInt)
    )

    def getModel(self) -> str:
        return self.getOrDefault(self.model)

    def setModel(self, value: str) -> Self:
        return self._set(model=value)

    def getEngine(self) -> str:
        return self.getOrDefault(self.engine)

    def setEngine(self, value: str) -> Self:
        return self._set(engine=value)

    def getEngineArgs(self) -> dict[str, Any]:
        return self.getOrDefault(self.engineArgs)

    def setEngineArgs(self, value: dict[str, Any]) -> Self:
        return self._set(engineArgs=value)

    def getTensorParallelSize(self) -> int:
        return self.getOrDefault(self.tensorParallelSize)

    def setTensorParallelSize(self, value: int) -> Self:
        return self._set(tensorParallelSize=value)

    def getPipelineParallelSize(self) -> int:
        return self.getOrDefault(self.pipelineParallelSize)

    def setPipelineParallelSize(self, value: int) -> Self:
        return self._set(pipelineParallelSize=value)

    def getTrustRemoteCode(self) -> bool:
        return self.getOrDefault(self.trustRemoteCode)

    def setTrustRemoteCode(self, value: bool) -> Self:
        return self._set(trustRemoteCode=value)


class HasRun(Params):
    """How the requests run: batches, replicas, hand-off."""

    deduplicate: Param[str] = Param(
        Params._dummy(),
        "deduplicate",
        "answer equal requests once; auto: where equal requests have equal answers (temperature 0, or a seed)",
        deduplicate,
    )
    prefixOrdering = Param(
        Params._dummy(),
        "prefixOrdering",
        "order requests for the engine's prefix cache",
        TypeConverters.toBoolean,
    )
    batchSize: Param[int] = Param(
        Params._dummy(), "batchSize", "rows a call to an engine", at_least(1, TypeConverters.toInt)
    )
    minReplicas: Param[int] = Param(
        Params._dummy(),
        "minReplicas",
        "replicas that a start brings up",
        at_least(0, TypeConverters.toInt),
    )
    maxReplicas: Param[int] = Param(Params._dummy(), "maxReplicas", "most replicas", at_least(1, TypeConverters.toInt))
    idleTimeout: Param[float] = Param(
        Params._dummy(),
        "idleTimeout",
        "seconds until an idle engine stops",
        at_least(0.1, TypeConverters.toFloat),
    )
    startTimeout: Param[float] = Param(
        Params._dummy(),
        "startTimeout",
        "seconds that an engine may take to start",
        at_least(1, TypeConverters.toFloat),
    )
    handOff = _text("handOff", "auto, or raydp: the bridge between Spark and Ray")
    maxErrorRate: Param[float] = Param(
        Params._dummy(),
        "maxErrorRate",
        "the run stops when more than this share of all requests fails; unset, 0.5 for runs of 100 requests or more",
        share,
    )
    requestTimeout: Param[float] = Param(
        Params._dummy(),
        "requestTimeout",
        "seconds that a request may take once the engine has it",
        at_least(0.01, TypeConverters.toFloat),
    )

    def getDeduplicate(self) -> str:
        return self.getOrDefault(self.deduplicate)

    def setDeduplicate(self, value: str | bool) -> Self:
        return self._set(deduplicate=value)

    def getPrefixOrdering(self) -> bool:
        return self.getOrDefault(self.prefixOrdering)

    def setPrefixOrdering(self, value: bool) -> Self:
        return self._set(prefixOrdering=value)

    def getBatchSize(self) -> int:
        return self.getOrDefault(self.batchSize)

    def setBatchSize(self, value: int) -> Self:
        return self._set(batchSize=value)

    def getMinReplicas(self) -> int:
        return self.getOrDefault(self.minReplicas)

    def setMinReplicas(self, value: int) -> Self:
        return self._set(minReplicas=value)

    def getMaxReplicas(self) -> int:
        return self.getOrDefault(self.maxReplicas)

    def setMaxReplicas(self, value: int) -> Self:
        return self._set(maxReplicas=value)

    def getIdleTimeout(self) -> float:
        return self.getOrDefault(self.idleTimeout)

    def setIdleTimeout(self, value: float) -> Self:
        return self._set(idleTimeout=value)

    def getStartTimeout(self) -> float:
        return self.getOrDefault(self.startTimeout)

    def setStartTimeout(self, value: float) -> Self:
        return self._set(startTimeout=value)

    def getHandOff(self) -> str:
        return self.getOrDefault(self.handOff)

    def setHandOff(self, value: str) -> Self:
        return self._set(handOff=value)

    def getMaxErrorRate(self) -> float:
        return self.getOrDefault(self.maxErrorRate)

    def setMaxErrorRate(self, value: float) -> Self:
        return self._set(maxErrorRate=value)

    def getRequestTimeout(self) -> float:
        return self.getOrDefault(self.requestTimeout)

    def setRequestTimeout(self, value: float) -> Self:
        return self._set(requestTimeout=value)
