from __future__ import annotations

import datetime
import decimal
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

from platform_plugin.errors import ConfigError, SchemaError
from platform_plugin.template import PromptTemplate

FIELDS = {
    "text": ("string", st.text(st.characters(exclude_categories=["Cs"]))),
    "flag": ("boolean", st.booleans()),
    "byte": ("tinyint", st.integers(-(2**7), 2**7 - 1)),
    "short": ("smallint", st.integers(-(2**15), 2**15 - 1)),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "long": ("bigint", st.integers(-(2**63), 2**63 - 1)),
    "money": ("decimal(12,2)", st.decimals(-(10**9), 10**9, places=2)),
    "fine": ("decimal(38,18)", st.decimals(-1, 1, places=18)),
    "count": ("decimal(20,0)", st.decimals(-(10**15), 10**15, places=0)),
    "double": ("double", st.floats()),
    "date": ("date", st.dates()),
    "time": ("timestamp_ntz", st.datetimes()),
}
DDL = ", ".join(f"{name} {kind}" for name, (kind, _) in FIELDS.items())
ROWS = st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()})
TEMPLATE = PromptTemplate.parse("".join(f"{name}=[{{{name}}}] " for name in FIELDS))


def parsed(ddl: str) -> StructType:
    schema = _parse_datatype_string(ddl)
    assert isinstance(schema, StructType)
    return schema


def spark_texts(
    spark: SparkSession, template: PromptTemplate, ddl: str, rows: list[dict[str, Any]]
) -> list[str | None]:
    schema = parsed(ddl)
    frame = spark.createDataFrame([tuple(row[n] for n in schema.names) for row in rows], schema)
    return [row[0] for row in frame.select(template.column(frame.schema)).collect()]


def test_both_renderers_agree_on_every_type(spark: SparkSession) -> None:
    rows: list[dict[str, Any]] = []

    # Spark is too slow for a job an example: hypothesis only makes the rows, all are compared at
    # once.
    @settings(
        max_examples=600,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(ROWS)
    def collect(row: dict[str, Any]) -> None:
        rows.append(row)

    collect()
    assert spark_texts(spark, TEMPLATE, DDL, rows) == [TEMPLATE.render(row) for row in rows]


def test_both_renderers_agree_on_hard_doubles(spark: SparkSession) -> None:
    powers = [float(f"1e{k}") for k in range(-323, 309)]
    hard = [math.nextafter(p, to) for p in powers for to in (0, math.inf)] + powers
    hard += [
        2e23,
        0.1 + 0.2,
        5e-324,
        sys.float_info.max,
        sys.float_info.min,
        2.0**53,
        2.0**52 + 0.5,
    ]
    hard += [1234567.890123455, 1.234567890123455e-300, 9.9999999999999995e-5, -0.0, -1e-7]
    template = PromptTemplate.parse("{x}")
    rows = [{"x": x} for x in hard]
    assert spark_texts(spark, template, "x double", rows) == [template.render(row) for row in rows]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (0.1 + 0.2, "0.3"),
        (1e7, "10000000.0"),
        (-2.5, "-2.5"),
        (-0.0, "0.0"),
        (1234567890123457.0, "1234567890123457.0"),
        (99999999999999.99, "100000000000000.0"),
        (-9809616205889871.0, "-9809616205889870.0"),
        (0.00012, "0.00012"),
        (0.000012, "1.2e-05"),
        (1e22, "1e+22"),
        (sys.float_info.max, "1.79769313486232e+308"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (True, "true"),
        (7, "7"),
        (decimal.Decimal("12.50"), "12.50"),
        (decimal.Decimal("0E-18"), "0.000000000000000000"),
        (datetime.date(1600, 1, 5), "1600-01-05"),
        (datetime.datetime(2024, 3, 10, 2, 30), "2024-03-10 02:30:00"),
        (datetime.datetime(2024, 3, 10, 2, 30, 0, 120000), "2024-03-10 02:30:00.12"),
    ],
)
def test_text_of_a_value(value: Any, text: str) -> None:
    assert PromptTemplate.parse("{x}").render({"x": value}) == text


def test_doubles_of_up_to_15_digits_read_as_in_python() -> None:
    template = PromptTemplate.parse("{x}")
    values = [n / 1000 for n in range(-5000, 5000)] + [n * 1.25e-9 for n in range(1, 100)]
    short = [x for x in values if float(f"{x:.15g}") == x]
    assert len(short) > 10_000
    assert [template.render({"x": x}) for x in short] == [repr(x) for x in short]


def test_null_field_makes_a_null_prompt_on_both_sides(spark: SparkSession) -> None:
    rows = [{**dict.fromkeys(FIELDS), "text": "a"}]
    assert spark_texts(spark, TEMPLATE, DDL, rows) == [None]
    assert TEMPLATE.render(rows[0]) is None


def test_text_does_not_depend_on_ansi_mode(spark: SparkSession) -> None:
    template = PromptTemplate.parse("{d} {x} {b}")
    row = {"d": decimal.Decimal("0E-18"), "x": 1e-9, "b": True}
    spark.conf.set("spark.sql.ansi.enabled", "true")
    try:
        texts = spark_texts(spark, template, "d decimal(38,18), x double, b boolean", [row])
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert texts == [template.render(row)] == ["0.000000000000000000 1e-09 true"]


def test_braces_and_odd_column_names(spark: SparkSession) -> None:
    template = PromptTemplate.parse("{{{a.b}}} {c d}|{e`f} {a.b} {{}}\n'%s'")
    assert template.fields == ("a.b", "c d", "e`f")
    row = {"a.b": "x", "c d": "{y}", "e`f": "$1\\"}
    assert template.render(row) == "{x} {y}|$1\\ x {}\n'%s'"
    ddl = "`a.b` string, `c d` string, `e``f` string"
    assert spark_texts(spark, template, ddl, [row]) == [template.render(row)]


def test_field_is_found_without_regard_to_case(spark: SparkSession) -> None:
    template = PromptTemplate.parse("{NAME}")
    assert spark_texts(spark, template, "name string", [{"name": "x"}]) == ["x"]
    assert template.render({"name": "x"}) == "x"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello {name", "lone '{' at line 1, column 7"),
        ("Hello\nto } me {a}", "lone '}' at line 2, column 4"),
        ("a {} b", "empty field at line 1, column 3"),
        ("a {  } b", "empty field at line 1, column 3"),
        ("{x!r}", "has a conversion ('!r')"),
        ("{price:.2f}", "has a format (':.2f')"),
        ("{a{b}}", "lone '{' at line 1, column 1"),
        ("no field {{x}}", "has no field"),
        ("", "has no field"),
        (7, "is int"),
    ],
)
def test_template_that_cannot_be_parsed(text: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PromptTemplate.parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("x timestamp", "date_format"),
        ("x float", "decimal(p, s)"),
        ("x binary", "base64"),
        ("x array<string>", "to_json"),
        ("x struct<a:int>", "to_json"),
        ("x map<string,int>", "to_json"),
        ("x interval day to second", "string column"),
        ("xx string", "Did you mean 'xx'?"),
    ],
)
def test_column_that_a_template_does_not_take(ddl: str, words: str, spark: SparkSession) -> None:
    with pytest.raises(SchemaError) as caught:
        PromptTemplate.parse("{x}").check(parsed(ddl))
    assert "'x'" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"x": b"a"}, "is a bytes"),
        ({"x": ["a"]}, "is a list"),
        ({"x": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)}, "with a time zone"),
        ({"x": decimal.Decimal("NaN")}, "is a Decimal"),
        ({"xs": 1}, "Did you mean 'xs'?"),
        ({}, "has nothing"),
    ],
)
def test_row_that_a_template_does_not_take(row: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        PromptTemplate.parse("{x}").render(row)
    assert words in str(caught.value)


def test_rendering_online_loads_no_spark() -> None:
    code = (
        "import sys; from platform_plugin.template import PromptTemplate as T; "
        "assert T.parse('{a}').render({'a': 1.5}) == '1.5'; print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
