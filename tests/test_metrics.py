"""Metrics against the libraries that define them, and what every metric must do."""

from __future__ import annotations

import pickle
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rouge_score import rouge_scorer
from sacrebleu.metrics import BLEU, CHRF
from sklearn import metrics as sk

from platform_plugin.errors import ConfigError, SchemaError, UnknownPluginError
from platform_plugin.metrics import COLUMNS, Facts, find_metrics, load_metric

WORDS = ["the", "a", "card", "cards", "payment", "Payment,", "top-up", "arrived!", "not", "12.50", "Straße", "中文"]
CLASSES = ("atm", "card", "top up", "transfer")
NAMES = find_metrics()


def batch(**columns: list[Any]) -> pa.Table:
    """Return a batch with these columns; nothing failed, and nothing else is known."""
    rows = len(next(iter(columns.values())))
    filled = {"failed": [p is None for p in columns.get("prediction", [""] * rows)], **columns}
    return pa.table({f.name: pa.array(filled.get(f.name, [None] * rows), f.type) for f in COLUMNS})


def value(name: str, table: pa.Table, facts: Facts | None = None, **options: Any) -> float:
    metric = load_metric(name, options).bind(facts or Facts(classes=CLASSES, model="smollm2-135m"))
    return float(metric.finish(metric.statistics(table).sum(axis=0)))


@pytest.fixture(scope="module")
def sentences() -> pa.Table:
    """Two hundred pairs of texts; some equal, some without a word, some without a prediction."""
    chance = random.Random(7)

    def text() -> str:
        return " ".join(chance.choice(WORDS) for _ in range(chance.randint(0, 12)))

    labels = [text() for _ in range(200)]
    said = [chance.choice([label, text(), f"{label} {text()}", None]) for label in labels]
    return batch(label=labels, prediction=said)


@pytest.fixture(scope="module")
def answers() -> pa.Table:
    """Five hundred labels and predictions of four classes; some predictions are none of them, or none at all."""
    chance = random.Random(3)
    labels = [chance.choice(CLASSES) for _ in range(500)]
    said = [chance.choice([label, label, *CLASSES, "I think: card", None]) for label in labels]
    return batch(label=labels, prediction=said)


@pytest.mark.parametrize("name", ["rouge1", "rouge2", "rougeL"])
def test_rouge_is_that_of_rouge_score(name: str, sentences: pa.Table) -> None:
    scorer = rouge_scorer.RougeScorer([name])
    pairs = zip(sentences["label"].to_pylist(), sentences["prediction"].to_pylist(), strict=True)
    wanted = np.mean([scorer.score(label, said or "")[name].fmeasure for label, said in pairs])
    assert value(name, sentences) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"tokenize": "intl", "lowercase": True}, {"tokenize": "char"}])
def test_bleu_is_that_of_sacrebleu(sentences: pa.Table, options: dict[str, Any]) -> None:
    said = [text or "" for text in sentences["prediction"].to_pylist()]
    wanted = BLEU(**options).corpus_score(said, [sentences["label"].to_pylist()]).score
    assert value("bleu", sentences, **options) == pytest.approx(wanted, abs=1e-9)


def test_bleu_of_no_common_pair_of_words_is_smoothed_as_sacrebleu_does() -> None:
    table = batch(label=["one two three four five"], prediction=["five one three"])
    wanted = BLEU().corpus_score(["five one three"], [["one two three four five"]]).score
    assert value("bleu", table) == pytest.approx(wanted, abs=1e-9)


def test_chrf_is_that_of_sacrebleu(sentences: pa.Table) -> None:
    said = [text or "" for text in sentences["prediction"].to_pylist()]
    wanted = CHRF().corpus_score(said, [sentences["label"].to_pylist()]).score
    assert value("chrf", sentences) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(("label", "said"), [("ab", "abc"), ("abcdefgh", "xyz"), ("a", ""), ("abc", "abc")])
def test_chrf_of_short_texts(label: str, said: str) -> None:
    wanted = CHRF().corpus_score([said], [[label]]).score
    assert value("chrf", batch(label=[label], prediction=[said])) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(("name", "average"), [("macro_f1", "macro"), ("weighted_f1", "weighted")])
def test_f1_is_that_of_sklearn(name: str, average: str, answers: pa.Table) -> None:
    said = [text or "" for text in answers["prediction"].to_pylist()]
    wanted = sk.f1_score(answers["label"].to_pylist(), said, labels=list(CLASSES), average=average, zero_division=0)
    assert value(name, answers) == pytest.approx(wanted, abs=1e-12)


def test_accuracy_is_that_of_sklearn(answers: pa.Table) -> None:
    said = [text or "" for text in answers["prediction"].to_pylist()]
    assert value("accuracy", answers) == pytest.approx(sk.accuracy_score(answers["label"].to_pylist(), said))


def test_kappa_is_that_of_sklearn() -> None:
    chance = random.Random(5)
    people = [chance.randint(1, 5) for _ in range(300)]
    judge = [chance.choice([p, p, chance.randint(1, 5)]) for p in people]
    wanted = sk.cohen_kappa_score(people, judge)
    human = [f"{p}" if i % 2 else f"{p}.0" for i, p in enumerate(people)]  # integers, or doubles as Spark writes them
    table = batch(human=[*human, "3", None], judge=[*map(float, judge), None, 2.0])
    assert value("judge_kappa", table) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("said", "label", "wanted"),
    [
        ("The cat sat.", "a cat sat", 1.0),
        ("the cat", "cat sat on mat", 2 / 5),
        ("cat cat", "cat", 2 / 3),
        ("dog", "cat", 0.0),
        ("", "", 1.0),
        ("the", "a", 1.0),
        ("", "cat", 0.0),
        (None, "cat", 0.0),
    ],
)
def test_token_f1_is_that_of_squad(said: str | None, label: str, wanted: float) -> None:
    assert value("token_f1", batch(label=[label], prediction=[said])) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({}, 1 / 4), ({"ignore_case": True}, 2 / 4), ({"ignore_case": True, "ignore_punctuation": True}, 3 / 4)],
)
def test_exact_match(options: dict[str, Any], wanted: float) -> None:
    table = batch(label=["Card", "Card", "Card", "Card", None], prediction=["Card", "card", "[card].", None, "x"])
    assert value("exact_match", table, **options) == wanted


def test_json_validity_holds_answers_to_the_schema() -> None:
    said = ['{"n": 1}', '{"n": "1"}', "[1]", "NaN", "{", None, '{"n": 2} ']
    assert value("json_validity", batch(prediction=said)) == pytest.approx(4 / 7)
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert value("json_validity", batch(prediction=said), schema=shape) == pytest.approx(2 / 7)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I\u2019m sorry, I am unable to discuss this.", True),
        ("As an AI language model, I have no opinions.", True),
        ("I cannot provide that information.", True),
        ("I'm sorry to hear that your card was lost. We sent a new one.", False),
        ("You cannot withdraw more than 300 a day.", False),
        ("card_arrival", False),
    ],
)
def test_refusals_are_told_from_answers(text: str, refused: bool) -> None:
    assert value("refusal_rate", batch(prediction=[text])) == float(refused)


def test_refusals_by_own_patterns() -> None:
    assert (
        value("refusal_rate", batch(prediction=["Das darf ich nicht.", "Ja", None]), patterns=["darf ich nicht"]) == 0.5
    )


def test_tokens_latency_and_cost_leave_out_what_was_not_answered() -> None:
    table = batch(
        prediction=["a", "b", None],
        prompt_tokens=[100, 300, None],
        cached_tokens=[0, 200, None],
        output_tokens=[10, 30, None],
        seconds=[1.0, 3.0, None],
    )
    assert value("tokens", table) == 220
    assert value("latency", table) == 2
    assert value("tokens_per_s", table) == 10
    assert value("error_rate", table) == pytest.approx(1 / 3)
    assert value("length", table) == 1
    # 0.01, 0.005 and 0.02 dollars a million tokens: of 100 and 10, and of 100, 200 cached and 30.
    first, second = 100 * 0.01 + 10 * 0.02, 100 * 0.01 + 200 * 0.005 + 30 * 0.02
    assert value("cost", table) == pytest.approx((first + second) / 2 / 1000)


@pytest.mark.parametrize("name", NAMES)
def test_metric_is_made_of_sums(name: str, sentences: pa.Table, answers: pa.Table) -> None:
    table = (answers if name in ("macro_f1", "weighted_f1", "accuracy") else sentences).slice(0, 90)
    known = {
        "prompt_tokens": pa.array(range(90), pa.int64()),
        "cached_tokens": pa.array([0] * 90, pa.int64()),
        "output_tokens": pa.array([None, *range(1, 90)], pa.int64()),
        "seconds": pa.array(np.linspace(0.1, 2, 90)),
        "judge": pa.array([float(1 + i % 5) for i in range(90)]),
        "human": pa.array([str(1 + i % 4) for i in range(90)]),
    }
    if name == "json_validity":
        known["prediction"] = pa.array(["[1]"] * 20 + ["["] * 70)
    if name == "refusal_rate":
        known["prediction"] = pa.array(["I cannot help with that.", *["yes"] * 89])
    for column, values in known.items():
        table = table.set_column(table.schema.get_field_index(column), column, values)
    metric = pickle.loads(pickle.dumps(load_metric(name).bind(Facts(classes=CLASSES, model="smollm2-135m"))))
    whole = metric.statistics(table)
    assert whole.shape[0] == 90
    assert whole.dtype == np.float64
    assert np.isfinite(whole).all()
    parts = np.concatenate([metric.statistics(table.slice(start, 30)) for start in (0, 30, 60)])
    assert np.array_equal(whole, parts), "a row's statistics depend on the batch that it is in"
    both = metric.finish(np.stack([whole.sum(axis=0), whole[:31].sum(axis=0)]))
    assert both.shape == (2,)
    assert both[0] == metric.finish(whole.sum(axis=0))
    assert both[0] != both[1]
    assert metric.finish(whole).shape == (90,)
    assert np.isnan(metric.finish(np.zeros_like(whole[0])))
    assert metric.better in ("higher", "lower", "neither")


@pytest.mark.parametrize("name", NAMES)
def test_metric_takes_an_empty_batch(name: str) -> None:
    empty = batch(label=["x"], prediction=["x"]).slice(0, 0)
    assert load_metric(name).bind(Facts(classes=CLASSES, model="smollm2-135m")).statistics(empty).shape[0] == 0


def test_bad_input_is_refused_in_plain_words() -> None:
    with pytest.raises(UnknownPluginError, match=r"metric 'macro-f1' is not known.*Did you mean 'macro_f1'"):
        load_metric("macro-f1")
    with pytest.raises(ConfigError, match=r"json_validity.*no JSON schema"):
        load_metric("json_validity", {"schema": {"type": "objekt"}})
    with pytest.raises(ConfigError, match=r"metric 'chrf' with .*beta.*takes no arguments"):
        load_metric("chrf", {"beta": 3})
    with pytest.raises(ConfigError, match=r"no model 'smollm2'.*Did you mean 'smollm2-135m'"):
        load_metric("cost").bind(Facts(model="smollm2"))
    with pytest.raises(ConfigError, match="which model made a prediction column"):
        load_metric("cost").bind(Facts())
    with pytest.raises(ConfigError, match="more than 1000 distinct values"):
        load_metric("macro_f1").bind(Facts(classes=tuple(map(str, range(1001)))))
    with pytest.raises(ConfigError, match="tokenize='13b' is not one of"):
        load_metric("bleu", {"tokenize": "13b"})
    with pytest.raises(ConfigError, match="no regular expression"):
        load_metric("refusal_rate", {"patterns": ["("]})


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [
        ("accuracy", {"prediction": "text"}, "name the column: label="),
        ("accuracy", {"prediction": "struct", "label": "text"}, "prediction of text or number.*name a field of it"),
        ("rouge1", {"prediction": "text", "label": "number"}, "label of text, not number"),
        ("latency", {"prediction": "text"}, "seconds of each row"),
        ("judge_score", {"prediction": "text"}, "judge=LLMJudge"),
    ],
)
def test_metric_that_does_not_fit_the_columns_says_so(name: str, kinds: dict[str, str], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        load_metric(name).check(kinds)


def test_price_table_that_is_wrong_is_named(tmp_path: Any) -> None:
    path = tmp_path / "prices.yaml"
    for text, message in [
        ("currency: USD", "per_million_tokens"),
        ("currency: USD\nper_million_tokens: {m: {input: -1, output: 2}}", "m.input"),
        ("[", "cannot be read"),
    ]:
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_metric("cost", {"model": "m", "prices": str(path)}).bind(Facts())
    with pytest.raises(ConfigError, match="cannot be read"):
        load_metric("cost", {"model": "m", "prices": str(tmp_path / "none")}).bind(Facts())
