"""What is evaluated: a fitted pipeline, one that is logged or saved, or a column that is there already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.ml import Estimator, PipelineModel, Transformer
from pyspark.ml.param import Params
from pyspark.sql.types import StructType

from platform_plugin.arguments import SAMPLING_DEFAULTS
from platform_plugin.errors import ConfigError, MissingDependencyError, SchemaError, near
from platform_plugin.stages.base import AnsweredStage
from platform_plugin.tracking.description import masked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_DETAILS = "evaluation_details"


class Predicted(NamedTuple):
    """A frame with predictions, its columns of errors and of details, None where it has none, and the seconds that
    engines took to start.
    """

    frame: DataFrame
    error: str | None = None
    details: str | None = None
    engine_s: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """One model under evaluation.

    Args:
        column: of the data, where the predictions are there already; else None.
        model: what predicts, else None.
        source: where it came from, for the report.
    """

    name: str
    source: str
    column: str | None = None
    model: Transformer | None = None

    @property
    def stage(self) -> AnsweredStage | None:
        """The last LLM stage of the model, or None."""
        found = _answered(self.model)
        return found[-1] if found else None

    @property
    def stages(self) -> list[Any]:
        """The stages of the model, those of nested pipelines too."""
        return _stages(self.model)

    @property
    def llm(self) -> str | None:
        """What the LLM stage asks, as its param `model` names it."""
        return self.stage.getModel() if self.stage is not None else None

    def params(self) -> dict[str, Any]:
        """Return what the LLM stage asks and the params of it that were set, else nothing; for the log."""
        stage = self.stage
        if stage is None:
            return {}
        given = {param.name: stage.getOrDefault(param) for param in stage.params if stage.isSet(param)}
        if stage.hasParam("samplingParams"):
            given["samplingParams"] = {**SAMPLING_DEFAULTS, **stage.getOrDefault("samplingParams")}
        made: dict[str, Any] = masked({"model": stage.getModel(), "engine": stage.getEngine(), **given})
        return made

    def prompt(self, frame: DataFrame) -> str | None:
        """Return the prompt of one row, as the LLM stage gives it to its engine; one Spark job.

        None without such a stage, and where an earlier one would have to be asked for it.
        """
        asked = _answered(self.model)
        if len(asked) != 1:
            return None
        for stage in self.stages[: self.stages.index(asked[0])]:
            frame = stage.transform(frame)
        row = frame.select(asked[0].source().prompt(frame.schema).alias("prompt")).first()
        return row["prompt"] if row is not None else None

    def output(self, prediction: str | None) -> str:
        """Return the column that holds the predictions. Raises ConfigError where the model does not say.

        Args:
            prediction: what the caller named, such as "prediction.intent"; None for the model's own output column.
        """
        if self.column is not None:
            return self.column
        if prediction is not None:
            return prediction
        for stage in reversed(self.stages):
            for name in ("outputCol", "predictionCol"):
                if stage.hasParam(name) and stage.isDefined(name):
                    return str(stage.getOrDefault(name))
        raise ConfigError(
            f"model {self.name!r} does not say which column it predicts into; name it: prediction='<column>'."
        )

    def transform(self, frame: DataFrame) -> Predicted:
        """Return the frame with predictions."""
        stage, model = self.stage, self.model
        assert model is not None
        if stage is None:
            return Predicted(model.transform(frame))
        details = stage.getDetailsCol() if stage.isDefined(stage.detailsCol) else _DETAILS
        if not stage.isDefined(stage.detailsCol):
            # Not copy({detailsCol: ...}), which would set it in every LLM stage of the pipeline.
            model = model.copy()
            _answered(model)[-1].setDetailsCol(details)
        out = model.transform(frame)
        reports = [part.lastReport for part in _answered(model)]
        engine_s = sum(report.steps.get("engine", 0.0) for report in reports if report is not None)
        return Predicted(out, stage.getErrorCol(), details, engine_s)

    def text_kind(self) -> str | None:
        """Return the kind of the predictions where that is known before they are made: "text" or "struct"."""
        stage = self.stage
        if stage is None or self.stages[-1] is not stage:
            return None
        return "struct" if stage.answer_struct() is not None or stage.ask().answers > 1 else "text"


def read_models(models: Mapping[str, Any], columns: StructType) -> list[Candidate]:
    """Return the candidates, in order. Raises ConfigError, or SchemaError for a column that is not there.

    Args:
        models: name -> a fitted Transformer, a column of the data, the URI of a logged pipeline, or the folder of a
            saved one.
    """
    if not isinstance(models, Mapping) or not models:
        raise ConfigError(f"models={models!r}: wanted a dict of name -> model, with at least one.")
    seen: dict[str, str] = {}
    for name in models:
        if not isinstance(name, str) or not name.strip():
            raise ConfigError(f"models has the name {name!r}; wanted a text that is not empty.")
        if name.lower() in seen:
            raise ConfigError(f"models {seen[name.lower()]!r} and {name!r} differ by case only; rename one.")
        seen[name.lower()] = name
    return [_candidate(name, given, columns) for name, given in models.items()]


def _candidate(name: str, given: Any, columns: StructType) -> Candidate:
    if isinstance(given, Transformer):
        kind = "pipeline" if isinstance(given, PipelineModel) else type(given).__name__
        return Candidate(name, kind, model=given)
    if isinstance(given, Estimator):
        raise ConfigError(f"model {name!r} is a {type(given).__name__} that is not fitted; pass what .fit(df) returns.")
    if not isinstance(given, str):
        raise ConfigError(
            f"model {name!r} is a {type(given).__name__}; wanted a PipelineModel, a column, a URI or a folder."
        )
    head = given.split(".")[0].lower()
    if given.lower() in {n.lower() for n in columns.names} or ("." in given and head in map(str.lower, columns.names)):
        return Candidate(name, f"column {given}", column=given)
    if ":/" in given:
        return Candidate(name, given, model=_logged(name, given))
    if Path(given).is_dir():
        return Candidate(name, given, model=PipelineModel.load(given))
    raise SchemaError(
        f"model {name!r}: {given!r} is no column of the data, no folder and no URI (models:/name/1, runs:/...).\n"
        f"The data has {', '.join(columns.names)}.{near(given, columns.names)}"
    )


def _logged(name: str, uri: str) -> Transformer:
    try:
        import mlflow.spark
    except ImportError as exc:
        raise MissingDependencyError(
            f'model {name!r} is logged in MLflow: pip install "platform-plugin[evaluation]"'
        ) from exc
    from mlflow.exceptions import MlflowException

    try:
        loaded: Transformer = mlflow.spark.load_model(uri)
    except (MlflowException, OSError) as exc:
        raise ConfigError(f"model {name!r} cannot be loaded from {uri!r}: {exc}") from exc
    return loaded


def _answered(model: Params | None) -> list[AnsweredStage]:
    """Return the LLM stages of a pipeline, in order."""
    return [stage for stage in _stages(model) if isinstance(stage, AnsweredStage)]


def _stages(model: Params | None) -> list[Any]:
    """Return the stages of a pipeline, nested ones unfolded; a stage is a pipeline of one."""
    if isinstance(model, PipelineModel):
        return [stage for part in model.stages for stage in _stages(part)]
    return [] if model is None else [model]
