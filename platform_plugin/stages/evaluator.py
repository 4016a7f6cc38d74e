"""The evaluator: a metric as Spark's own tuning takes it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from pyspark import keyword_only
from pyspark.ml.evaluation import Evaluator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import functions as F

from platform_plugin.errors import ConfigError, near
from platform_plugin.evaluation import frame
from platform_plugin.evaluation.sums import Pass
from platform_plugin.metrics import Facts, load_metric
from platform_plugin.stages.convert import json_dict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class PredictionEvaluator(Evaluator, DefaultParamsReadable[Any], DefaultParamsWritable):
    """A metric of platform_plugin.metrics for ``CrossValidator`` and ``TrainValidationSplit``; any frame will do.

    The metric is computed by Spark, in one job; only sums come to the driver. Rows without a prediction count as
    wrong. Where the column that an LLM stage leaves beside its predictions is there (``<predictionCol>_error``), a row
    with an error has no prediction; with ``<predictionCol>_details``, tokens, latency and cost are known.
    Runs on: driver.

    Args:
        metricName: a metric, such as "accuracy" (the default), "macro_f1", "rougeL"; its options in metricOptions.
        predictionCol: "prediction", or a field of a struct: "prediction.intent".
        labelCol: "label".
        metricOptions: such as {"schema": ...} for json_validity.

    Raises:
        ConfigError: a metric, an option or a param that there is not; a frame in which nothing can be evaluated.
        SchemaError: a column that is absent or of a kind that the metric does not take.

    Example:
        >>> from platform_plugin.stages import PredictionEvaluator
        >>> evaluator = PredictionEvaluator(metricName="error_rate")
        >>> evaluator.getLabelCol(), evaluator.isLargerBetter()
        ('label', False)
    """

    metricName: Param[str] = Param(
        Params._dummy(), "metricName", "a metric of platform_plugin.metrics", TypeConverters.toString
    )
    predictionCol: Param[str] = Param(
        Params._dummy(), "predictionCol", "column of predictions, or a field of one", TypeConverters.toString
    )
    labelCol: Param[str] = Param(Params._dummy(), "labelCol", "column of labels", TypeConverters.toString)
    metricOptions = Param(Params._dummy(), "metricOptions", "options of the metric", json_dict)

    @keyword_only
    def __init__(
        self,
        *,
        metricName: str | None = None,
        predictionCol: str | None = None,
        labelCol: str | None = None,
        metricOptions: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        self._setDefault(metricName="accuracy", predictionCol="prediction", labelCol="label", metricOptions={})
        self.setParams(**self._input_kwargs)  # type: ignore[attr-defined]

    def setParams(self, **params: Any) -> Self:
        """Set any number of params at once, by the names of the constructor."""
        known = [p.name for p in self.params]
        for name in params:
            if name not in known:
                raise ConfigError(f"PredictionEvaluator has no param {name!r}.{near(name, known)}")
        return self._set(**{k: v for k, v in params.items() if v is not None})

    def getMetricName(self) -> str:
        return self.getOrDefault(self.metricName)

    def setMetricName(self, value: str) -> Self:
        return self._set(metricName=value)

    def getPredictionCol(self) -> str:
        return self.getOrDefault(self.predictionCol)

    def setPredictionCol(self, value: str) -> Self:
        return self._set(predictionCol=value)

    def getLabelCol(self) -> str:
        return self.getOrDefault(self.labelCol)

    def setLabelCol(self, value: str) -> Self:
        return self._set(labelCol=value)

    def getMetricOptions(self) -> dict[str, Any]:
        return self.getOrDefault(self.metricOptions)

    def setMetricOptions(self, value: dict[str, Any]) -> Self:
        return self._set(metricOptions=value)

    def isLargerBetter(self) -> bool:
        """Return whether a larger value is better. Raises ConfigError for a metric that has no better side."""
        better = load_metric(self.getMetricName(), self.getMetricOptions()).better
        if better == "neither":
            raise ConfigError(
                f"metricName={self.getMetricName()!r} has no better side, so nothing can be chosen by it."
            )
        return better == "higher"

    def _evaluate(self, dataset: DataFrame) -> float:
        metric = load_metric(self.getMetricName(), self.getMetricOptions())
        columns = dataset.schema
        output = self.getPredictionCol()
        error, details = frame.beside(columns, output)
        answer, kind = frame.answer(columns, output, "predictionCol", error, details)
        kinds = {"prediction": kind}
        if details is not None:
            kinds.update(dict.fromkeys(("prompt_tokens", "output_tokens", "seconds"), "number"))
        label = F.lit(None).cast("string")
        if "label" in getattr(metric, "takes", {"label": ()}):
            value, label_type = frame.find(columns, self.getLabelCol(), "labelCol")
            kinds["label"] = frame.kind_of(label_type, "labelCol")
            label = frame.as_text(value, label_type)
        metric.check(kinds)
        rows = dataset.select(
            F.lit(0).cast("bigint").alias("seed"),
            F.lit(1).cast("bigint").alias("times"),
            label.alias("label"),
            F.lit(None).cast("string").alias("human"),
            F.array().cast("array<string>").alias("slices"),
            F.array(answer).alias("models"),
        )
        classes = tuple(frame.classes(F.col("label"), rows)) if metric.needs_classes else ()
        bound = metric.bind(Facts(classes=classes))
        found_sums = Pass([[bound]]).run(rows)
        value_found = float(found_sums.values[0, 0][0]) if found_sums.rows else math.nan
        if math.isnan(value_found):
            raise ConfigError(
                f"metric {self.getMetricName()!r} has no value: of {found_sums.rows:,} rows none can be evaluated.\n"
                "Look at the labels and the errors of the predictions; a fold may be too small."
            )
        return value_found
