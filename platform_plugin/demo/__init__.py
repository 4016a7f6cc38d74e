"""The main job on this machine: support messages of a ride-hailing company, answered by the embedded model."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from platform_plugin.report import RunReport

MESSAGES = Path(__file__).parent / "messages.csv"
SYSTEM = (
    "You work in the customer support of a ride-hailing company. You read what a customer writes and answer with one "
    "short and friendly sentence, in the customer's language."
)
PROMPT = "A customer in {city} writes by {channel_name}:\n{message}"


def run(rows: int = 200, *, as_json: bool = False) -> RunReport:
    """Fit, transform, save, load and transform again; show a table of rows and the run report.

    Runs on: driver. With `as_json` the last line on stdout is the first transform's report, and the only one.

    Args:
        rows: of the 200 messages, at most.
    """
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.feature import IndexToString, StringIndexer

    from platform_plugin.profiles import load_profile
    from platform_plugin.session import spark_on_ray
    from platform_plugin.stages import LLMPredictor
    from platform_plugin.weights import ensure_weights

    console = Console(stderr=True)
    saved = Path(tempfile.mkdtemp(prefix="platform-plugin-demo-")) / "pipeline"
    say = _Steps(console)
    say("the embedded model (converted once, about half a minute)")
    ensure_weights(load_profile("smollm2-135m"))
    say("a session of Spark on Ray")
    with spark_on_ray("demo", executors=1, executor_cores=2) as spark:
        df = messages(spark).limit(rows)
        indexer = StringIndexer(inputCol="channel", outputCol="channel_index")
        names = IndexToString(inputCol="channel_index", outputCol="channel_name", labels=_channels(df))
        llm = LLMPredictor(
            promptTemplate=PROMPT,
            systemPrompt=SYSTEM,
            outputCol="reply",
            samplingParams={"max_tokens": 24},
        )
        say(f"fit a pipeline of {type(indexer).__name__}, {type(names).__name__} and {type(llm).__name__}")
        model = Pipeline(stages=[indexer, names, llm]).fit(df)
        say(f"transform {df.count()} messages: Spark -> Ray -> vLLM -> Spark")
        replies = model.transform(df)
        report = llm.lastReport
        assert report is not None
        first = {row["id"]: row["reply"] for row in replies.select("id", "reply").collect()}
        say("save the pipeline, in a folder that the demo deletes again, and load it")
        model.write().overwrite().save(str(saved))
        loaded = PipelineModel.load(str(saved))
        say("transform again with the loaded pipeline; the engine is warm")
        again = {row["id"]: row["reply"] for row in loaded.transform(df).select("id", "reply").collect()}
        if set(again) != set(first):
            raise AssertionError(f"{len(first)} rows the first time, {len(again)} the second")
        if not as_json:
            _show(replies, report)
        console.print(f"{len(again)} rows came back both times, in {say.seconds:.0f} s altogether.")
    shutil.rmtree(saved.parent, ignore_errors=True)
    if as_json:
        sys.stdout.write(report.to_json() + "\n")
    return report


def messages(spark: SparkSession) -> DataFrame:
    """Return the 200 messages: id, city, channel, fare, created_at, urgent, topic, message."""
    # A message may have line breaks and doubled quotes.
    rows = spark.read.csv(
        str(MESSAGES),
        schema="id int, city string, channel string, fare decimal(10,2), created_at timestamp, urgent boolean, "
        "topic string, message string",
        header=True,
        multiLine=True,
        escape='"',
    )
    return rows.orderBy("id")


def _channels(df: DataFrame) -> list[str]:
    return [row["channel"] for row in df.groupBy("channel").count().orderBy("count", ascending=False).collect()]


def _show(replies: DataFrame, report: RunReport) -> None:
    table = Table("id", "city", "message", "reply", title="The first replies", show_lines=True)
    for row in replies.orderBy("id").limit(6).collect():
        told = row["reply"] if row["reply"] is not None else f"({row['reply_error']['type']})"
        table.add_row(str(row["id"]), row["city"], row["message"][:160], told)
    Console().print(table)
    sys.stdout.write(f"{report}\n")


class _Steps:
    """Says what happens now, and when it began."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def __call__(self, text: str) -> None:
        self._console.print(f"[{self.seconds:5.0f} s] {text}", markup=False, highlight=False, soft_wrap=True)
