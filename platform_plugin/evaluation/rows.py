"""The rows behind the numbers: results as parquet, samples, the worst ones, histograms, the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DoubleType, StructField, StructType

from platform_plugin.evaluation.frame import trimmed
from platform_plugin.evaluation.sums import model_table
from platform_plugin.metrics import Metric

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WORST = 20
CHANGED = 10
MOST_COUNTED = 200
"""Classes at most whose confusions are counted: each pair of them is a number on the driver."""
_ROWS_A_FILE = 100_000
_STEPS = 4
"""Buckets of a histogram from a number to its double."""


@dataclass(frozen=True)
class Shape:
    """The names of what is in the rows, in order; None for a metric of which a row's own score says nothing."""

    models: Sequence[str]
    metrics: Sequence[str | None]
    slicings: Sequence[str]


@dataclass(frozen=True)
class Buckets:
    """Counts between bounds: `counts[i]` values are below `bounds[i]` and not below the one before.

    Args:
        median: of the values, as near as Spark's percentile_approx has it.
    """

    bounds: list[float]
    counts: list[int]
    median: float = math.nan

    @property
    def edges(self) -> list[float]:
        """The bounds, and where the first bucket begins."""
        return [self.bounds[0] / 2, *self.bounds]


def scored(rows: DataFrame, metrics: Sequence[Sequence[Metric]]) -> DataFrame:
    """Return the rows with `scores`, an array of each model's array of the row's own values of the metrics."""

    def score(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = []
            for model, mine in enumerate(metrics):
                table = model_table(batch, model) if batch.num_rows else None
                found.append([m.finish(m.statistics(table)) if table is not None else np.empty(0) for m in mine])
            nested = np.array(found, dtype=np.float64).transpose(2, 0, 1)
            column = pa.array(
                [[[None if np.isnan(v) else v for v in row] for row in model] for model in nested.tolist()],
                pa.list_(pa.list_(pa.float64())),
            )
            yield pa.RecordBatch.from_arrays([*batch.columns, column], names=[*batch.schema.names, "scores"])

    made = StructType([*rows.schema.fields, StructField("scores", ArrayType(ArrayType(DoubleType())))])
    return rows.mapInArrow(score, made)


def write(rows: DataFrame, shape: Shape, texts: bool, path: str, total: int) -> None:
    """Write `total` scored rows as parquet, by Spark, in few files; see `readable`."""
    files = -(-total // _ROWS_A_FILE)
    readable(rows, shape, texts).coalesce(files).write.parquet(path)


def readable(rows: DataFrame, shape: Shape, texts: bool) -> DataFrame:
    """Return scored rows for people: the key, and a struct a model with answer, tokens, seconds and scores.

    Args:
        texts: whether labels, predictions and the data itself are in it.
    """
    columns: list[Column] = [F.col("key")]
    if texts:
        columns.append(F.col("label"))
    columns += [F.col("slices")[i].alias(name) for i, name in enumerate(shape.slicings) if name not in ("key", "label")]
    for place, name in enumerate(shape.models):
        answer = F.col("models")[place]
        kept = ["prediction"] if texts else []
        kept += ["failed", "error", "prompt_tokens", "cached_tokens", "output_tokens", "seconds", "judge"]
        fields = [answer[k].alias(k) for k in kept]
        told = [F.col("scores")[place][i].alias(metric) for i, metric in enumerate(shape.metrics) if metric]
        fields += [F.struct(*told).alias("scores")] if told else []
        columns.append(F.struct(*fields).alias(name))
    if texts and isinstance(rows.schema["data"].dataType, StructType):
        columns.append(F.col("data"))
    return rows.select(*columns)


def flat(rows: DataFrame, shape: Shape, texts: bool, most: int) -> list[dict[str, Any]]:
    """Return `most` rows as flat dicts, those with the smallest keys' hashes: a sample that is the same each time."""
    taken = rows.orderBy(F.xxhash64("seed"), "key").limit(most)
    made = []
    for row in readable(taken, shape, texts).collect():
        line: dict[str, Any] = {}
        for name, value in row.asDict(recursive=True).items():
            if name in shape.models:
                scores = value.pop("scores", {})
                line.update({f"{name}.{k}": v for k, v in {**value, **scores}.items() if k != "judge" or v is not None})
            elif name == "data":
                line.update({f"data.{k}": v for k, v in value.items()})
            else:
                line[name] = value
        made.append(line)
    return made


def worst(rows: DataFrame, model: int, metric: int, better: str) -> list[dict[str, Any]]:
    """Return the rows of a model with the worst values of a metric, those without one left out; 20 at most."""
    score = F.col("scores")[model][metric]
    order = score.desc() if better == "lower" else score.asc()
    answer = F.col("models")[model]
    found = rows.where(score.isNotNull()).orderBy(order, F.xxhash64("seed"), "key").limit(WORST)
    picked = found.select("key", "label", "data", answer.alias("answer"), score.alias("score")).collect()
    return [row.asDict(recursive=True) for row in picked]


def changed(rows: DataFrame, model: int, baseline: int, metric: int, better: str) -> list[dict[str, Any]]:
    """Return the rows in which a model is better than the baseline, then those in which it is worse; 10 each at most.

    The largest differences come first; each row has both answers, and `gain`, above 0 where the model is better.
    """
    gain = F.col("scores")[model][metric] - F.col("scores")[baseline][metric]
    gain = -gain if better == "lower" else gain
    answers = [F.col("models")[place].alias(name) for place, name in ((model, "answer"), (baseline, "other"))]
    kept = rows.select("key", "seed", "label", "data", *answers, gain.alias("gain"))
    made = []
    for side in (F.col("gain") > 1e-12, F.col("gain") < -1e-12):
        found = kept.where(side).orderBy(F.abs("gain").desc(), F.xxhash64("seed"), "key").limit(CHANGED).drop("seed")
        made += [row.asDict(recursive=True) for row in found.collect()]
    return made


def errors(rows: DataFrame, models: int) -> list[dict[str, int]]:
    """Return, for each model, the rows without a prediction by type of error."""
    answers = rows.select(F.posexplode("models").alias("model", "answer")).where("answer.failed")
    found = answers.groupBy("model", F.coalesce("answer.error", F.lit("unknown")).alias("error")).count().collect()
    made: list[dict[str, int]] = [{} for _ in range(models)]
    for row in sorted(found, key=lambda row: -row["count"]):
        made[row["model"]][row["error"]] = row["count"]
    return made


def tokens(rows: DataFrame, models: int) -> list[tuple[float, float, float] | None]:
    """Return, for each model, the mean tokens of a row's prompt, those that were cached, and of its answer.

    Over the rows where they are known; None where they are known of none.
    """
    answers = rows.select(F.posexplode("models").alias("model", "answer")).where("answer.prompt_tokens IS NOT NULL")
    kinds = ("prompt_tokens", "cached_tokens", "output_tokens")
    means = [F.avg(F.coalesce(F.col(f"answer.{kind}"), F.lit(0))).alias(kind) for kind in kinds]
    made: list[tuple[float, float, float] | None] = [None] * models
    for row in answers.groupBy("model").agg(*means).collect():
        made[row["model"]] = (row[kinds[0]], row[kinds[1]], row[kinds[2]])
    return made


def unjudged(rows: DataFrame, models: int) -> list[int]:
    """Return, for each model, how many of its predictions have no score of the judge."""
    answers = rows.select(F.posexplode("models").alias("model", "answer"))
    found = answers.where("NOT answer.failed AND answer.judge IS NULL").groupBy("model").count().collect()
    counts = {row["model"]: int(row["count"]) for row in found}
    return [counts.get(model, 0) for model in range(models)]


def buckets(rows: DataFrame, models: int, value: str, least: float, whole: bool = False) -> list[Buckets]:
    """Return a histogram of each model, by Spark; its counts are all that comes to the driver.

    Args:
        value: SQL of a number of `answer`, such as "answer.seconds".
        least: upper bound of the first bucket; from one to the next it is a quarter of a doubling.
        whole: whether the values are whole numbers: buckets that hold none are left out.
    """
    answers = rows.select(F.posexplode("models").alias("model", "answer")).withColumn("value", F.expr(value))
    # A hair more: a value on a bound is above it, whatever the last digit of its logarithm.
    steps = _STEPS * F.log2(F.greatest(F.col("value"), F.lit(1e-12)) / least) + 1e-9
    place = F.greatest(F.lit(0), F.floor(steps) + 1)
    found = answers.where("value IS NOT NULL").groupBy("model", place.alias("place")).count().collect()
    middle = answers.groupBy("model").agg(F.percentile_approx("value", 0.5, 10_000).alias("median")).collect()
    medians = {int(row["model"]): float(row["median"]) for row in middle if row["median"] is not None}
    last = max((int(row["place"]) for row in found), default=0)
    bounds = [least * 2 ** (i / _STEPS) for i in range(last + 1)]
    if whole:
        bounds = [float(math.ceil(bound - 1e-9)) for bound in bounds]
    kept = [i for i, bound in enumerate(bounds) if i == 0 or bound > bounds[i - 1]]
    made = []
    for model in range(models):
        counts = {int(row["place"]): int(row["count"]) for row in found if row["model"] == model}
        median = medians.get(model, math.nan)
        made.append(Buckets([bounds[i] for i in kept], [counts.get(i, 0) for i in kept], median))
    return made


def confusions(rows: DataFrame, models: int, classes: Sequence[str]) -> list[list[list[int]]]:
    """Return the counts of each model, a line a label and a column a prediction; the last is of what is no class."""
    answers = rows.where("label IS NOT NULL").select(trimmed(F.col("label")).alias("truth"), F.posexplode("models"))
    guess = trimmed(F.col("col.prediction"))
    known = F.when(guess.isin(*classes), guess).alias("guess")
    found = answers.groupBy(F.col("pos").alias("model"), "truth", known).count().collect()
    place = {name: i for i, name in enumerate(classes)}
    made = [[[0] * (len(classes) + 1) for _ in classes] for _ in range(models)]
    for row in found:
        made[row["model"]][place[row["truth"]]][place.get(row["guess"], len(classes))] += row["count"]
    return made
