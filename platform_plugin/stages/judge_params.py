"""The params of the judge: what it reads of a row, and by which rubric it judges."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params

from platform_plugin.stages.convert import one_of
from platform_plugin.stages.params import HasChat, text

RUBRIC = "The answer does what was asked, is right, and says nothing beside the point."
JUDGE_DEFAULTS: dict[str, Any] = {
    "rubric": RUBRIC,
    "mode": "score",
    "predictionCol": "prediction",
    "otherCol": "other",
    "outputCol": "judgement",
}


class HasJudge(HasChat):
    """What the judge reads; how the model is asked is as in the predictor."""

    rubric = text("rubric", "what a good answer is, in words")
    mode: Param[str] = Param(
        Params._dummy(),
        "mode",
        "score: from 1 to 5 for predictionCol; pairwise: predictionCol against otherCol, asked in both orders",
        one_of("score", "pairwise"),
    )
    predictionCol = text("predictionCol", "column with the answer that is judged")
    otherCol = text("otherCol", "column with the answer that it is compared with, in pairs")
    labelCol = text("labelCol", "column with a reference answer, shown to the judge")
    humanCol = text("humanCol", "column with a person's score (in pairs: 1 a win, 0.5 a tie, 0 a loss), for agreement")

    def getRubric(self) -> str:
        return self.getOrDefault(self.rubric)

    def setRubric(self, value: str) -> Self:
        return self._set(rubric=value)

    def getMode(self) -> str:
        return self.getOrDefault(self.mode)

    def setMode(self, value: str) -> Self:
        return self._set(mode=value)

    def getPredictionCol(self) -> str:
        return self.getOrDefault(self.predictionCol)

    def setPredictionCol(self, value: str) -> Self:
        return self._set(predictionCol=value)

    def getOtherCol(self) -> str:
        return self.getOrDefault(self.otherCol)

    def setOtherCol(self, value: str) -> Self:
        return self._set(otherCol=value)

    def getLabelCol(self) -> str:
        return self.getOrDefault(self.labelCol)

    def setLabelCol(self, value: str) -> Self:
        return self._set(labelCol=value)

    def getHumanCol(self) -> str:
        return self.getOrDefault(self.humanCol)

    def setHumanCol(self, value: str) -> Self:
        return self._set(humanCol=value)
