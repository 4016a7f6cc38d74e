from __future__ import annotations

import json
import math
import pickle
import statistics

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_plugin.engines import answer_schema, error_row
from platform_plugin.errors import ConfigError
from platform_plugin.report import Histogram, RunReport, Tally

SCHEMA = answer_schema(pa.string())


def histogram(*seconds: float | None) -> Histogram:
    made = Histogram()
    made.add(pa.array(seconds, pa.float64()))
    return made


def good(seconds: float = 0.5, **changes: object) -> dict[str, object]:
    row = {
        "key": b"k",
        "output": "yes",
        "error": None,
        "finish_reason": "stop",
        "prompt_tokens": 100,
        "cached_tokens": 80,
        "output_tokens": 10,
        "truncated": False,
        "seconds": seconds,
    }
    return row | changes


def bad(kind: str, message: str) -> dict[str, object]:
    return {"key": b"k", "error": error_row("engine", kind, message), "seconds": 9.0}


def table(*rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SCHEMA)


def test_quantiles_are_within_a_tenth_of_the_exact_ones() -> None:
    seconds = [0.01 * 1.01**i for i in range(1000)]
    made = histogram(*seconds)
    exact = statistics.quantiles(seconds, n=100)
    for p in (50, 90, 99):
        assert made.quantile(p / 100) == pytest.approx(exact[p - 1], rel=0.1)


@given(st.lists(st.floats(0.0011, 8000), min_size=1), st.floats(0, 1))
def test_a_quantile_lies_between_the_smallest_and_the_largest_bucket(seconds: list[float], q: float) -> None:
    found = histogram(*seconds).quantile(q)
    assert found is not None
    assert min(seconds) / 1.2 <= found <= max(seconds) * 1.2


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram().quantile(0.5) is None


def test_a_quantile_in_per_cent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"quantile\(99\).*0\.99"):
        histogram(1.0).quantile(99)


def test_nulls_and_nans_are_not_latencies_and_the_longest_count_in_the_last_bucket() -> None:
    made = histogram(None, math.nan, 0.0, 1e9)
    assert made.total == 2
    assert made.counts[0] == 1
    assert made.counts[-1] == 1


@given(st.lists(st.floats(0, 1e5)), st.lists(st.floats(0, 1e5)))
def test_merged_histograms_equal_one_of_all(a: list[float], b: list[float]) -> None:
    merged = histogram(*a)
    merged.merge(histogram(*b))
    assert merged == histogram(*a, *b)
    assert Histogram.from_dict(json.loads(json.dumps(merged.to_dict()))) == merged


def test_a_tally_sums_good_and_bad_answers() -> None:
    tally = Tally()
    tally.add(table(good(0.5), good(2.0, truncated=True), bad("PromptTooLong", "9 tokens")), 100.0)
    tally.add(table(bad("PromptTooLong", "8 tokens"), bad("Timeout", "600 s")), 104.0)
    assert tally.answered == 2
    assert tally.failed == {"PromptTooLong": 2, "Timeout": 1}
    assert tally.messages == ["9 tokens", "8 tokens", "600 s"]
    assert tally.done == 5
    assert (tally.truncated, tally.prompt_tokens, tally.cached_tokens) == (1, 200, 160)
    assert tally.latency == histogram(0.5, 2.0), "a failed request has no latency"
    # The first request began 2 s before the first batch came, at 98 s.
    assert (tally.first_s, tally.last_s, tally.seconds) == (98.0, 104.0, 6.0)
    assert tally.tokens_per_s == pytest.approx(20 / 6)


def test_a_tally_keeps_the_first_five_messages_only() -> None:
    tally = Tally()
    tally.add(table(*(bad("Timeout", str(n)) for n in range(4))))
    tally.add(table(*(bad("Timeout", str(n)) for n in range(4, 8))))
    assert tally.messages == ["0", "1", "2", "3", "4"]
    assert tally.failed == {"Timeout": 8}


def test_a_tally_counts_an_error_without_type_or_message() -> None:
    tally = Tally()
    tally.add(table({"key": b"k", "error": error_row("engine", None, None)}))  # type: ignore[arg-type]
    assert (tally.failed, tally.messages) == ({"Error": 1}, [""])


def test_an_empty_table_leaves_a_tally_as_it_was() -> None:
    tally = Tally()
    tally.add(SCHEMA.empty_table())
    assert tally == Tally()


def test_merged_tallies_equal_one_of_all_in_sliced_and_chunked_tables() -> None:
    rows = [good(0.1 * n) for n in range(1, 9)] + [bad("Timeout", "600 s"), good(3.0)]
    whole = Tally()
    whole.add(table(*rows), 50.0)
    left, right = Tally(), Tally()
    left.add(table(*rows).slice(0, 3), 50.0)
    right.add(pa.concat_tables([table(*rows[3:5]), table(*rows[5:])]), 50.0)
    left.merge(pickle.loads(pickle.dumps(right)))
    assert left == whole


def test_a_snapshot_is_json_and_does_not_change_later() -> None:
    tally = Tally()
    tally.add(table(good(), bad("Timeout", "600 s")), 10.0)
    before = tally.snapshot()
    text = json.dumps(before, allow_nan=False)
    tally.add(table(good(), bad("Timeout", "600 s")), 20.0)
    assert json.dumps(before, allow_nan=False) == text
    assert before["failed"] == {"Timeout": 1}


@pytest.fixture
def report() -> RunReport:
    tally = Tally()
    tally.add(table(*[good(1.0)] * 8, bad("PromptTooLong", "9 > 8"), bad("<b>", "x")), 100.0)
    return RunReport.of(
        tally,
        stage="LLMPredictor",
        engine="vllm",
        model="smollm2-135m",
        rows=1500,
        distinct=10,
        refused={"EmptyPrompt": 3},
        seconds=12.5,
        engine_busy_share=0.92,
        steps={"requests": 2.0, "engine": 9.0, "rejoin": 1.5},
    )


def test_every_row_is_asked_reused_or_refused(report: RunReport) -> None:
    assert report.reused == 1487
    assert report.distinct + report.reused + sum(report.refused.values()) == report.rows


def test_a_report_survives_json_with_its_steps_in_order(report: RunReport) -> None:
    values = json.loads(report.to_json())
    assert RunReport.from_dict(values) == report
    assert list(values["steps"]) == ["requests", "engine", "rejoin"]
    assert values["reused"] == 1487
    assert values["prefix_hit_rate"] == 0.8
    assert values["tokens_per_s"] == 80.0
    assert values["latency_p50_s"] == pytest.approx(1.0, rel=0.1)


def test_a_report_with_a_nan_is_not_written(report: RunReport) -> None:
    values = report.to_dict() | {"engine_busy_share": math.nan}
    with pytest.raises(ValueError, match="JSON compliant"):
        RunReport.from_dict(values).to_json()


def test_a_report_prints_as_an_aligned_table(report: RunReport) -> None:
    lines = str(report).splitlines()
    assert lines[0] == "LLMPredictor  vllm  smollm2-135m"
    assert lines[1] == "  rows       1,500 = 10 asked + 1,487 reused + 3 refused"
    assert "  failed     1 PromptTooLong  1 <b>" in lines
    assert "  tokens     800 in (80% from the prefix cache)  80 out  80 out/s" in lines
    assert lines[-1] == "  seconds    12.5 = requests 2.0 + engine 9.0 + rejoin 1.5"
    assert not any(line.startswith("  truncated") for line in lines), "nothing was truncated"


def test_a_report_of_nothing_prints_rows_and_seconds_only() -> None:
    report = RunReport("LLMPredictor", "echo", "echo", rows=0, distinct=0, seconds=0.2)
    assert str(report).splitlines() == [
        "LLMPredictor  echo  echo",
        "  rows       0 = 0 asked + 0 reused",
        "  seconds    0.2",
    ]
    assert RunReport.from_dict(json.loads(report.to_json())) == report


def test_a_notebook_shows_an_escaped_table(report: RunReport) -> None:
    shown = report._repr_html_()
    assert shown.startswith("<table>")
    assert "1 &lt;b&gt;" in shown
    assert "<b>" not in shown
