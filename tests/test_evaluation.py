"""Evaluation in a plain local session: existing columns, slices, comparison, bad input, the report."""

from __future__ import annotations

import html
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import PipelineModel
from pyspark.ml.feature import SQLTransformer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sacrebleu.metrics import BLEU
from sklearn import metrics as sk

from platform_plugin import evaluate
from platform_plugin.errors import ConfigError, GateError, RunError, SchemaError
from platform_plugin.evaluation import EvaluationResult
from platform_plugin.evaluation.frame import as_text
from platform_plugin.stages import LLMPredictor, PredictionEvaluator

CLASSES = ["card", "cash", "exchange", "transfer"]
COLUMNS = "id int, message string, topic string, old string, new string, city string, size double"
METRICS = ["accuracy", "macro_f1", "rougeL", {"bleu": {"lowercase": True}}, "error_rate", "length"]


def made_rows(count: int) -> list[tuple[Any, ...]]:
    chance = random.Random(1)
    rows = []
    for i in range(count):
        topic = chance.choice(CLASSES)
        old = topic if chance.random() < 0.6 else chance.choice(CLASSES)
        new = topic if chance.random() < 0.8 else chance.choice([None, "I cannot say", *CLASSES])
        city = chance.choice(["Paris", "Rome", None])
        rows.append((i, f"secret words {i} of {topic}", topic if i % 50 else None, old, new, city, i / 2))
    return rows


ROWS = made_rows(400)


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, COLUMNS).repartition(3)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluation") / "out"


@pytest.fixture(scope="module")
def result(data: DataFrame, output: Path) -> EvaluationResult:
    models = {"old": "old", "new": "new"}
    return evaluate(
        models, data, "topic", METRICS, baseline="old", by="city", key="id", output=str(output), track=False
    )


def labelled(model: str) -> tuple[list[str], list[str]]:
    """Return labels and predictions of the rows with a label; "" for no prediction."""
    place = {"old": 3, "new": 4}[model]
    kept = [row for row in ROWS if row[2] is not None]
    return [row[2] for row in kept], [row[place] or "" for row in kept]


@pytest.mark.parametrize("model", ["old", "new"])
def test_values_are_those_of_the_libraries(result: EvaluationResult, model: str) -> None:
    labels, said = labelled(model)
    found = result.metrics[model]
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(labels, said))
    f1 = sk.f1_score(labels, said, labels=CLASSES, average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(f1)
    assert found["bleu"] == pytest.approx(BLEU(lowercase=True).corpus_score(said, [labels]).score)
    missing = sum(row[{"old": 3, "new": 4}[model]] is None for row in ROWS)
    assert found["error_rate"] == pytest.approx(missing / 400)
    assert (result.rows, result.labelled) == (400, 392)


def test_slices_are_evaluations_of_their_rows(result: EvaluationResult) -> None:
    assert [(s.column, s.value) for s in result.slices if s.value == "null"] == [("city", "null")]
    assert sum(s.rows for s in result.slices) == 400
    for one in result.slices:
        kept = [r for r in ROWS if (r[5] or "null") == one.value]
        assert one.rows == len(kept)
        known = [(r[2], r[4] or "") for r in kept if r[2]]
        assert one.values["new"]["accuracy"] == pytest.approx(np.mean([a == b for a, b in known]))
        f1 = sk.f1_score(*zip(*known, strict=True), labels=sorted({a for a, _ in known}), average="macro")
        assert one.values["new"]["macro_f1"] == pytest.approx(f1)


def test_comparison_is_paired_by_row(result: EvaluationResult) -> None:
    accuracy, macro, *_ = result.comparisons
    assert (accuracy.metric, accuracy.model, accuracy.baseline) == ("accuracy", "new", "old")
    (labels, old), (_, new) = labelled("old"), labelled("new")
    hits = np.array([[p == t for p, t in zip(said, labels, strict=True)] for said in (old, new)], dtype=float)
    each = hits[1] - hits[0]
    assert accuracy.difference.value == pytest.approx(each.mean())
    error = each.std(ddof=1) / math.sqrt(len(each))
    assert accuracy.difference.high - accuracy.difference.low == pytest.approx(2 * 1.96 * error, rel=0.12)
    assert (accuracy.wins, accuracy.ties, accuracy.losses) == ((each > 0).sum(), (each == 0).sum(), (each < 0).sum())
    assert (macro.wins, macro.ties, macro.losses) == (None, None, None), "a row has no F1 over classes"
    counted = {c.metric for c in result.comparisons if c.wins is not None}
    assert counted == {"accuracy", "rougeL", "error_rate", "length"}
    assert (accuracy.verdict, macro.verdict) == ("better", "better")
    assert {c.metric: c.verdict for c in result.comparisons}["error_rate"] == "worse"
    assert all(c.p_holm >= c.p for c in result.comparisons)


def test_intervals_do_not_depend_on_partitions_nor_on_other_metrics(data: DataFrame, result: EvaluationResult) -> None:
    again = evaluate({"new": "new"}, data.coalesce(1).orderBy("city"), "topic", ["accuracy"], key="id", track=False)
    assert again.model("new").values["accuracy"] == pytest.approx(result.model("new").values["accuracy"])


def test_rows_that_are_equal_are_so_many_rows(spark: SparkSession) -> None:
    frame = spark.range(0, 2000, 1, 4).selectExpr("'a' AS label", "IF(id % 4 = 0, 'b', 'a') AS said")
    found = evaluate({"m": "said"}, frame, "label", ["accuracy"], track=False).model("m").values["accuracy"]
    assert found.value == 0.75
    assert found.high - found.low == pytest.approx(2 * 1.96 * math.sqrt(0.75 * 0.25 / 2000), rel=0.12)


def test_report_is_one_page_that_tells_keys_and_no_texts(result: EvaluationResult, output: Path) -> None:
    page = Path(str(result.report)).read_text()
    assert "new is better than old in accuracy" in page
    assert "By city" in page
    assert "old and new on 400 rows, label topic" in page
    assert 'length<span class="unit">characters</span>' in page
    assert "p (Holm)" in page
    assert "with accuracy 0.0 %, the worst there is; chosen by a hash" in page
    accuracy = result.comparisons[0]
    assert f"{accuracy.wins} rows are better and {accuracy.losses} worse than with old; 10 of each at most" in page
    assert page.count('<span class="tag gained">') == page.count('<span class="tag lost">') == 10
    assert "always &#39;" in page
    assert "secret words" not in page
    assert "I cannot say" not in page
    assert "://" not in page.replace("http://www.w3.org", ""), "the page needs something beside it"
    told = json.loads((output / "evaluation.json").read_text())
    assert told["models"][1]["values"]["accuracy"]["value"] == result.metrics["new"]["accuracy"]
    assert "8 of 400 rows have no topic" in " ".join(result.warnings)
    assert "new against old: accuracy +" in str(result)
    assert "<table>" in result._repr_html_()


def test_results_hold_every_row(spark: SparkSession, result: EvaluationResult) -> None:
    assert len(list(Path(str(result.results)).glob("*.parquet"))) == 1
    rows = {row["key"]: row for row in spark.read.parquet(str(result.results)).collect()}
    assert set(rows) == {str(row[0]) for row in ROWS}
    for i, _, topic, _, new, *_ in ROWS:
        row = rows[str(i)]
        assert (row["label"], row["new"]["prediction"], row["new"]["failed"]) == (topic, new, new is None)
        wanted = None if topic is None else float(new == topic)
        assert row["new"]["scores"]["accuracy"] == wanted
        assert row["new"]["scores"]["error_rate"] == float(new is None)


def test_rows_gained_and_lost_are_those_that_changed(data: DataFrame, tmp_path: Path) -> None:
    one = "CASE id WHEN 1 THEN 'a' WHEN 2 THEN 'b' END AS one"
    frame = data.where("id IN (1, 2, 3, 4)").selectExpr("id", "IF(id = 1, 'a', 'b') AS label", one, "'b' AS two")
    output = tmp_path / "out"
    metrics = ["error_rate", "accuracy"]
    given = {"key": "id", "output": str(output), "log_samples": True, "track": False}
    evaluate({"one": "one", "two": "two"}, frame, "label", metrics, None, "one", **given)
    page = html.unescape((output / "report.html").read_text())
    found = page.split("<h2>Gained and lost against one</h2>")[1].split("</table>")[0]
    assert "error_rate: 2 rows are better and 0 worse than with one." in found
    rows = re.findall(r'<td class="text">(\d)</td>.*?<td class="text">([^<]*)</td></tr>', found, re.DOTALL)
    assert sorted(rows) == [("3", "(NullPrediction)"), ("4", "(NullPrediction)")]


def test_gate_that_is_not_met_raises_after_the_report_is_written(data: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"old: accuracy = 0\.\d+, wanted >= 0.99") as caught:
        evaluate(
            {"old": "old"},
            data,
            "topic",
            ["accuracy", "error_rate"],
            require={"accuracy": 0.99, "error_rate": "<0.01"},
            resamples=0,
            output=str(tmp_path / "out"),
            log_samples=True,
            track=False,
        )
    assert len(caught.value.failures) == 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "not met" in page
    assert "secret words" in page


def test_file_with_a_key_that_is_its_text_and_a_model_that_knows_nothing(spark: SparkSession, tmp_path: Path) -> None:
    labels = ["card"] * 8 + ["fee"] * 6 + ["cash"] * 6
    lines = [f"asked {i} of {label},{label},{'fee' if i % 10 else 'cash'}" for i, label in enumerate(labels)]
    (tmp_path / "my rows.csv").write_text("\n".join(["text,topic,said", *lines]))
    frame = spark.read.csv(str(tmp_path / "my rows.csv"), header=True)
    result = evaluate(
        {"poor": "said"},
        frame,
        "topic",
        ["accuracy"],
        key="text",
        output=str(tmp_path / "out"),
        log_samples=True,
        track=False,
    )
    assert result.facts["data"] == str(tmp_path / "my rows.csv")
    wanted = [
        "poor is no better than a constant: it is right in 25.0 % of rows; always answering 'card' would be right in "
        "40.0 % (8 of 20). It answers 'fee' in 18 of 20 rows; 6 have that label.",
    ]
    assert result.warnings == wanted
    page = (tmp_path / "out" / "report.html").read_text()
    # Of 18 answers 'fee', 5 are of the 6 rows with that label; who says so always has them all right.
    cells = re.findall(r'<td class="number">([^<]*)(?:<span class="interval">([^<]*)</span>)?</td>', _row(page, "fee"))
    assert cells == [("6", ""), ("83.3 %", ""), ("18", "27.8 % of them right")]
    assert "never" in _row(page, "card")
    assert "poor on 20 rows of my rows.csv, label topic" in page
    assert '<td class="text">asked 0 of card</td>' in page
    assert all(text in str(result) and html.escape(text, quote=False) in html.unescape(page) for text in wanted)


def test_constant_of_one_label_is_always_right(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", "a"), ("a", "a")], "label string, said string")
    given: dict[str, Any] = {"resamples": 0, "track": False}
    result = evaluate({"m": "said"}, frame, "label", ["accuracy"], require={"accuracy": ">=constant"}, **given)
    assert result.constant is not None
    assert result.constant.values == {"accuracy": 1.0}
    with pytest.raises(GateError, match=r"m: accuracy = 1, wanted > 1 \(constant\)"):
        evaluate({"m": "said"}, frame, "label", ["accuracy"], require={"accuracy": ">constant"}, **given)


def _row(page: str, label: str) -> str:
    """Return the line of a label in the table by label."""
    return page.split("<h2>By label</h2>")[1].split(f"<td>{label}</td>")[1].split("</tr>")[0]


def test_files_that_spark_cannot_name_are_no_fact(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: DataFrame) -> list[str]:
        raise NotImplementedError

    monkeypatch.setattr(DataFrame, "inputFiles", refuse)
    frame = spark.createDataFrame([("a", "a"), ("b", "b")], "label string, said string")
    result = evaluate({"m": "said"}, frame, "label", ["accuracy"], resamples=0, track=False)
    assert "data" not in result.facts
    assert result.warnings == []


def test_pipelines_are_evaluated_and_one_that_fails_leaves_the_others_their_numbers(
    data: DataFrame, tmp_path: Path
) -> None:
    upper = SQLTransformer(statement="SELECT *, initcap(old) AS answer FROM __THIS__")
    lower = SQLTransformer(statement="SELECT *, lower(answer) AS prediction FROM __THIS__")
    fails = SQLTransformer(statement="SELECT *, string(raise_error('out of luck')) AS prediction FROM __THIS__")
    skips = SQLTransformer(statement="SELECT *, old AS prediction FROM __THIS__ WHERE id % 2 = 0")
    drops = SQLTransformer(statement="SELECT message, old AS prediction FROM __THIS__")
    with pytest.raises(RunError) as caught:
        evaluate(
            {"good": PipelineModel([upper, lower]), "fails": fails, "skips": skips, "drops": drops, "column": "old"},
            data,
            "topic",
            ["accuracy", "error_rate"],
            baseline="column",
            prediction="prediction",
            output=str(tmp_path / "out"),
            resamples=100,
            track=False,
        )
    message = str(caught.value)
    assert "2 of 5 models could not be evaluated" in message
    assert "out of luck" in message
    assert "'drops' drops the column 'evaluation_row'" in message
    told = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    values = {m["name"]: {k: v["value"] for k, v in m["values"].items()} for m in told["models"]}
    assert values["good"] == values["column"] != {}
    assert values["fails"] == values["drops"] == {}
    assert values["skips"]["error_rate"] == 0.5
    assert any("skips has no prediction in 200 of 400 rows (200 RowLost)" in text for text in told["warnings"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"label": "topik"}, SchemaError, "label='topik' is not a column.*Did you mean 'topic'"),
        ({"models": {}}, ConfigError, "wanted a dict of name -> model"),
        ({"models": {"a": "odl"}}, SchemaError, "'odl' is no column.*Did you mean 'old'"),
        ({"models": {"a": "old", "A": "new"}}, ConfigError, "differ by case only"),
        ({"models": {"a": 3}}, ConfigError, "is a int; wanted a PipelineModel"),
        ({"models": {"a": "size"}}, SchemaError, "predicts number, and label='topic' is text.*Cast one"),
        ({"metrics": ["acuracy"]}, ConfigError, "Did you mean 'accuracy'"),
        ({"metrics": "accuracy"}, ConfigError, "wanted a list"),
        ({"metrics": ["accuracy", "accuracy"]}, ConfigError, "asked for twice"),
        ({"metrics": ["rouge1"], "label": "size"}, SchemaError, "takes a label of text, not number"),
        ({"metrics": ["latency"]}, SchemaError, "needs the seconds of each row"),
        ({"metrics": ["accuracy"], "label": None}, SchemaError, "name the column: label="),
        ({"metrics": [{"cost": {"model": "gpt"}}]}, ConfigError, "no model 'gpt'; it has"),
        ({"metrics": [{"cost": {"model": "smollm2-135m"}}]}, SchemaError, "needs the tokens of each row"),
        ({"baseline": "b"}, ConfigError, "baseline='b' is none of the models a"),
        ({"by": "town"}, SchemaError, "by='town' is not a column"),
        ({"by": "id", "resamples": 0, "many": True}, ConfigError, "by='id' has about .* values; at most 1000"),
        ({"key": "idd"}, SchemaError, "key='idd' is not a column"),
        ({"require": {"rouge1": 1}}, ConfigError, "not among the metrics: accuracy, macro_f1, error_rate"),
        ({"resamples": -1}, ConfigError, "resamples=-1"),
        (
            {"prices": "/no/such", "metrics": [{"cost": {"model": "m"}}]},
            ConfigError,
            "table /no/such cannot be read",
        ),
        ({"metrics": ["cost"]}, ConfigError, "which model made a prediction column is not known"),
        ({"require": {"error_rate": "<constant"}}, ConfigError, "does not compare with labels"),
        (
            {"label": "label", "metrics": ["accuracy"], "require": {"accuracy": ">constant"}, "distinct": True},
            ConfigError,
            "more than 1,000 distinct values",
        ),
        ({"where": "id < 0"}, ConfigError, "the data has no rows"),
        ({"where": "topic IS NULL"}, ConfigError, "label='topic' is null in all 8 rows"),
        ({"output": "."}, ConfigError, "is there and not empty"),
    ],
)
def test_bad_input_is_told_before_anything_runs(
    spark: SparkSession, data: DataFrame, change: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = {"models": {"a": "old"}, "label": "topic", "track": False, **change}
    frame = data.where(given.pop("where", "true"))
    if given.pop("distinct", False):
        frame = spark.range(1500).selectExpr("string(id) AS label", "'x' AS old")
    if given.pop("many", False):
        frame = spark.range(2000).selectExpr("id", "'x' AS topic", "'x' AS old")
    with pytest.raises(error, match=f"(?s){message}"):
        evaluate(data=frame, **given)


def test_a_bare_llm_stage_without_a_fitted_pipeline_is_told_apart(data: DataFrame) -> None:
    from pyspark.ml import Pipeline

    with pytest.raises(ConfigError, match="is a Pipeline that is not fitted"):
        evaluate({"a": Pipeline(stages=[LLMPredictor(inputCol="message")])}, data, "topic", track=False)
    with pytest.raises(SchemaError, match="inputCol='massage' is not a column"):
        evaluate({"a": LLMPredictor(inputCol="massage", engine="echo")}, data, "topic", track=False)
    shaped = LLMPredictor(inputCol="message", engine="echo", outputSchema="topic string")
    with pytest.raises(SchemaError, match="name a field of it"):
        evaluate({"a": shaped}, data, "topic", track=False)
    priced = LLMPredictor(inputCol="message", engine="echo", model="somewhere/else")
    with pytest.raises(ConfigError, match=r"prices.yaml has no model 'somewhere/else'"):
        evaluate({"a": priced}, data, "topic", ["cost"], track=False)


def test_blanks_of_any_kind_around_a_label_make_no_class_of_its_own(spark: SparkSession) -> None:
    blanks = "".join(chr(i) for i in range(0x3001) if chr(i).isspace())
    frame = spark.createDataFrame(
        [(blanks + "a" + blanks, "a"), ("b", "\tb\n"), ("a", "b")], "label string, said string"
    )
    found = evaluate({"m": "said"}, frame, "label", ["accuracy", "macro_f1"], resamples=0, track=False)
    assert found.metrics["m"] == pytest.approx({"accuracy": 2 / 3, "macro_f1": 2 / 3})


@pytest.mark.parametrize(
    ("label", "said", "same"),
    [
        ("12345678901234567890 as decimal(38,0)", "12345678901234567891 as decimal(38,0)", False),
        ("9007199254740993 as bigint", "9007199254740993 as decimal(20,2)", True),
        ("9007199254740993 as bigint", "9007199254740992 as double", False),
        ("1000000000000000 as bigint", "1e15 as double", True),
        ("0.1 as float", "0.1 as double", True),
        ("0.00001 as decimal(10,8)", "0.00001 as double", True),
        ("12345678.5 as decimal(12,3)", "12345678.5 as double", True),
        ("-0.0 as double", "0 as int", True),
        ("1e20 as double", "100000000000000000000 as decimal(38,0)", True),
        ("'NaN' as double", "'NaN' as float", True),
    ],
)
def test_numbers_are_equal_by_their_value_whatever_their_type(
    spark: SparkSession, label: str, said: str, same: bool
) -> None:
    frame = spark.range(1).selectExpr(f"cast({label}) AS label", f"cast({said}) AS said")
    texts = [as_text(F.col(name), frame.schema[name].dataType) for name in frame.columns]
    (row,) = frame.select(*texts).collect()
    assert (row[0] == row[1]) == same


def test_numbers_and_booleans_are_classes(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [(1, 1.0, True), (2, 2.0, True), (3, 1.0, False), (None, 1.0, None)], "a int, b double, c boolean"
    )
    found = evaluate({"b": "b"}, frame, "a", ["accuracy", "macro_f1"], resamples=0, track=False).metrics["b"]
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["macro_f1"] == pytest.approx(sk.f1_score([1, 2, 3], [1, 2, 1], average="macro"))


def test_evaluator_is_the_metric(data: DataFrame, result: EvaluationResult, tmp_path: Path) -> None:
    evaluator = PredictionEvaluator(metricName="macro_f1", predictionCol="new", labelCol="topic")
    assert evaluator.evaluate(data) == pytest.approx(result.metrics["new"]["macro_f1"])
    assert evaluator.isLargerBetter()
    assert evaluator.evaluate(data, {evaluator.predictionCol: "old"}) == pytest.approx(
        result.metrics["old"]["macro_f1"]
    )
    evaluator.save(str(tmp_path / "evaluator"))
    again = PredictionEvaluator.load(str(tmp_path / "evaluator"))
    assert again.getMetricName() == "macro_f1"
    assert again.evaluate(data) == evaluator.evaluate(data)


def test_evaluator_reads_errors_and_fields_of_structs(spark: SparkSession) -> None:
    frame = spark.sql(
        """SELECT 'a' AS label, named_struct('topic', 'a') AS prediction,
             CAST(NULL AS struct<stage:string,type:string,message:string,retryable:boolean>) AS prediction_error
           UNION ALL SELECT 'b', NULL, named_struct('stage', 's', 'type', 'T', 'message', 'm', 'retryable', false)"""
    )
    assert PredictionEvaluator(predictionCol="prediction.topic").evaluate(frame) == 0.5
    assert PredictionEvaluator(metricName="error_rate").evaluate(frame) == 0.5
    assert not PredictionEvaluator(metricName="error_rate").isLargerBetter()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"metricName": "f1"}, "metric 'f1' is not known"),
        ({"labelCol": "topik"}, "labelCol='topik' is not a column"),
        ({"predictionCol": "predictions"}, "predictionCol='predictions' is not a column"),
        ({"metricName": "rouge1", "labelCol": "size"}, "takes a label of text, not number"),
        ({"metricName": "json_validity", "metricOptions": {"shema": {}}}, "json_validity.*shema"),
    ],
)
def test_evaluator_with_bad_params(data: DataFrame, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PredictionEvaluator(**{"predictionCol": "old", "labelCol": "topic", **params}).evaluate(data)
    with pytest.raises(ConfigError, match="no param 'metric'"):
        PredictionEvaluator(metric="accuracy")


def test_evaluator_of_an_empty_fold_says_so(data: DataFrame) -> None:
    with pytest.raises(ConfigError, match="of 0 rows none can be evaluated"):
        PredictionEvaluator(predictionCol="old", labelCol="topic").evaluate(data.where("id < 0"))
