"""What an evaluation says in words and numbers: units, sentences, warnings, names in MLflow; no models are asked."""

from __future__ import annotations

import dataclasses
import math

import pytest
from pyspark.sql import SparkSession
from sklearn import metrics as sk

from platform_plugin.evaluation import rows
from platform_plugin.evaluation.caution import of_classes
from platform_plugin.evaluation.comparison import Comparison, Interval
from platform_plugin.evaluation.constant import constant
from platform_plugin.evaluation.models import Candidate
from platform_plugin.evaluation.result import EvaluationResult, ModelResult
from platform_plugin.evaluation.rows import Buckets
from platform_plugin.evaluation.runs import numbers, side_by_side
from platform_plugin.evaluation.summary import best, data_name, description, model_description, sentences, subject
from platform_plugin.evaluation.units import difference, interval, shown, titled
from platform_plugin.metrics import Facts, load_metric
from platform_plugin.stages import LLMPredictor

USD = "USD per 1,000 rows"
UNITS = {"accuracy": "share", "latency": "s", "cost": USD, "length": "characters"}
BETTER = {"accuracy": "higher", "latency": "lower", "cost": "lower", "length": "neither"}


def compared(metric: str, verdict: str, found: Interval, model: str = "examples") -> Comparison:
    return Comparison(model, "bare", metric, found, 0.1, 0.2, verdict)


def result_of(models: dict[str, dict[str, Interval]], *comparisons: Comparison) -> EvaluationResult:
    return EvaluationResult(
        name="e",
        rows=154,
        labelled=154,
        label="topic",
        baseline="bare",
        units=UNITS,
        better=BETTER,
        models=[ModelResult(name, "column", values=values) for name, values in models.items()],
        comparisons=list(comparisons),
    )


@pytest.mark.parametrize(
    ("value", "unit", "wanted"),
    [
        (0.0844, "share", "8.4 %"),
        (0.0, "share", "0.0 %"),
        (1.0, "share", "100.0 %"),
        (0.00042, "share", "0.0420 %"),
        (0.00167, USD, "0.00167"),
        (0.0000021, USD, "0.00000210"),
        (2.1e-9, USD, "2.10e-09"),
        (2.6361, "s", "2.64"),
        (14.66, "s", "14.7"),
        (0.0, "s", "0"),
        (277.86, "tokens", "277.9"),
        (12345.6, "tokens", "12,346"),
        (math.nan, "share", "-"),
    ],
)
def test_small_values_have_three_digits_that_count(value: float, unit: str, wanted: str) -> None:
    assert shown(value, unit) == wanted


def test_interval_has_the_decimals_of_its_value_and_the_unit_once() -> None:
    assert interval(Interval(0.084, 0.044, 0.132), "share") == ("8.4 %", "4.4 to 13.2 %")
    assert interval(Interval(0.00062, 0.00061, 0.00064), USD) == ("0.000620", "0.000610 to 0.000640")
    assert interval(Interval(9.95, 9.1, 10.8), "s") == ("9.9", "9.1 to 10.8")
    assert interval(Interval(0.5), "share") == ("50.0 %", "")
    assert interval(Interval(math.nan), "s") == ("-", "")


def test_differences_of_shares_are_points() -> None:
    assert difference(Interval(0.0519, -0.0072, 0.1144), "share") == ("+5.2 points", "-0.7 to +11.4")
    assert difference(Interval(0.001046, 0.00104, 0.001055), USD) == (f"+0.00105 {USD}", "+0.00104 to +0.00105")
    assert difference(Interval(-2.636, -2.878, -2.392), "s") == ("-2.64 s", "-2.88 to -2.39")
    assert difference(Interval(-0.0001, -0.01, 0.01), "share") == ("-0.01 points", "-1.00 to +1.00")
    assert difference(Interval(3.2), "score") == ("+3.20", "")
    heads = [titled(*one) for one in (("latency", "s"), ("accuracy", "share"), ("tokens", "tokens"))]
    assert heads == ["latency (s)", "accuracy", "tokens"]


def test_summary_begins_with_the_first_metric_whatever_it_says() -> None:
    result = result_of(
        {"bare": {}, "examples": {}, "other": {}},
        compared("accuracy", "no evidence", Interval(0.0519, -0.0072, 0.1144)),
        compared("latency", "better", Interval(-2.636, -2.878, -2.392)),
        compared("cost", "no evidence", Interval(0.0, 0.0, 0.0)),
        compared("length", "different", Interval(3.25, 3.0, 3.5)),
        compared("accuracy", "worse", Interval(-0.05, -0.07, -0.01), "other"),
    )
    result.warnings.append("Look out.")
    assert [one.text for one in sentences(result)] == [
        "No evidence that examples differs from bare in accuracy: +5.2 points (-0.7 to +11.4; corrected p 0.200).",
        "other is worse than bare in accuracy: -5.0 points (-7.0 to -1.0; corrected p 0.200).",
        "examples is better than bare in latency: -2.64 s (-2.88 to -2.39; corrected p 0.200).",
        "examples differs from bare in length: +3.25 characters (+3.00 to +3.50; corrected p 0.200).",
    ]
    note = description(result)
    first, found, warned, _ = note.replace("- Look out.", "- Look out.\n\n**").split("\n\n**")
    assert first == (
        "bare, examples and other on 154 rows, label topic; **1 warning**; **report.html** is under Artifacts."
    )
    assert warned == "Warnings**\n\n- Look out."
    assert found.startswith("Found**\n\n- **no evidence**: No evidence that examples")
    assert "Not met" not in note


def test_subject_names_models_and_data() -> None:
    result = result_of({"bare": {}, "examples": {}})
    assert subject(result) == "bare and examples on 154 rows, label topic"
    queried = dataclasses.replace(result, data="test.csv", facts={"query": "SELECT 1"})
    assert subject(queried) == "bare and examples on 154 rows of a query on test.csv, label topic"
    named = dataclasses.replace(result, data="test.csv", required=["accuracy >= 0.5"])
    assert "\n\n**Required**\n\n- accuracy >= 0.5: met\n" in description(named)
    assert subject(named) == "bare and examples on 154 rows of test.csv, label topic"
    assert subject(result_of({name: {} for name in "abcdef"})).startswith("6 models on 154 rows, ")
    assert subject(result_of({name: {} for name in "abc"})).startswith("a, b and c on ")
    assert data_name(["/data/test.csv"]) == "test.csv"
    assert data_name(["/data/rows/part-0", "/data/rows/part-1"]) == data_name(["/data/rows/part-0.csv"]) == "rows"
    assert data_name(["/a/part-0", "/b/part-1"]) == data_name([]) == ""


@pytest.mark.parametrize(
    ("bare", "examples", "wanted"),
    [
        (Interval(0.08, 0.04, 0.13), Interval(0.14, 0.09, 0.19), "examples"),
        (Interval(0.08, 0.04, 0.15), Interval(0.14, 0.09, 0.19), None),
        (Interval(0.08), Interval(0.14), "examples"),
        (Interval(0.14), Interval(0.14), None),
        (Interval(math.nan), Interval(0.14), None),
    ],
)
def test_best_is_bold_only_where_no_interval_reaches_it(bare: Interval, examples: Interval, wanted: str | None) -> None:
    assert best(result_of({"bare": {"accuracy": bare}, "examples": {"accuracy": examples}})).get("accuracy") == wanted


def test_best_of_times_is_the_lowest_and_none_without_evidence_or_a_better_side() -> None:
    low, high = Interval(1.0, 0.9, 1.1), Interval(2.0, 1.9, 2.1)
    values = {"bare": dict.fromkeys(UNITS, high), "examples": dict.fromkeys(UNITS, low)}
    doubt = compared("cost", "no evidence", Interval(0.1, -0.1, 0.3))
    assert best(result_of(values, doubt)) == {"accuracy": "bare", "latency": "examples"}


def test_model_is_held_against_always_answering_the_most_frequent_label() -> None:
    # Labels: 36 card, 20 top up, 98 others; columns end with what is no class.
    poor = [[10, 26, 0, 0], [0, 20, 0, 0], [8, 81, 5, 4]]
    classes = ("card", "top up", "other")
    assert of_classes("examples", classes, poor) == [
        "examples is no better than a constant: it is right in 22.7 % of rows; always answering 'other' would be right "
        "in 63.6 % (98 of 154). It answers 'top up' in 127 of 154 rows; 20 have that label.",
    ]
    assert of_classes("fine", classes, [[36, 0, 0, 0], [5, 15, 0, 0], [0, 0, 98, 0]]) == []
    (same,) = of_classes("same", classes, [[0, 0, 36, 0], [0, 0, 20, 0], [0, 0, 98, 0]])
    assert "It answers 'other' in 154 of 154 rows" in same
    assert of_classes("sure", classes, [[36, 0, 0, 0], [20, 0, 0, 0], [49, 0, 49, 0]]) == [
        "sure is no better than a constant: it is right in 55.2 % of rows; always answering 'other' would be right in "
        "63.6 % (98 of 154). It answers 'card' in 105 of 154 rows; 36 have that label."
    ]


def test_names_in_mlflow_are_sections() -> None:
    result = result_of(
        {"bare": {"accuracy": Interval(0.1)}, "examples": {"accuracy": Interval(0.3, 0.2, 0.4)}},
        compared("accuracy", "better", Interval(0.2, 0.1, 0.3)),
    )
    assert numbers(result, result.model("bare")) == {"accuracy": 0.1}
    assert numbers(result, result.model("examples")) == {
        "accuracy": 0.3,
        "interval/accuracy_low": 0.2,
        "interval/accuracy_high": 0.4,
        "difference/accuracy": 0.2,
        "difference/accuracy_low": 0.1,
        "difference/accuracy_high": 0.3,
        "p_holm/accuracy": 0.2,
    }


def test_child_is_described_by_its_values_and_the_parent_has_them_side_by_side() -> None:
    result = result_of(
        {"bare": {"accuracy": Interval(0.1)}, "examples|2": {"accuracy": Interval(0.3, 0.2, 0.4)}},
        compared("accuracy", "better", Interval(0.2, 0.1, 0.3), "examples|2"),
    )
    assert model_description(result, result.model("examples|2")).splitlines() == [
        "column, on 154 rows",
        "",
        "| metric | value | 95 % interval | against bare | verdict |",
        "| --- | --- | --- | --- | --- |",
        "| accuracy | 30.0 % | 20.0 to 40.0 % | +20.0 points | better |",
    ]
    assert model_description(result, result.model("bare")).startswith("column, the baseline, on 154 rows\n")
    assert "| examples\\|2 | 30.0 % |" in description(result)
    assert side_by_side(result) == {"accuracy/bare": 0.1, "accuracy/examples_2": 0.3}


def test_constant_is_a_line_of_the_table_with_what_it_reaches() -> None:
    counts = {"card": 36, "fee": 98, "top up": 20}
    facts = Facts(classes=tuple(counts))
    metrics = {name: load_metric(name).bind(facts) for name in ("accuracy", "macro_f1", "weighted_f1", "error_rate")}
    found = constant(metrics, counts)
    labels = [label for label, count in counts.items() for _ in range(count)]
    always = ["fee"] * len(labels)
    wanted = {name: sk.f1_score(labels, always, average=name, zero_division=0) for name in ("macro", "weighted")}
    assert found.values == pytest.approx(
        {"accuracy": 98 / 154, "macro_f1": wanted["macro"], "weighted_f1": wanted["weighted"]}
    )
    assert (found.name, found.rows, found.labelled) == ("always 'fee'", 98, 154)
    result = dataclasses.replace(result_of({"bare": {}}), constant=found)
    assert result.table()[-1] == ["always 'fee'", "63.6 %", "-", "-", "-"]


def test_params_name_model_and_engine_where_they_are_defaults() -> None:
    candidate = Candidate("m", "LLMPredictor", model=LLMPredictor(promptTemplate="{text}"))
    sampling = {"temperature": 0.0, "max_tokens": 256}
    asked = {"model": "smollm2-135m", "engine": "vllm", "promptTemplate": "{text}", "samplingParams": sampling}
    assert candidate.params() == asked
    candidate = Candidate("m", "LLMPredictor", model=LLMPredictor(inputCol="x", engineArgs={"hf_token": "secret"}))
    assert candidate.params()["engineArgs"] == {"hf_token": "***"}
    assert Candidate("m", "column x", column="x").params() == {}


def test_histogram_has_quarters_of_doublings_and_no_empty_ones_between_whole_numbers(spark: SparkSession) -> None:
    answers = spark.range(1, 41).selectExpr(
        "array(named_struct('n', double(id), 'seconds', id / 16), named_struct('n', 4D, 'seconds', NULL)) AS models"
    )
    whole, other = rows.buckets(answers, 2, "answer.n", 1.0, whole=True)
    assert whole.bounds[:10] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert whole.counts[:10] == [0, 1, 1, 1, 1, 1, 1, 1, 2, 2]
    assert (sum(whole.counts), sum(other.counts)) == (40, 40)
    assert whole.median == pytest.approx(20, abs=1)
    assert other.median == 4
    seconds, none = rows.buckets(answers, 2, "answer.seconds", 0.001)
    assert seconds.bounds[4] == pytest.approx(0.002)
    assert seconds.median == pytest.approx(1.25, rel=0.1)
    assert math.isnan(none.median)
    assert Buckets([1.0, 2.0], [0, 4]).edges == [0.5, 1.0, 2.0]
