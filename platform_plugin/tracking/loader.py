"""What ``mlflow.pyfunc.load_model`` calls for a logged pipeline: pandas in, a list of answers out.

MLflow names this module in the model, so its name and `_load_pyfunc` stay as they are.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_plugin.answers import release_answers
from platform_plugin.session import spark_on_ray
from platform_plugin.tracking import loading, references

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

PLACE = "place_in_the_input"


class PipelinePredictor:
    """A pipeline behind MLflow's ``predict``. Runs on: driver.

    Args:
        columns: the frame that the pipeline takes; None to have Spark find the types.
        answers: the column that is returned.
    """

    def __init__(self, spark: SparkSession, pipeline: Any, columns: Any, answers: str) -> None:
        self._spark, self._pipeline, self._columns, self._answers = spark, pipeline, columns, answers

    def get_raw_model(self) -> Any:
        """Return the pipeline."""
        return self._pipeline

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[Any]:  # noqa: ARG002
        """Return one answer a row, in order; None for a row that has none, of which a warning tells."""
        frame = self._frame(model_input)
        made = self._pipeline.transform(frame)
        wanted = [PLACE, self._answers, *self._error_columns(made)]
        rows = made.select(*wanted).collect()
        release_answers(made)
        found = {row[PLACE]: _plain(row[self._answers]) for row in rows}
        bad = Counter(row[name]["type"] for row in rows for name in wanted[2:] if row[name] is not None)
        if bad:
            logger.warning("%d of %d rows have no answer: %s", bad.total(), len(model_input), dict(bad))
        return [found.get(place) for place in range(len(model_input))]

    def _frame(self, model_input: pd.DataFrame) -> DataFrame:
        from pyspark.sql.types import LongType, StructField, StructType

        if self._columns is None:
            return self._spark.createDataFrame(model_input.assign(**{PLACE: range(len(model_input))}))
        schema = StructType(
            [
                *(StructField(field.name, field.dataType, nullable=True) for field in self._columns),
                StructField(PLACE, LongType()),
            ]
        )
        values = [[_taken(value, field.dataType) for value in model_input[field.name]] for field in self._columns]
        rows = list(zip(*values, range(len(model_input)), strict=True))
        return self._spark.createDataFrame(rows, schema)

    def _error_columns(self, made: DataFrame) -> list[str]:
        names = [
            stage.getErrorCol() for stage in references.own_stages(self._pipeline) if hasattr(stage, "getErrorCol")
        ]
        return [name for name in names if name in made.columns]


def _load_pyfunc(path: str) -> PipelinePredictor:
    """Load the pipeline in the session that runs, or in one that is started for it and ends with the process."""
    from mlflow.models import Model
    from mlflow.spark import _load_model
    from pyspark.sql.types import StructType

    known = (Model.load(str(Path(path).parent / "MLmodel")).metadata or {})["platform_plugin"]
    spark = loading.running_session() or spark_on_ray("platform-plugin-model").start()
    pipeline = _load_model(model_uri=path)  # type: ignore[no-untyped-call]
    for stage in references.own_stages(pipeline):
        references.verify(stage, known["weights"])
    columns = StructType.fromJson(json.loads(known["columns"])) if known["columns"] else None
    return PipelinePredictor(spark, pipeline, columns, known["answers"])


def _taken(value: Any, kind: Any) -> Any:
    """Return a value as the pipeline takes it: MLflow's signatures know doubles and lists where Spark knows more."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.types import DecimalType

    plain = _plain(value)
    if plain is not None and isinstance(kind, DecimalType) and not isinstance(plain, Decimal):
        return Decimal(str(plain))
    return Vectors.dense(plain) if isinstance(plain, list) and isinstance(kind, VectorUDT) else plain


def _plain(value: Any) -> Any:
    """Return a value of pandas as one of Spark, or of Spark as plain Python: no NaN for a null, no numpy, no Row."""
    import numpy as np
    import pandas as pd
    from pyspark.sql import Row

    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, np.ndarray | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, pd.Timestamp):
        return None if value is pd.NaT else value.to_pydatetime()
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value):
        return None
    return value.item() if isinstance(value, np.generic) else value
