from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_plugin import files
from platform_plugin.errors import ConfigError, MissingDependencyError


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    values = [
        (1, ' a "quoted" text, with\na line break ', ("Timeout", True), [1, 2], bytearray(b"\x00\xff")),
        (2, None, None, None, None),
        (3, "", ("x", None), [], bytearray()),
    ]
    return spark.createDataFrame(
        values, "id long, text string, error struct<type:string,retry:boolean>, many array<int>, raw binary"
    )


def as_set(frame: DataFrame) -> set[str]:
    return {str(row) for row in frame.collect()}


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_what_is_written_is_read_back(spark: SparkSession, rows: DataFrame, tmp_path: Path, kind: str) -> None:
    kept = rows if kind == "parquet" else rows.drop("raw")
    path = str(tmp_path / "out")
    files.write(kept, path, kind, overwrite=False)
    found = spark.read.schema(kept.schema).json(path) if kind == "json" else files.read(spark, path, kind)
    assert as_set(found) == as_set(kept)
    assert (tmp_path / "out/_SUCCESS").exists()


def test_csv_holds_texts_as_they_are_and_nested_columns_as_json(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    path = str(tmp_path / "out")
    files.write(rows, path, "csv", overwrite=False)
    found = {row["id"]: row.asDict() for row in files.read(spark, path, "csv").collect()}
    assert found[1]["text"] == ' a "quoted" text, with\na line break '
    assert found[1]["error"] == '{"type":"Timeout","retry":true}'
    assert found[1]["many"] == "[1,2]"
    assert found[1]["raw"] == "AP8="
    assert found[2]["error"] is None
    assert len(found) == 3


def test_an_output_that_is_there_is_refused_and_stays(spark: SparkSession, rows: DataFrame, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    files.write(rows, path, "parquet", overwrite=False)
    with pytest.raises(ConfigError, match="--overwrite"):
        files.write(rows.limit(1), path, "parquet", overwrite=False)
    assert files.read(spark, path, "parquet").count() == 3
    files.write(rows.limit(1), path, "parquet", overwrite=True)
    assert files.read(spark, path, "parquet").count() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"], "the old one is gone"


@pytest.mark.parametrize("there", [False, True])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, there: bool
) -> None:
    path = str(tmp_path / "out")
    if there:
        files.write(rows, path, "parquet", overwrite=False)
    failing = rows.withColumn("bad", F.when(F.col("id") == 3, F.raise_error(F.lit("in the third row")).cast("int")))
    with pytest.raises(Exception, match="in the third row"):
        files.write(failing, path, "parquet", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == (["out"] if there else [])
    if there:
        assert as_set(files.read(spark, path, "parquet")) == as_set(rows)


def test_a_rename_that_fails_brings_the_old_output_back(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rename, calls = str(tmp_path / "out"), files._rename, []
    files.write(rows, path, "parquet", overwrite=False)

    def broken(system: Any, source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError("the disk is full")
        rename(system, source, target)

    monkeypatch.setattr(files, "_rename", broken)
    with pytest.raises(OSError, match="disk is full"):
        files.write(rows.limit(1), path, "parquet", overwrite=True)
    assert as_set(files.read(spark, path, "parquet")) == as_set(rows)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", files.FORMATS[:1] + files.FORMATS[2:])
def test_a_path_without_rows_is_told(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be read as {kind}"):
        files.read(spark, str(tmp_path / "none"), kind)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_rehearsal_leaves_nothing_and_tells_what_would_fail(
    spark: SparkSession, rows: DataFrame, tmp_path: Path, kind: str
) -> None:
    files.rehearse(spark, rows.schema, str(tmp_path / "out"), kind)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ConfigError, match=f"cannot be written to .* as {kind}"):
        files.rehearse(spark, rows.schema, str(tmp_path / "file/out"), kind)


def test_a_type_that_parquet_refuses_is_told_before_the_work(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="VOID"):
        files.rehearse(spark, spark.sql("SELECT 1 AS id, null AS nothing").schema, str(tmp_path / "out"), "parquet")
    assert list(tmp_path.iterdir()) == []


def test_delta_brings_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert files.settings({"csv", "json"}, None) == {}
    offline = files.settings({"delta"}, "/jars/a.jar,/jars/b.jar")
    assert offline["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert "spark.jars.packages" not in offline
    assert files.settings({"delta"}, None)["spark.jars.packages"].startswith("io.delta:delta-spark_2.12:3.3")

    def missing(name: str) -> str:
        raise files.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(files.importlib.metadata, "version", missing)
    with pytest.raises(MissingDependencyError, match=r"platform-plugin\[delta\]"):
        files.settings({"delta"}, None)
