"""Saved pipelines are read from their metadata: the same folders that Spark writes, without Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from udf_compat.inspector.finding import Finding, Problem, Verdict
from udf_compat.inspector.saved import is_saved, read_saved


def save(folder: Path, class_name: str, uid: str, *stages: tuple[str, str], **params: Any) -> Path:
    """Write a stage as Spark does; a pipeline with its stages."""
    if stages:
        params["stageUids"] = [stage_uid for _, stage_uid in stages]
    metadata = {"class": class_name, "timestamp": 1, "sparkVersion": "3.5.7", "uid": uid, "paramMap": params}
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "part-00000").write_text(json.dumps(metadata) + "\n")
    (folder / "metadata" / "_SUCCESS").touch()
    for index, (stage, stage_uid) in enumerate(stages):
        save(folder / "stages" / f"{index:0{len(str(len(stages)))}}_{stage_uid}", stage, stage_uid)
    return folder


def read(folder: Path) -> list[tuple[str, str, Verdict]]:
    found = list(read_saved(folder))
    assert all(isinstance(one, Finding) for one in found), found
    return [(one.name, one.kind, one.verdict) for one in found if isinstance(one, Finding)]


def test_a_pipeline_in_the_order_of_its_stages(tmp_path: Path) -> None:
    stages = [("org.apache.spark.ml.feature.Tokenizer", f"tok_{i}") for i in range(9)]
    stages += [
        ("platform_plugin.stages.LLMPredictor", "LLMPredictor_1"),
        ("mine.stages.Scorer", "Scorer_1"),
        ("__main__.Own", "Own_1"),
        ("com.johnsnowlabs.nlp.DocumentAssembler", "DocumentAssembler_1"),
    ]
    folder = save(tmp_path / "p", "pyspark.ml.pipeline.PipelineModel", "PipelineModel_1", *stages, language="Python")
    assert is_saved(folder)
    assert read(folder) == [
        ("PipelineModel_1", "saved PipelineModel", Verdict.UNCHANGED),
        *[(f"tok_{i}", "saved Tokenizer", Verdict.UNCHANGED) for i in range(9)],
        ("LLMPredictor_1", "saved LLMPredictor", Verdict.UNCHANGED),
        ("Scorer_1", "saved Scorer", Verdict.NOTE),
        ("Own_1", "saved Own", Verdict.CANNOT),
        ("DocumentAssembler_1", "saved DocumentAssembler", Verdict.UNCHANGED),
    ]
    places = [one.place.file for one in read_saved(folder)]
    assert places[0] == str(folder)
    assert places[10] == str(folder / "stages" / "09_LLMPredictor_1")


def test_the_model_that_a_search_found(tmp_path: Path) -> None:
    folder = save(tmp_path / "cv", "org.apache.spark.ml.tuning.CrossValidatorModel", "cv_1")
    save(folder / "bestModel", "org.apache.spark.ml.PipelineModel", "best", ("mine.Own", "own"))
    save(folder / "evaluator", "org.apache.spark.ml.evaluation.RegressionEvaluator", "e")
    assert [one[:2] for one in read(folder)] == [
        ("cv_1", "saved CrossValidatorModel"),
        ("best", "saved PipelineModel"),
        ("own", "saved Own"),
        ("e", "saved RegressionEvaluator"),
    ]


def test_metadata_that_hadoop_compressed(tmp_path: Path) -> None:
    folder = save(tmp_path / "t", "org.apache.spark.ml.feature.Tokenizer", "tok")
    part = folder / "metadata" / "part-00000"
    (folder / "metadata" / "part-00000.gz").write_bytes(gzip.compress(part.read_bytes()))
    part.unlink()
    assert read(folder) == [("tok", "saved Tokenizer", Verdict.UNCHANGED)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"class": "x"}', "\xff"])
def test_metadata_that_is_broken_is_named(tmp_path: Path, text: str) -> None:
    folder = save(tmp_path / "t", "org.apache.spark.ml.feature.Tokenizer", "tok")
    (folder / "metadata" / "part-00000").write_bytes(text.encode("latin-1"))
    (problem,) = read_saved(folder)
    assert isinstance(problem, Problem)
    assert problem.place.file == str(folder / "metadata" / "part-00000")
    assert "is no metadata of a saved stage" in problem.message


def test_a_stage_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path / "p", "pyspark.ml.pipeline.PipelineModel", "p", stageUids=["gone_1"])
    _, problem = read_saved(folder)
    assert isinstance(problem, Problem)
    assert "stage 0 (gone_1)" in problem.message


def test_other_folders_are_no_saved_stage(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    assert not is_saved(tmp_path)
