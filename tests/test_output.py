from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import types as t

from platform_plugin.config import Ask
from platform_plugin.errors import ConfigError
from platform_plugin.output import MOST_ITEMS, example, fault, json_schema, split_reasoning, to_answer

EVERY = t.StructType(
    [
        t.StructField("text", t.StringType()),
        t.StructField("flag", t.BooleanType()),
        t.StructField("tiny", t.ByteType()),
        t.StructField("small", t.ShortType()),
        t.StructField("whole", t.IntegerType()),
        t.StructField("big", t.LongType()),
        t.StructField("single", t.FloatType()),
        t.StructField("real", t.DoubleType()),
        t.StructField("money", t.DecimalType(6, 2)),
        t.StructField("share", t.DecimalType(1, 1)),
        t.StructField("count", t.DecimalType(38, 0)),
        t.StructField("day", t.DateType()),
        t.StructField("moment", t.TimestampType()),
        t.StructField("wall_clock", t.TimestampNTZType()),
        t.StructField("tags", t.ArrayType(t.StructType([t.StructField('a "b"', t.ArrayType(t.StringType()))]))),
    ]
).jsonValue()
MARKS = ("<think>", "</think>")


def accepts(kind: Any, text: str) -> bool:
    """Return whether the grammar that vLLM decodes with lets `text` through."""
    xgrammar = pytest.importorskip("xgrammar", reason="xgrammar is not installed: it comes with vLLM")
    from xgrammar.testing import _is_grammar_accept_string

    grammar = xgrammar.Grammar.from_json_schema(json.dumps(json_schema(kind)))
    return bool(_is_grammar_accept_string(grammar, text))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("byte", ["-128", "127", "0"], ["128", "-129", "1.0", "1e1", "true", '"1"']),
        ("long", ["9223372036854775807", "-9223372036854775808"], ["9223372036854775808", "9" * 400]),
        ("decimal(6,2)", ["9999.99", "-0.5", "12"], ["10000", "-10000.5", "1e5", '"1"']),
        ("decimal(38,38)", ["0.999999", "-0.5", "0"], ["1", "-1", "1.0"]),
        ("decimal(20,2)", ["999999999999999000", "-12.5"], ["1000000000000000000", "-1000000000000000000"]),
        ("decimal(2,0)", ["99", "-99"], ["100", "99.9", "-99.5"]),
        ("double", ["1", "-1.5e300"], ["true", "NaN", '"1"']),
        ("boolean", ["true"], ["1", '"true"', "null"]),
        ("date", ['"2024-02-29"', '"9999-12-31"'], ['"2024-02-30"', '"2024-13-01"', '"20240101"', '"0000-01-01"']),
        (
            "timestamp",
            ['"2024-01-31T23:59:59Z"', '"2024-01-31T10:00:00+05:30"'],
            ['"2024-01-31T24:00:00Z"', '"2024-01-31"', '"2024-01-31T10:00:00"'],
        ),
        ("timestamp_ntz", ['"2024-01-31T10:00:00"'], ['"2024-01-31T10:00:00Z"', '"2024-01-31T10:60:00"']),
        ("string", ['"a\\"b\\n"', '"\u65e5"'], ["1", "null"]),
    ],
)
def test_decoding_and_reading_hold_to_the_same_values(kind: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if fault(text, kind) or not accepts(kind, text)] == []
    assert [text for text in bad if not fault(text, kind) or accepts(kind, text)] == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"2023-02-29"', "date"),
        ("9999.995", "decimal(6,2)"),
        ("0." + "9" * 39, "decimal(38,38)"),
        ("1e39", "float"),
        ("1e309", "double"),
        ("9" * 400, "double"),
        ("1e9999999999999999999", "double"),
        ("[" * 100_000, "string"),
        ("", "string"),
        ("{", "string"),
    ],
)
def test_value_that_spark_would_make_null_is_a_fault(text: str, kind: str) -> None:
    assert fault(text, kind)


@pytest.mark.parametrize("precision", [1, 6, 15, 16, 17, 20, 38])
def test_bounds_of_a_decimal_pass_the_check(precision: int) -> None:
    for scale in range(precision + 1):
        kind = f"decimal({precision},{scale})"
        bounds = json_schema(kind)
        assert [fault(json.dumps(bounds[name]), kind) for name in ("minimum", "maximum")] == [None, None], kind


@pytest.mark.parametrize("text", ["9999.994", "1e-999999999", "0.004", "0e99", "-9999.99", "1" * 4 + "." + "1" * 60])
def test_digits_behind_the_scale_are_no_fault(text: str) -> None:
    assert fault(text, "decimal(6,2)") is None


@pytest.mark.parametrize("seed", range(20))
def test_example_is_of_its_type_and_could_be_decoded(seed: int) -> None:
    value = example(EVERY, random.Random(seed))
    assert value == example(EVERY, random.Random(seed))
    assert fault(json.dumps(value), EVERY) is None
    assert accepts(EVERY, json.dumps(value))


def test_arrays_end() -> None:
    kind = {"type": "array", "elementType": "boolean", "containsNull": True}
    assert accepts(kind, json.dumps([True] * MOST_ITEMS))
    assert not accepts(kind, json.dumps([True] * (MOST_ITEMS + 1)))


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        (t.StructType().add("a", t.BinaryType()), r"outputSchema\.a is binary.*it takes string"),
        (t.StructType().add("a", t.ArrayType(t.MapType(t.StringType(), t.LongType()))), r"outputSchema\.a\[\] is map"),
        (t.StructType().add("a", t.StructType()), r"outputSchema\.a is a struct without fields"),
        (t.StructType().add("a", "long").add("a", "string"), r"two fields of one name \(a, a\)"),
    ],
)
def test_type_that_decoding_cannot_hold_to_is_refused(ddl: t.StructType, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        json_schema(ddl.jsonValue())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"tags": [], "day": 1}', "answer has no text, flag"),
        ("[]", "answer is not an object"),
        ('{"a": [{"b": 1}, {"b": "x"}]}', "answer.a[1].b='x' is no long"),
        ('{"a": 1}', "answer.a is not an array"),
    ],
)
def test_fault_names_the_place(text: str, words: str) -> None:
    nested = t.StructType().add("a", t.ArrayType(t.StructType().add("b", t.LongType()))).jsonValue()
    assert words in str(fault(text, EVERY if "tags" in text else nested))


@pytest.mark.parametrize(
    ("text", "reasoning", "answer"),
    [
        ("<think>\nwhy?\n</think>\n\nbecause", "why?", "because"),
        ("So <think>a</think> b <think>c</think> d", "a\n\nc", "So  b  d"),
        ("<think>never ends", "never ends", ""),
        ("<think></think>yes", "", "yes"),
        (" plain \n", None, " plain \n"),
        ("stray </think> mark", None, "stray </think> mark"),
    ],
)
def test_reasoning_is_split_from_the_answer(text: str, reasoning: str | None, answer: str) -> None:
    assert split_reasoning(text, MARKS) == (reasoning, answer)


def test_reasoning_that_was_cut_leaves_an_empty_answer() -> None:
    cut = to_answer(["<think>on and on"], ["length"], Ask(), MARKS)
    assert cut == {"finish_reason": "length", "reasoning": "on and on", "output": ""}


def test_reasoning_of_many_answers_is_kept_together() -> None:
    two = Ask(sampling={"n": 2, "temperature": 1.0})
    row = to_answer(["<think>a</think>b", "c"], ["stop", "length"], two, MARKS)
    assert row == {"finish_reason": "length", "reasoning": "a", "output": ["b", "c"]}


def test_shaped_answer_is_not_searched_for_reasoning() -> None:
    row = to_answer(["<think>a</think>"], ["stop"], Ask(choices=("<think>a</think>",)), MARKS)
    assert row == {"finish_reason": "stop", "output": "<think>a</think>"}


@pytest.mark.parametrize(
    ("texts", "reasons", "kind", "raw"),
    [
        (["yes", "maybe"], ["stop", "stop"], "OutputUnparsable", "maybe"),
        (["yes", "ye"], ["stop", "length"], "OutputCut", "ye"),
        (["no", "yes"], ["length", "stop"], "OutputCut", "no"),
    ],
)
def test_one_bad_answer_of_many_fails_the_row(texts: list[str], reasons: list[str], kind: str, raw: str) -> None:
    row = to_answer(texts, reasons, Ask(choices=("yes", "no"), sampling={"n": 2}))
    assert (row["error"]["type"], row["raw_text"], "output" in row) == (kind, raw, False)
