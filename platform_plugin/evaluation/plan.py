"""What is to be evaluated: read and checked on the driver, before a model is asked or the cluster moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from platform_plugin import schema
from platform_plugin.errors import ConfigError, SchemaError, near
from platform_plugin.evaluation import frame
from platform_plugin.evaluation.constant import fits
from platform_plugin.evaluation.gates import CONSTANT, Gate, read_gates
from platform_plugin.evaluation.models import Candidate, read_models
from platform_plugin.metrics import Facts, Metric, load_metric
from platform_plugin.metrics.accuracy import Accuracy

if TYPE_CHECKING:
    from platform_plugin.stages.judge import LLMJudge

LABELLED = ("accuracy", "macro_f1", "error_rate")
UNLABELLED = ("length", "error_rate")
_KNOWN_LATER = ("prompt_tokens", "cached_tokens", "output_tokens", "seconds")


@dataclass(frozen=True)
class Plan:
    """A checked evaluation.

    Args:
        metrics: name as the caller wrote it -> metric, not yet bound to a model.
        prediction: the output column of pipelines where they do not say, or a field of it.
        label, human, by, key: columns of the data.
    """

    candidates: list[Candidate]
    metrics: dict[str, Metric]
    gates: list[Gate]
    baseline: str | None
    label: str | None
    human: str | None
    by: list[str]
    key: list[str]
    prediction: str | None
    judge: LLMJudge | None
    prices: Path | None
    resamples: int
    label_kind: str | None = None

    @property
    def needs_classes(self) -> bool:
        """Whether the distinct labels must be known: accuracy is read beside that of the most frequent one."""
        asked = any(metric.needs_classes or isinstance(metric, Accuracy) for metric in self.metrics.values())
        return asked or any(gate.bound == CONSTANT for gate in self.gates)

    @property
    def asks(self) -> bool:
        """Whether a model or a judge must be asked: else all is in the data."""
        return self.judge is not None or any(c.model is not None for c in self.candidates)

    def check_kinds(self, candidate: Candidate, kind: str | None, asked: bool) -> None:
        """Raise SchemaError for a metric that does not fit a model's predictions.

        Args:
            kind: of the predictions; None where it is not known yet.
            asked: whether tokens and seconds are there.
        """
        kinds = {"label": self.label_kind, "human": "text" if self.human else None}
        kinds["judge"] = "number" if self.judge is not None else None
        kinds.update(dict.fromkeys(_KNOWN_LATER, "number" if asked else None))
        kinds["prediction"] = kind or "text"
        there = {name: value for name, value in kinds.items() if value is not None}
        for metric in self.metrics.values():
            try:
                metric.check(there)
            except SchemaError as exc:
                raise SchemaError(f"model {candidate.name!r}: {exc}") from exc
        mixed = kind and self.label_kind and kind != self.label_kind
        if mixed and any("label" in getattr(m, "takes", {}) for m in self.metrics.values()):
            raise SchemaError(
                f"model {candidate.name!r} predicts {kind}, and label={self.label!r} is {self.label_kind}: "
                "no row can be equal. Cast one of them."
            )


def read_plan(
    columns: StructType,
    *,
    models: Mapping[str, Any],
    label: str | None,
    metrics: Sequence[str | Mapping[str, Any]] | None,
    judge: LLMJudge | None,
    baseline: str | None,
    by: str | Sequence[str] | None,
    key: str | Sequence[str] | None,
    prediction: str | None,
    require: Mapping[str, float | str] | None,
    prices: str | None,
    resamples: int,
) -> Plan:
    """Return the plan of ``evaluate(...)``. Raises ConfigError or SchemaError for all that is wrong with it."""
    schema.check_frame(columns)
    candidates = read_models(models, columns)
    names = [c.name for c in candidates]
    if baseline is not None and baseline not in names:
        raise ConfigError(f"baseline={baseline!r} is none of the models {', '.join(names)}.{near(baseline, names)}")
    if not isinstance(resamples, int) or isinstance(resamples, bool) or not 0 <= resamples <= 100_000:
        raise ConfigError(f"resamples={resamples!r}: wanted a whole number from 0 (no intervals) to 100,000.")
    kind = None
    if label is not None:
        kind = frame.kind_of(frame.find(columns, label, "label")[1], f"label={label!r}")
    slicings, keys = _names(by, "by", columns), _names(key, "key", columns)
    human = None
    if judge is not None:
        judge = _placed(judge, columns)
        human = judge.getHumanCol() if judge.isDefined(judge.humanCol) else None
        if human is not None:
            schema.find_field(columns, human, "humanCol")
        if judge.pairwise and baseline is None:
            raise ConfigError("the judge compares in pairs, and there is no baseline; pass baseline='<model>'.")
    wanted = metrics if metrics is not None else LABELLED if label else UNLABELLED
    read = read_metrics(wanted)
    if judge is not None:
        read.setdefault("judge_score", load_metric("judge_score"))
        if human is not None:
            read.setdefault("judge_kappa", load_metric("judge_kappa"))
    plan = Plan(
        candidates=candidates,
        metrics=read,
        gates=read_gates(
            require or {},
            {name: metric.better for name, metric in read.items()},
            [name for name, metric in read.items() if fits(metric)],
        ),
        baseline=baseline,
        label=label,
        human=human,
        by=slicings,
        key=keys,
        prediction=prediction,
        judge=judge,
        prices=Path(prices) if prices is not None else None,
        resamples=resamples,
        label_kind=kind,
    )
    for candidate in candidates:
        for metric in read.values():
            metric.bind(Facts(candidate.llm, prices=plan.prices))
        if candidate.column is not None:
            found = frame.find(columns, candidate.column, f"model {candidate.name!r}")[1]
            details = frame.beside(columns, candidate.column)[1]
            plan.check_kinds(candidate, frame.kind_of(found, f"model {candidate.name!r}"), details is not None)
        else:
            candidate.output(prediction)
            plan.check_kinds(candidate, candidate.text_kind() if not prediction else None, candidate.llm is not None)
            if candidate.stage is not None and len(candidate.stages) == 1:
                candidate.stage.transformSchema(columns)
    return plan


def _placed(judge: LLMJudge, columns: StructType) -> LLMJudge:
    """Return the judge with columns of its own, which no data has. Raises SchemaError or ConfigError."""
    made = judge.copy(
        {
            judge.predictionCol: "evaluation_prediction",
            judge.otherCol: "evaluation_other_prediction",
            judge.outputCol: "evaluation_judgement",
            judge.errorCol: "evaluation_judgement_error",
            judge.handleInvalid: "keep",
        }
    )
    made.clear(made.detailsCol)
    answers = [StructField(name, StringType()) for name in (made.getPredictionCol(), made.getOtherCol())]
    made.transformSchema(StructType([*columns.fields, *answers]))
    return made


def read_metrics(given: Sequence[str | Mapping[str, Any]]) -> dict[str, Metric]:
    """Return name -> metric. Raises ConfigError, UnknownPluginError."""
    if isinstance(given, str | Mapping) or not given:
        raise ConfigError(f"metrics={given!r}: wanted a list such as ['accuracy', {{'bleu': {{'tokenize': 'intl'}}}}].")
    made: dict[str, Metric] = {}
    for entry in given:
        pairs = [(entry, None)] if isinstance(entry, str) else list(entry.items()) if isinstance(entry, Mapping) else []
        if not pairs:
            raise ConfigError(f"metrics has {entry!r}; wanted a name, or {{name: options}}.")
        for name, options in pairs:
            if options is not None and not isinstance(options, Mapping):
                raise ConfigError(f"metric {name!r} has the options {options!r}; wanted a dict.")
            if name in made:
                raise ConfigError(f"metric {name!r} is asked for twice; leave one out.")
            made[str(name)] = load_metric(str(name), options)
    return made


def _names(given: str | Sequence[str] | None, role: str, columns: StructType) -> list[str]:
    names = [given] if isinstance(given, str) else list(given or [])
    found = [schema.find_field(columns, name, role) for name in names]
    for field in found:
        if frame.kind_of(field.dataType, f"{role}={field.name!r}") == "struct":
            raise SchemaError(
                f"{role}={field.name!r} is {field.dataType.simpleString()}; wanted text, number or boolean."
            )
    return [field.name for field in found]
