"""A script that imports PySpark alone, run as it is and with its UDFs on Ray: it prints the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import udf_compat
from platform_plugin.jdk import use_java

pytestmark = pytest.mark.ray

SCRIPT = """
import json, os, sys
from typing import Iterator
import numpy as np
import pandas as pd
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, pandas_udf, struct, udf
from pyspark.sql.types import FloatType

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
df = spark.range(0, 50, 1, 2).withColumn("v", col("id") * 1.5).withColumn("k", col("id") % 3)

@pandas_udf("first string, length long")
def describe(both: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"first": both.id.astype(str), "length": both.v.map(lambda v: len(str(v)))})

@pandas_udf("double")
def scaled(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    factor = 3
    for batch in batches:
        yield batch * factor

@pandas_udf("double")
def mean(v: pd.Series) -> float:
    return v.mean()

@udf("string")
def where(x):
    return f"{x}:{type(x).__name__}"

def centered(frame):
    return frame.assign(v=frame.v - frame.v.mean())

def even(frames):
    for frame in frames:
        yield frame[frame.id % 2 == 0]

def load():
    return lambda x: x.astype(np.float32) + 1

predict = predict_batch_udf(load, return_type=FloatType(), batch_size=8)
spark.udf.register("where_sql", where)
df.createOrReplaceTempView("df")
shown = {
    "struct": df.select(describe(struct("id", "v")).alias("d")).select("d.*"),
    "iterator": df.select(scaled("v")),
    "aggregate": df.groupBy("k").agg(mean("v")),
    "row": df.select(where("id"), where("v")),
    "sql": spark.sql("select where_sql(k) from df"),
    "grouped": df.groupBy("k").applyInPandas(centered, df.schema),
    "mapped": df.mapInPandas(even, df.schema),
    "predicted": df.select(predict("v")),
}
out = {name: sorted(map(str, frame.collect())) for name, frame in shown.items()}
pid = udf(lambda x: os.getppid(), "long")
parents = {row[0] for row in df.select(pid("id")).collect()}
import psutil
out_names = sorted({psutil.Process(p).name() for p in parents})
print(json.dumps({"out": out, "arguments": sys.argv[1:], "main": __name__, "parents": out_names}))
"""


RUNNER = """
import runpy, sys
sys.argv = ["udf_compat", *sys.argv[1:]]
runpy.run_module("udf_compat", run_name="__main__")
"""


def test_script_runs_on_ray_without_a_changed_import(script: Callable[..., Any], tmp_path: Path) -> None:
    use_java()
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # Side by side, as most of the time goes to their start.
    programs = [
        script(SCRIPT, arguments=["a", "--b"], **own),
        script(RUNNER, arguments=[str(path), "a", "--b"], **own),
    ]
    on_spark, on_ray = (program.found(240) for program in programs)
    assert on_ray["out"] == on_spark["out"]
    assert (on_ray["arguments"], on_ray["main"]) == (["a", "--b"], "__main__")
    # Nobody but Ray's raylet has such children.
    assert on_ray["parents"] == ["raylet"] != on_spark["parents"]


@pytest.mark.slow
def test_spark_submit_runs_the_same_script(
    script: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java()
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    path = tmp_path / "user.py"
    path.write_text(SCRIPT)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    arguments = ["--master", "local[2]", str(Path(udf_compat.__file__).with_name("__main__.py")), str(path), "a"]
    # As in an activated environment: spark-submit asks the first python3 where Spark is.
    path_of = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = f"import os, sys; os.execv({submit!r}, ['spark-submit', *sys.argv[1:]])"
    on_ray = script(program, arguments=arguments, PATH=path_of)
    found = on_ray.found(240)
    assert (found["arguments"], found["parents"]) == (["a"], ["raylet"])


@pytest.mark.parametrize(("arguments", "words"), [([], "usage"), (["nothing.py"], "nothing.py is not a file")])
def test_bad_command_line_says_what_is_wanted(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "udf_compat", *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
