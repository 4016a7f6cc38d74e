"""The stage in sessions that RayDP did not start, each in a program of its own: plain Spark, and Spark Connect."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

JARS = Path(__file__).parents[2] / "shared/jars"
README = Path(__file__).parents[1] / "README.md"

HEAD = """
import json, os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from platform_plugin.jdk import use_java
use_java()
found = {}

def error(run):
    try:
        run()
    except BaseException as exc:
        return f"{type(exc).__name__}: {exc}"

def echo(**params):
    from platform_plugin import LLMPredictor
    args = {"max_model_len": 64, "fail_on": "unanswerable"}
    return LLMPredictor(**{"inputCol": "message", "engine": "echo", "engineArgs": args, **params})

def answers(frame):
    return [row[2].asDict() if hasattr(row[2], "asDict") else row[2] for row in frame.orderBy("id").collect()]

ROWS = [(0, "good"), (1, None), (2, "unanswerable"), (3, "good"), (4, "better")]
"""

CONNECT = """
os.environ["PYSPARK_SUBMIT_ARGS"] = f"--jars {sys.argv[1]} pyspark-shell"
from pyspark.ml import Pipeline
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
from platform_plugin import release_answers
frame = spark.createDataFrame(ROWS, "id int, message string")
stage = echo(detailsCol="details")
out = stage.transform(frame)
found["schema"] = out.schema == stage.transformSchema(frame.schema)
found["answers"] = answers(out)
found["report"] = [stage.lastReport.rows, stage.lastReport.distinct, stage.lastReport.failed, stage.lastReport.refused]
release_answers(out.where("id > 1"))
found["released"] = "the answers of this frame were released" in error(out.collect)
found["pipeline"] = answers(Pipeline(stages=[echo(deduplicate=False)]).fit(frame).transform(frame))
typed = echo(outputSchema="intent STRING", handleInvalid="skip").transform(frame)
found["typed"] = [type(answer["intent"]).__name__ for answer in answers(typed)]
found["strict"] = error(lambda: echo(handleInvalid="error").transform(frame))
found["ddl"] = error(lambda: echo(outputSchema="intent").transform(frame))
found["raydp"] = error(lambda: echo(handOff="raydp").transform(frame))
os.mkdir("folder")
files = echo(handOff="parquet", handOffDir="folder").transform(frame)
found["files"] = answers(files)
release_answers(files)
found["left"] = os.listdir("folder")
os.mkdir("in")
with open("in/1.json", "w") as out:
    out.write(json.dumps({"id": 7, "message": "streamed"}))
stream = echo().transform(spark.readStream.schema("id int, message string").json("in"))
query = stream.writeStream.format("parquet").option("checkpointLocation", "checkpoint").trigger(availableNow=True)
query.start("out").awaitTermination(120)
found["stream"] = answers(spark.read.parquet("out"))
spark.stop()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def local(script: Callable[..., Any]) -> Any:
    """The program with plain sessions; it runs beside the one of Spark Connect."""
    (example,) = re.findall(r"```py\n(stream = .*?)```", README.read_text(), re.DOTALL)
    return script(HEAD + LOCAL, arguments=[example])


def test_stage_in_a_session_of_spark_connect(script: Callable[..., Any], until: Callable[..., Any], local: Any) -> None:
    pytest.importorskip("grpc_status", reason="the extra `connect` is not installed")
    jar = next(JARS.glob("spark-connect_*.jar"), None)
    if jar is None:
        pytest.skip(f"no jar of Spark Connect in {JARS}")
    program = script(HEAD + CONNECT, arguments=[str(jar)])
    found = program.found(500)
    wanted = ["good", None, None, "good", "better"]
    assert found["schema"] is True
    assert found["answers"] == found["pipeline"] == found["files"] == wanted
    assert found["report"] == [5, 3, {"EchoFailure": 1}, {"NullPrompt": 1}]
    assert found["released"] is True
    assert found["typed"] == ["str"] * 3
    assert found["strict"].startswith("InvalidRowsError: 2 rows have no answer (1 EchoFailure, 1 NullPrompt)")
    assert found["ddl"].startswith("ConfigError: outputSchema='intent' is not Spark DDL")
    assert found["raydp"].startswith("SessionError: this SparkSession (master remote) does not run on Ray")
    assert found["left"] == []
    assert found["stream"] == ["streamed"]
    # Ray was started for it, and ended with it.
    until(lambda: not program.processes(), 60)


LOCAL = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
import signal, threading, time
frame = spark.createDataFrame(ROWS, "id int, message string")
found["answers"] = answers(echo().transform(frame))

from platform_plugin.progress import Progress
update, calls = Progress.update, []
def counting(self, *args, **kwargs):
    calls.append(1)
    if len(calls) == 4:
        threading.Thread(target=os.killpg, args=(os.getpgrp(), signal.SIGINT)).start()
    return update(self, *args, **kwargs)
Progress.update = counting
began = time.monotonic()
found["interrupted"] = error(lambda: echo(engineArgs={"delay_s": 120}).transform(frame))
found["interrupted after"] = time.monotonic() - began
Progress.update = update
found["after interrupt"] = answers(echo().transform(frame))
os.mkdir("incoming")
with open("incoming/1.json", "w") as out:
    out.write(chr(10).join(json.dumps({"id": id, "message": message}) for id, message in ROWS))
llm = echo()
exec(sys.argv[1])
query.processAllAvailable()
found["live"] = [llm.lastReport.rows, llm.lastReport.distinct]
query.stop()
found["stream"] = answers(spark.read.parquet("answered"))
spark.stop()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
found["next session"] = answers(echo().transform(spark.createDataFrame(ROWS, "id int, message string")))
print(json.dumps(found))
"""


def test_stage_in_plain_sessions_and_after_ctrl_c(until: Callable[..., Any], local: Any) -> None:
    found = local.found(500)
    assert found["answers"] == found["after interrupt"] == found["next session"]
    assert found["answers"] == ["good", None, None, "good", "better"]
    assert (found["stream"], found["live"]) == (found["answers"], [5, 3])
    assert found["interrupted"].startswith("KeyboardInterrupt")
    assert found["interrupted after"] < 90
    until(lambda: not local.processes(), 60)
