"""From rows to results: the pass over the rows, and what is made of its sums."""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F

from platform_plugin.classes import MOST_CLASSES
from platform_plugin.evaluation import answers as asking
from platform_plugin.evaluation import frame, rows
from platform_plugin.evaluation.answers import DataFacts, Part
from platform_plugin.evaluation.caution import cautions
from platform_plugin.evaluation.comparison import compare, interval
from platform_plugin.evaluation.constant import Constant, constant
from platform_plugin.evaluation.models import Candidate
from platform_plugin.evaluation.plan import Plan
from platform_plugin.evaluation.result import EvaluationResult, ModelResult, SliceResult
from platform_plugin.evaluation.rows import MOST_COUNTED, Buckets, Shape
from platform_plugin.evaluation.summary import data_name
from platform_plugin.evaluation.sums import Pass, Sums
from platform_plugin.measure import Mean
from platform_plugin.metrics import Facts, Metric
from platform_plugin.tracking.description import versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE = 1000
_MOST_FILES = 3


@dataclass
class Findings:
    """The rows of an evaluation, with their scores, and the sums over them. Runs on: driver.

    Args:
        names: of the models that were answered, in order: the places in `scored` and `sums`.
        told: why the others were not.
        scored: the rows with `scores`, kept until `release`; None where no model was answered.
        confusions: one a model; none where classes are not known, or too many.
    """

    plan: Plan
    facts: DataFacts
    names: list[str]
    told: dict[str, str]
    bound: list[list[Metric]]
    sums: Sums
    scored: DataFrame | None
    numbered: DataFrame
    parts: dict[str, Part]
    errors: list[dict[str, int]] = field(default_factory=list)
    unjudged: list[int] = field(default_factory=list)
    tokens: list[tuple[float, float, float] | None] = field(default_factory=list)
    confusions: list[list[list[int]]] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        """The names of what is in the rows."""
        metrics = [name if isinstance(metric, Mean) else None for name, metric in self.plan.metrics.items()]
        return Shape(self.names, metrics, self.plan.by)

    def result(self, name: str, began_s: float) -> EvaluationResult:
        """Return what was found; `began_s` is of time.monotonic()."""
        plan = self.plan
        metrics = self.bound[0] if self.bound else list(plan.metrics.values())
        names = list(plan.metrics)
        models = [self._model(candidate) for candidate in plan.candidates]
        made = EvaluationResult(
            name=name,
            rows=self.facts.rows,
            labelled=self.facts.labelled,
            label=plan.label,
            baseline=plan.baseline,
            units={n: m.unit for n, m in zip(names, metrics, strict=True)},
            better={n: m.better for n, m in plan.metrics.items()},
            models=models,
            slices=self._slices(),
            constant=self._constant(),
            required=[str(gate) for gate in plan.gates],
            data=data_name(self.facts.files),
            facts=self._how(),
            seconds=time.monotonic() - began_s,
        )
        if plan.baseline in self.names and plan.resamples:
            for model in self.names:
                if model != plan.baseline:
                    made.comparisons.extend(self._compared(model, str(plan.baseline)))
        counted = (self.errors, self.unjudged, self.confusions)
        made.warnings.extend(cautions(self.facts, plan.label, self.names, *counted))
        made.warnings.extend(f"{name} failed: {why.splitlines()[0]}" for name, why in self.told.items())
        return made

    def write(self, path: str, texts: bool) -> None:
        """Write the rows as parquet; see `rows.write`."""
        if self.scored is not None:
            rows.write(self.scored, self.shape, texts, path, self.facts.rows)

    def sample(self, texts: bool) -> list[dict[str, Any]]:
        """Return 1,000 rows at most as flat dicts."""
        return rows.flat(self.scored, self.shape, texts, _SAMPLE) if self.scored is not None else []

    def worst(self, model: int) -> list[dict[str, Any]]:
        """Return the rows with the worst values of the first metric."""
        assert self.scored is not None
        return rows.worst(self.scored, model, 0, self.bound[model][0].better)

    def changed(self, model: int) -> list[dict[str, Any]]:
        """Return the rows in which a model is better or worse than the baseline by the first metric, as `rows` does."""
        baseline = self.names.index(str(self.plan.baseline))
        assert self.scored is not None
        return rows.changed(self.scored, model, baseline, 0, self.bound[model][0].better)

    def latencies(self) -> list[Buckets]:
        """Return a histogram of seconds for each model."""
        assert self.scored is not None
        return rows.buckets(self.scored, len(self.names), "answer.seconds", 0.001)

    def lengths(self) -> list[Buckets]:
        """Return a histogram of characters for each model."""
        assert self.scored is not None
        return rows.buckets(self.scored, len(self.names), "double(length(answer.prediction))", 1.0, whole=True)

    def release(self) -> None:
        """Free what Spark keeps of the evaluation."""
        kept = [self.scored, self.numbered, *[part.made for part in self.parts.values()]]
        for one in kept:
            if one is not None:
                one.unpersist()

    def _model(self, candidate: Candidate) -> ModelResult:
        if candidate.name not in self.names:
            failure = self.told.get(candidate.name, "it was not evaluated")
            return ModelResult(candidate.name, candidate.source, candidate.params(), failure=failure)
        place, part = self.names.index(candidate.name), self.parts[candidate.name]
        bound = dict(zip(self.plan.metrics, self.bound[place], strict=True))
        based = {name: basis for name, metric in bound.items() if (basis := getattr(metric, "basis", ""))}
        return ModelResult(
            name=candidate.name,
            source=candidate.source,
            params={**candidate.params(), **based},
            values={n: interval(self.sums.values[place, i], self._share_of(place, i)) for i, n in enumerate(bound)},
            errors=self.errors[place],
            seconds=part.seconds,
            engine_s=part.engine_s,
            prompt=part.prompt,
            tokens=_tokens(self.tokens[place]),
        )

    def _share_of(self, model: int, metric: int) -> int:
        """Return the rows that a share is of; 0 where the metric is none."""
        return self.sums.counts.get((model, metric), 0) if self.bound[model][metric].unit == "share" else 0

    def _constant(self) -> Constant | None:
        counts = self.facts.counts
        if not self.bound or not 1 <= len(counts) <= MOST_CLASSES:
            return None
        return constant(dict(zip(self.plan.metrics, self.bound[0], strict=True)), counts)

    def _compared(self, model: str, baseline: str) -> list[Any]:
        ours, theirs = self.names.index(model), self.names.index(baseline)
        places = range(len(self.plan.metrics))
        return compare(
            model,
            baseline,
            [(name, metric.better, getattr(metric, "tested", True)) for name, metric in self.plan.metrics.items()],
            [(self.sums.values[ours, i], self.sums.values[theirs, i]) for i in places],
            [self.sums.pairs.get((ours, i)) for i in places],
            self.facts.labelled if self.plan.label else self.facts.rows,
        )

    def _slices(self) -> list[SliceResult]:
        made = []
        for slicing, column in enumerate(self.plan.by):
            counts = self.sums.slices.get(slicing, {})
            for value, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
                values = {
                    model: {
                        name: self.sums.sliced[place, i, slicing][value] for i, name in enumerate(self.plan.metrics)
                    }
                    for place, model in enumerate(self.names)
                }
                made.append(SliceResult(column, value, count, values))
        return made

    def _how(self) -> dict[str, str]:
        plan = self.plan
        judge = plan.judge
        files, classes = self.facts.files, len(self.facts.classes)
        more = f" and {len(files) - _MOST_FILES:,} more files" if len(files) > _MOST_FILES else ""
        told = {
            "data": ", ".join(files[:_MOST_FILES]) + more,
            "label": plan.label,
            "metrics": ", ".join(plan.metrics),
            "baseline": plan.baseline,
            "by": ", ".join(plan.by),
            "key": ", ".join(plan.key) or "all columns",
            "rows": f"{self.facts.rows}",
            "classes": f"more than {MOST_CLASSES}" if classes > MOST_CLASSES else f"{classes or ''}",
            "resamples": f"{plan.resamples}",
            "judge": f"{judge.getModel()}, {judge.getMode()}: {judge.getRubric()}" if judge is not None else None,
            "cluster": _cluster() if plan.asks else None,
            "versions": ", ".join(f"{name.removeprefix('version.')} {known}" for name, known in versions().items())
            + f", python {platform.python_version()}",
        }
        return {name: text for name, text in told.items() if text}


def _tokens(means: tuple[float, float, float] | None) -> str:
    if means is None:
        return ""
    prompt, cached, output = (f"{mean:,.1f}" for mean in means)
    return f"{prompt} of the prompt, of which {cached} from the prefix cache; {output} of the answer"


def _cluster() -> str | None:
    """Return what the nodes of Ray have together; None where this process is not joined to it."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    nodes = sum(node["Alive"] for node in ray.nodes())
    total = ray.cluster_resources()
    kinds = [name.partition(":")[2] for name in total if name.startswith("accelerator_type:")]
    gpus = f"{total.get('GPU', 0):g} GPUs{' (' + ', '.join(kinds) + ')' if kinds else ''}"
    cpus, memory = f"{total.get('CPU', 0):g} logical CPUs", f"{total.get('memory', 0) / 2**30:.0f} GiB"
    return f"Ray, {nodes} node{'s' if nodes > 1 else ''}: {cpus}, {gpus}, {memory}"


def find(
    plan: Plan, facts: DataFacts, numbered: DataFrame, parts: dict[str, Part], told: dict[str, str], log_samples: bool
) -> Findings:
    """Return the findings of the models that were answered: one pass over the rows, and their scores."""
    names = [c.name for c in plan.candidates if c.name in parts]
    llms = {c.name: c.llm for c in plan.candidates}
    bound = [[m.bind(Facts(llms[name], facts.classes, plan.prices)) for m in plan.metrics.values()] for name in names]
    if not names:
        return Findings(plan, facts, names, told, bound, Sums(facts.rows, {}), None, numbered, parts)
    shaped = asking.assemble(plan, numbered, [parts[name] for name in names], log_samples)
    scored = rows.scored(shaped, bound).persist(StorageLevel.MEMORY_AND_DISK)
    baseline = names.index(plan.baseline) if plan.baseline in names else None
    counted = frame.counted(scored) if plan.resamples else scored.withColumn("times", F.lit(1).cast("bigint"))
    sums = Pass(bound, plan.resamples, baseline, len(plan.by)).run(counted)
    findings = Findings(plan, facts, names, told, bound, sums, scored, numbered, parts)
    findings.errors = rows.errors(scored, len(names))
    findings.tokens = rows.tokens(scored, len(names))
    if 2 <= len(facts.classes) <= MOST_COUNTED:
        findings.confusions = rows.confusions(scored, len(names), facts.classes)
    findings.unjudged = rows.unjudged(scored, len(names)) if plan.judge is not None else [0] * len(names)
    return findings
