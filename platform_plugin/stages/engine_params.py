"""The params of the engine and of the run: JSON values only, as in `params`."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters

from platform_plugin.stages.convert import at_least, deduplicate, json_dict, share
from platform_plugin.stages.params import text


class HasModel(Params):
    """Which model answers, in which engine."""

    model = text("model", "a profile of conf/models, a local folder, or a hub id")
    engine = text("engine", "vllm, or echo for tests without a model")
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
    handOff = text("handOff", "auto, raydp, inline or parquet: the way from Spark to Ray and back")
    handOffDir = text("handOffDir", "for parquet: a folder that Spark's executors and Ray's workers both reach")
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

    def getHandOffDir(self) -> str:
        return self.getOrDefault(self.handOffDir)

    def setHandOffDir(self, value: str) -> Self:
        return self._set(handOffDir=value)

    def getMaxErrorRate(self) -> float:
        return self.getOrDefault(self.maxErrorRate)

    def setMaxErrorRate(self, value: float) -> Self:
        return self._set(maxErrorRate=value)

    def getRequestTimeout(self) -> float:
        return self.getOrDefault(self.requestTimeout)

    def setRequestTimeout(self, value: float) -> Self:
        return self._set(requestTimeout=value)
