"""The params of a stage that maps a function over rows: where its columns are, and where it runs."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params

from platform_plugin.stages.convert import json_dict, one_of, strings
from platform_plugin.stages.params import HasResult, text


class HasMapping(HasResult):
    """Columns in, a column and an error out, on actors of their own."""

    inputCols = Param(Params._dummy(), "inputCols", "the columns that are given to it, in order", strings)
    outputCol = text("outputCol", "column for what it returns; it must not exist")
    handleInvalid: Param[str] = Param(
        Params._dummy(),
        "handleInvalid",
        "error: what is raised for a row ends the job; keep: the row stays, with errorCol set; skip: it is left out",
        one_of("error", "keep", "skip"),
    )
    onRay = Param(
        Params._dummy(),
        "onRay",
        "options of the actors: replicas, num_cpus, num_gpus, batch_rows, in_flight, idle_timeout, start_timeout, pool",
        json_dict,
    )

    def getInputCols(self) -> list[str]:
        return self.getOrDefault(self.inputCols)

    def setInputCols(self, value: list[str]) -> Self:
        return self._set(inputCols=value)

    def getOnRay(self) -> dict[str, Any]:
        return self.getOrDefault(self.onRay)

    def setOnRay(self, value: dict[str, Any]) -> Self:
        return self._set(onRay=value)
