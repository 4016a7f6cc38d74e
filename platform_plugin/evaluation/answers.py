"""From models to rows: ask each model, then the judge, and bring the answers together by the row's number."""

from __future__ import annotations

import dataclasses
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark import StorageLevel
from pyspark.sql import functions as F

from platform_plugin import schema
from platform_plugin.answers import release_answers
from platform_plugin.classes import MOST_CLASSES
from platform_plugin.errors import ConfigError, SchemaError
from platform_plugin.evaluation import frame
from platform_plugin.evaluation.frame import ROW
from platform_plugin.evaluation.gates import CONSTANT
from platform_plugin.evaluation.models import Candidate
from platform_plugin.evaluation.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger(__name__)

ANSWERED = "evaluation_answered"
OTHER = "evaluation_other"
MOST_SLICES = 1000


@dataclass(frozen=True)
class DataFacts:
    """What is known of the data before a model is asked; `counts` is label -> rows where classes are needed."""

    rows: int
    labelled: int
    counts: dict[str, int]
    files: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The distinct labels, sorted."""
        return tuple(self.counts)


@dataclass
class Part:
    """The answers of one model: rows of ROW and `ANSWERED`, or a column of the data.

    Args:
        given: the answers as a column of the data; else `made` holds them.
        seconds: that it took, without `engine_s`, which its engines took to start.
        prompt: of one row, where texts may be shown.
    """

    given: Column | None = None
    made: DataFrame | None = None
    seconds: float | None = None
    engine_s: float = 0.0
    prompt: str | None = None


def look(plan: Plan, data: DataFrame) -> DataFacts:
    """Return the facts of the data, by one or two Spark jobs. Raises ConfigError for data without rows or labels."""
    columns = data.schema
    label = frame.as_text(*frame.find(columns, plan.label, "label")) if plan.label else F.lit(None).cast("string")
    distinct = [F.approx_count_distinct(schema.column(name)) for name in plan.by]
    rows, labelled, *sizes = data.agg(F.count(F.lit(1)), F.count(label), *distinct).collect()[0]
    if not rows:
        raise ConfigError("the data has no rows; nothing can be evaluated. Look at its filters and its path.")
    if plan.label and not labelled:
        raise ConfigError(f"label={plan.label!r} is null in all {rows:,} rows; name another column.")
    for name, size in zip(plan.by, sizes, strict=True):
        if size > MOST_SLICES * 1.1:  # the count is an estimate
            raise ConfigError(
                f"by={name!r} has about {size:,} values; at most {MOST_SLICES} slices can be read. Group them first."
            )
    counts = frame.classes(label, data) if plan.needs_classes and plan.label else {}
    if len(counts) > MOST_CLASSES and any(gate.bound == CONSTANT for gate in plan.gates):
        raise ConfigError(
            f"require compares with a constant, and label={plan.label!r} has more than {MOST_CLASSES:,} distinct "
            "values, which are no classes; write a number."
        )
    return DataFacts(rows, labelled, counts, _files(data))


def number(data: DataFrame) -> DataFrame:
    """Return the data with ROW, kept: another evaluation of the frame may number its rows otherwise."""
    if ROW in data.columns:
        raise SchemaError(f"the data has a column {ROW!r}, which evaluate() needs; rename it.")
    return data.withColumn(ROW, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)


def ask(plan: Plan, candidate: Candidate, rows: DataFrame, total: int, log_samples: bool) -> Part:
    """Return the answers of one model, computed and kept.

    Args:
        log_samples: whether the prompt of one row may be kept.

    Raises:
        SchemaError: the model drops ROW, or makes other rows; a metric does not fit what it predicts.
        PlatformPluginError: what the model's stages raise.
    """
    if candidate.column is not None:
        error, details = frame.beside(rows.schema, candidate.column)
        given, _ = frame.answer(rows.schema, candidate.column, f"model {candidate.name!r}", error, details)
        return Part(given=given)
    began = time.monotonic()
    out, error, details, engine_s = candidate.transform(rows)
    try:
        if ROW not in out.columns:
            raise SchemaError(
                f"model {candidate.name!r} drops the column {ROW!r}, by which its rows are found again; "
                "let it keep columns that it does not know (SELECT *, ...)."
            )
        present = [name if name in out.columns else None for name in (error, details)]
        output = candidate.output(plan.prediction)
        answer, kind = frame.answer(out.schema, output, f"model {candidate.name!r}", *present)
        plan.check_kinds(candidate, kind, present[1] is not None)
        made = out.select(ROW, answer.alias(ANSWERED)).persist(StorageLevel.MEMORY_AND_DISK)
        counted, distinct = made.agg(F.count(F.lit(1)), F.countDistinct(ROW)).collect()[0]
        if counted != distinct or counted > total:
            raise SchemaError(
                f"model {candidate.name!r} makes {counted:,} rows of {total:,}; each row must have one prediction."
            )
    finally:
        if candidate.stage is not None:
            release_answers(out)
    seconds = time.monotonic() - began
    logger.info("evaluate model=%s rows=%d seconds=%.1f", candidate.name, counted, seconds)
    prompt = candidate.prompt(rows) if log_samples else None
    return Part(made=made, seconds=seconds - engine_s, engine_s=engine_s, prompt=prompt)


def judge(plan: Plan, rows: DataFrame, parts: dict[str, Part]) -> None:
    """Ask the judge about the answers of every model, and put its scores into their parts."""
    assert plan.judge is not None
    pairwise = plan.judge.pairwise
    against = _with(rows, parts[plan.baseline], OTHER) if pairwise and plan.baseline in parts else rows
    for name, part in parts.items():
        base = _with(rows, part, ANSWERED)
        if pairwise and name == plan.baseline:
            parts[name] = _scored(base, base.select(ROW, F.lit(0.5).alias("judge")), part)
            continue
        asked = base.withColumn(plan.judge.getPredictionCol(), F.col(ANSWERED)["prediction"])
        if pairwise:
            other = against.select(ROW, F.col(OTHER)["prediction"].alias(plan.judge.getOtherCol()))
            asked = asked.join(other, ROW)
        asked = asked.drop(ANSWERED).persist(StorageLevel.MEMORY_AND_DISK)
        out = plan.judge.transform(asked)
        scores = out.select(ROW, plan.judge.score().alias("judge")).persist(StorageLevel.MEMORY_AND_DISK)
        scores.count()
        release_answers(out)
        asked.unpersist()
        parts[name] = _scored(base, scores, part)


def assemble(plan: Plan, rows: DataFrame, parts: list[Part], log_samples: bool) -> DataFrame:
    """Return the rows as a `Pass` reads them, plus `key` (text) and `data` (a struct of the plain columns, or null).

    Args:
        log_samples: whether the text of the data is kept.
    """
    columns = rows.drop(ROW).schema
    joined = rows
    answers = []
    for place, part in enumerate(parts):
        if part.given is not None:
            answers.append(part.given)
            continue
        assert part.made is not None
        name = f"evaluation_model_{place}"
        joined = joined.join(part.made.withColumnRenamed(ANSWERED, name), ROW, "left")
        answers.append(F.coalesce(F.col(name), frame.lost()))
    seed = frame.seed(columns, plan.key)
    keys = [F.coalesce(schema.column(n).cast("string"), F.lit("null")) for n in plan.key]
    plain = [f.name for f in columns.fields if _is_plain(f.dataType.typeName())] if log_samples else []
    return joined.select(
        seed.alias("seed"),
        (F.concat_ws("/", *keys) if keys else F.lower(F.hex(seed))).alias("key"),
        _text(plan.label, columns, "label"),
        _text(plan.human, columns, "human"),
        F.array(*[F.coalesce(schema.column(n).cast("string"), F.lit("null")) for n in plan.by])
        .cast("array<string>")
        .alias("slices"),
        F.array(*answers).alias("models"),
        (F.struct(*[schema.column(n).cast("string").alias(n) for n in plain]) if plain else F.lit(None)).alias("data"),
    )


def _files(data: DataFrame) -> tuple[str, ...]:
    """Return the files that a frame reads, sorted; none where Spark cannot tell."""
    try:
        # Of a frame of its own: Spark plans a frame once, and the caller's may be cached after this.
        found = data.select("*").inputFiles()
    except Exception:  # a fact for the report, which Spark Connect or a source of its own may not have
        logger.debug("the files of the data are not known", exc_info=True)
        return ()
    return tuple(sorted(unquote(name).removeprefix("file://") for name in found))


def _with(rows: DataFrame, part: Part, name: str) -> DataFrame:
    if part.given is not None:
        return rows.withColumn(name, part.given)
    assert part.made is not None
    renamed = part.made.withColumnRenamed(ANSWERED, name)
    return rows.join(renamed, ROW, "left").withColumn(name, F.coalesce(F.col(name), frame.lost()))


def _scored(base: DataFrame, scores: DataFrame, part: Part) -> Part:
    """Return the part with the judge's scores in its answers."""
    answer = F.col(ANSWERED).withField("judge", F.col("judge").cast("double")).cast(frame.ANSWER)
    made = base.select(ROW, ANSWERED).join(scores, ROW, "left").select(ROW, answer.alias(ANSWERED))
    made = made.persist(StorageLevel.MEMORY_AND_DISK)
    made.count()
    return dataclasses.replace(part, given=None, made=made)


def _text(name: str | None, columns: object, role: str) -> Column:
    value = frame.as_text(*frame.find(columns, name, role)) if name else F.lit(None).cast("string")  # type: ignore[arg-type]
    return value.alias(role)


def _is_plain(kind: str) -> bool:
    return kind in (
        *("string", "byte", "short", "integer", "long", "float", "double", "boolean", "date"),
        *("timestamp", "timestamp_ntz", "decimal"),
    )
