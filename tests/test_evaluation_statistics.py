"""Weights, intervals, p-values and gates, against scipy and by hand; no Spark."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from platform_plugin.errors import ConfigError
from platform_plugin.evaluation.comparison import compare, holm, interval, p_value, verdict
from platform_plugin.evaluation.gates import failures, read_gates
from platform_plugin.evaluation.resampling import weights
from platform_plugin.evaluation.units import p_text

BETTER = {"macro_f1": "higher", "error_rate": "lower", "length": "neither"}


def keys(count: int, start: int = 0) -> np.ndarray:
    return np.random.default_rng(start).integers(-(2**63), 2**63 - 1, count)


def once(count: int) -> np.ndarray:
    return np.ones(count, dtype=np.int64)


def resampled(ours: np.ndarray, theirs: np.ndarray, count: int = 2000, seed: int = 1) -> np.ndarray:
    """Return the difference of two means over all rows, then over resamples, as a `Pass` makes it."""
    weighed = weights(keys(len(ours), seed), once(len(ours)), count)
    means = [np.concatenate([[x.mean()], weighed.T @ x / weighed.sum(axis=0)]) for x in (ours, theirs)]
    return means[0] - means[1]


def test_weights_are_poisson() -> None:
    made = weights(keys(4000), once(4000), 50)
    counts = np.bincount(made.astype(int).ravel(), minlength=8)[:8]
    wanted = stats.poisson(1).pmf(np.arange(8)) * made.size
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > 1e-3
    assert abs(np.corrcoef(made[:, 0], made[:, 1])[0, 1]) < 0.06
    assert abs(np.corrcoef(made[0], made[1])[0, 1]) < 0.5
    neighbours = weights(np.arange(4000), once(4000), 4)  # keys as people number them
    assert abs(np.corrcoef(neighbours[:-1, 0], neighbours[1:, 0])[0, 1]) < 0.06


def test_weights_depend_on_the_key_alone() -> None:
    seeds = keys(100)
    order = np.random.default_rng(2).permutation(100)
    whole = weights(seeds, once(100), 30)
    assert np.array_equal(weights(seeds[order], once(100), 30), whole[order])
    assert np.array_equal(weights(seeds[7:8], once(1), 30), whole[7:8])
    assert np.array_equal(weights(seeds, once(100), 10), whole[:, :10])


def test_equal_rows_weigh_what_as_many_rows_do() -> None:
    made = weights(keys(500), np.full(500, 9), 200)
    assert made.mean() == pytest.approx(9, abs=0.05)
    assert made.var() == pytest.approx(9, rel=0.05)
    assert np.array_equal(made, weights(keys(500), np.full(500, 9), 200))


@pytest.mark.parametrize(("rows", "wanted"), [(1, "no evidence"), (5, "no evidence"), (8, "better")])
def test_few_rows_that_are_all_alike_are_no_evidence(rows: int, wanted: str) -> None:
    ones, zeros = np.ones(1001), np.zeros(1001)
    metrics = [("accuracy", "higher", True)]
    (found,) = compare("new", "old", metrics, [(ones, zeros)], [(rows, 0, 0)], rows)
    assert found.p == pytest.approx(stats.binomtest(rows, rows).pvalue)
    assert found.verdict == wanted
    # Of a metric whose rows are not counted, as many may differ as there are.
    (macro,) = compare("new", "old", metrics, [(ones, zeros)], [None], rows)
    assert macro.p == found.p


@pytest.mark.parametrize("hits", [0, 231])
def test_interval_of_rows_that_are_all_alike_is_the_exact_one(hits: int) -> None:
    value = hits / 231
    wanted = stats.binomtest(hits, 231).proportion_ci(0.95, "exact")
    found = interval(np.full(101, value), 231)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high))
    assert math.isnan(interval(np.full(101, value)).low), "no share"
    assert math.isnan(interval(np.full(1, value), 231).low), "no resamples were asked for"
    assert math.isnan(interval(np.full(101, 0.5), 231).low)


def test_interval_and_p_are_those_of_scipy() -> None:
    chance = np.random.default_rng(11)
    theirs = (chance.random(400) < 0.6).astype(float)
    ours = np.where(chance.random(400) < 0.25, (chance.random(400) < 0.9).astype(float), theirs)
    differences = resampled(ours, theirs, 4000)
    found = interval(differences)
    wanted = stats.bootstrap(
        (ours - theirs,), np.mean, n_resamples=4000, method="percentile", random_state=np.random.default_rng(0)
    )
    assert found.value == pytest.approx((ours - theirs).mean())
    width = wanted.confidence_interval.high - wanted.confidence_interval.low
    assert found.low == pytest.approx(wanted.confidence_interval.low, abs=0.08 * width)
    assert found.high == pytest.approx(wanted.confidence_interval.high, abs=0.08 * width)


@pytest.mark.parametrize("shift", [0.0, 0.03, 0.06, 0.1])
def test_p_value_is_near_that_of_a_paired_t_test(shift: float) -> None:
    chance = np.random.default_rng(5)
    theirs = chance.normal(0.5, 0.2, 300)
    ours = theirs + chance.normal(shift, 0.4, 300)
    wanted = stats.ttest_rel(ours, theirs).pvalue
    assert p_value(resampled(ours, theirs, 4000)) == pytest.approx(wanted, abs=0.03)


def test_p_value_of_no_difference_is_spread_evenly() -> None:
    chance = np.random.default_rng(9)
    found = []
    for trial in range(150):
        theirs, ours = (chance.random((2, 120)) < 0.5).astype(float)
        found.append(p_value(resampled(ours, theirs, 400, trial)))
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    assert np.mean(np.array(found) < 0.05) < 0.12


def test_p_value_where_nothing_differs_or_nothing_is_known() -> None:
    assert p_value(np.zeros(101)) == 1.0
    assert math.isnan(p_value(np.array([np.nan, 1.0])))
    assert math.isnan(p_value(np.array([0.5])))
    assert p_value(np.array([0.1, *[0.1] * 99])) == pytest.approx(1 / 100)


def test_holm_is_that_of_the_book() -> None:
    # Holm (1979), the example of many textbooks: 0.01, 0.02, 0.03, 0.04 -> 0.04, 0.06, 0.06, 0.06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    with_gap = holm([0.01, math.nan, 0.04])
    assert with_gap[0] == pytest.approx(0.02)
    assert math.isnan(with_gap[1])
    assert with_gap[2] == pytest.approx(0.04)
    # Bonferroni is never kinder.
    p = np.random.default_rng(4).random(12)
    assert (np.array(holm(list(p))) <= np.minimum(1, p * 12) + 1e-12).all()


@pytest.mark.parametrize(
    ("difference", "p", "better", "wanted"),
    [
        (0.1, 0.01, "higher", "better"),
        (-0.1, 0.01, "higher", "worse"),
        (0.1, 0.01, "lower", "worse"),
        (-0.1, 0.01, "lower", "better"),
        (0.1, 0.01, "neither", "different"),
        (0.1, 0.06, "higher", "no evidence"),
        (0.1, math.nan, "higher", "no evidence"),
        (0.0, 0.0, "higher", "no evidence"),
    ],
)
def test_verdict(difference: float, p: float, better: str, wanted: str) -> None:
    assert verdict(difference, p, better) == wanted


def test_comparison_corrects_over_the_metrics() -> None:
    chance = np.random.default_rng(3)
    far = np.concatenate([[1.0], chance.normal(1.0, 0.1, 999)])
    near = np.concatenate([[0.2], chance.normal(0.2, 0.095, 999)])
    zero = np.zeros(1000)
    metrics = [("far", "higher", True), ("near", "higher", True), ("load", "lower", False)]
    values, pairs = [(far, zero), (near, zero), (far, zero)], [(30, 2, 10), (10, 1, 10), (90, 0, 0)]
    a, b, c = compare("new", "old", metrics, values, pairs, 100)
    assert (a.p, a.p_holm) == (0.001, 0.002)
    assert a.verdict == "better"
    assert b.p_holm == b.p > 0.01
    assert (a.wins, a.ties, a.losses) == (30, 2, 10)
    assert (a.least, b.least) == (True, False)
    # Resamples without a value can show nothing.
    (some,) = compare("new", "old", metrics[:1], [(np.where(np.arange(1000) < 500, far, np.nan), zero)], pairs[:1], 100)
    assert (some.p, some.least) == (0.002, True)
    assert (p_text(a), p_text(b), p_text(c)) == ("\u2264 0.002", f"{b.p:.3f}", "")
    # What is not tested is told, and takes no part in the correction.
    assert (c.verdict, c.difference.value, c.wins) == ("not tested", 1.0, None)
    assert all(map(math.isnan, (c.p, c.p_holm, c.difference.low)))


@pytest.mark.parametrize(
    ("require", "value", "passes"),
    [
        ({"macro_f1": 0.6}, 0.6, True),
        ({"macro_f1": 0.6}, 0.59, False),
        ({"error_rate": 0.01}, 0.01, True),
        ({"error_rate": 0.01}, 0.02, False),
        ({"error_rate": "<0.01"}, 0.01, False),
        ({"error_rate": " < 1e-2 "}, 0.005, True),
        ({"length": ">=10"}, 9.0, False),
        ({"macro_f1": 0.0}, math.nan, False),
        ({"macro_f1": ">constant"}, 0.25, False),
        ({"macro_f1": ">= constant"}, 0.25, True),
    ],
)
def test_gate(require: dict[str, float | str], value: float, passes: bool) -> None:
    (name,) = require
    gates, values = read_gates(require, BETTER, ["macro_f1"]), {"model": {**dict.fromkeys(BETTER, 0.0), name: value}}
    found = failures(gates, values, {"macro_f1": 0.25})
    assert failures(gates, values, {}) or "constant" not in str(gates[0]), "a constant that is not known is not met"
    assert (not found) is passes
    if found:
        assert found[0].startswith(f"model: {name} = ")


@pytest.mark.parametrize(
    ("require", "message"),
    [
        ({"macro_f2": 0.5}, "'macro_f2', which is not among the metrics.*Did you mean 'macro_f1'"),
        ({"error_rate": "=0.1"}, "is no condition"),
        ({"error_rate": "<a"}, "is no condition"),
        ({"error_rate": True}, "is no number"),
        ({"error_rate": None}, "is no number"),
        ({"length": 10}, "length has no better side"),
        ({"error_rate": "<constant"}, "error_rate does not compare with labels"),
    ],
)
def test_gate_that_cannot_be_read(require: dict[str, float | str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_gates(require, BETTER)
