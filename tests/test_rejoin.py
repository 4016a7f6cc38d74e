from __future__ import annotations

import datetime
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.ml.linalg import Matrices, MatrixUDT, Vectors, VectorUDT
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    IntegerType,
    NullType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_string,
)

from platform_plugin.rejoin import rejoin
from platform_plugin.requests import Requests, Source
from platform_plugin.schema import DETAILS_TYPE, ERROR_TYPE, answer_type

INPUT = Source(input_col="message")
STRING = StringType()
UPPER = "upper(prompt)"


def answered(requests: DataFrame, output: str = UPPER, kind: DataType = STRING, bad: str = "false") -> DataFrame:
    """Answer as an engine would; strings are fetched from a tiny range, as a bridge does it."""
    schema = answer_type(kind)
    frame = requests.selectExpr(
        "key",
        f"CASE WHEN {bad} THEN null ELSE {output} END AS output",
        f"CASE WHEN {bad} THEN named_struct('stage', 'infer', 'type', 'Refused', 'message', "
        "prompt, 'retryable', true) END AS error",
        "'stop' AS finish_reason",
        "3L AS prompt_tokens",
        "0L AS cached_tokens",
        "2L AS output_tokens",
        "false AS truncated",
        "0.5D AS seconds",
    )
    if not isinstance(kind, StringType):
        return frame
    rows = [row.asDict(recursive=True) for row in frame.collect()]
    table = pa.Table.from_pylist(rows, schema=to_arrow_schema(schema))

    def fetch(_: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        yield from table.to_batches()

    return requests.sparkSession.range(0, 1, 1, 1).mapInArrow(fetch, schema)


def joined(
    requests: Requests,
    answers: DataFrame,
    *,
    details_col: str | None = None,
    output_type: DataType = STRING,
    handle_invalid: Literal["keep", "skip"] = "keep",
    answers_bytes: int = 1000,
) -> DataFrame:
    return rejoin(
        requests.keyed,
        answers,
        output_col="prediction",
        error_col="prediction_error",
        details_col=details_col,
        output_type=output_type,
        handle_invalid=handle_invalid,
        answers_bytes=answers_bytes,
    )


def some(spark: SparkSession, n: int = 200, partitions: int = 5) -> DataFrame:
    return spark.range(0, n, 1, partitions).selectExpr(
        "id", "CASE WHEN id % 4 = 0 THEN null ELSE 'p' || id % 7 END AS message"
    )


@pytest.fixture(scope="module")
def incomplete(spark: SparkSession) -> tuple[Requests, DataFrame]:
    """Requests, and the answers of all but one of them."""
    requests = Requests.build(some(spark), INPUT)
    return requests, answered(requests.frame).where("output != 'P3'")


@pytest.mark.parametrize("answers_bytes", [1000, 1 << 40], ids=["broadcast", "merge"])
@pytest.mark.parametrize("deduplicate", [True, False])
def test_every_row_gets_its_answer(answers_bytes: int, deduplicate: bool, adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(some(spark), INPUT, deduplicate=deduplicate)
    out = joined(requests, answered(requests.frame), answers_bytes=answers_bytes)
    rows = out.collect()
    assert out.columns == ["id", "message", "prediction", "prediction_error"]
    assert sorted(r["id"] for r in rows) == list(range(200))
    for row in rows:
        assert row["prediction"] == (row["message"] and row["message"].upper())
        assert (row["prediction_error"] is None) == (row["message"] is not None)


def test_bad_rows_carry_the_error_of_the_step_they_failed_in(spark: SparkSession) -> None:
    requests = Requests.build(some(spark, 8), INPUT)
    answers = answered(requests.frame, bad="prompt = 'p1'")
    out = joined(requests, answers, details_col="details")
    rows = {r["id"]: r for r in out.collect()}
    assert rows[0]["prediction_error"]["type"] == "NullPrompt"
    assert rows[0]["details"] is None
    assert rows[1]["prediction_error"].asDict() == {
        "stage": "infer",
        "type": "Refused",
        "message": "p1",
        "retryable": True,
    }
    assert rows[1]["prediction"] is None
    assert rows[2]["details"].asDict() == {
        "finish_reason": "stop",
        "prompt_tokens": 3,
        "cached_tokens": 0,
        "output_tokens": 2,
        "truncated": False,
        "seconds": 0.5,
        "reasoning": None,
        "raw_text": None,
    }
    assert out.schema["prediction_error"].dataType == ERROR_TYPE
    assert out.schema["details"].dataType == DETAILS_TYPE


def test_skip_leaves_out_bad_rows_of_both_steps(adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(some(spark, 8), INPUT)
    answers = answered(requests.frame, bad="prompt = 'p1'")
    out = joined(requests, answers, handle_invalid="skip")
    assert sorted(r["id"] for r in out.collect()) == [2, 3, 5, 6, 7]
    assert {r["prediction_error"] for r in out.collect()} == {None}


def every_type(spark: SparkSession) -> DataFrame:
    """Columns of every type beside the prompt, some named as our answers' columns are."""
    values: list[tuple[str, Any, Any, bool]] = [
        ("id", IntegerType(), 7, False),
        ("message", "string", "p", True),
        ("key", "string", "their own", True),
        ("output", "array<int>", [1, None], True),
        ("error", "map<string,array<double>>", {"a": [1.5, None]}, True),
        ("seconds", "map<int,string>", {1: None}, True),
        (
            "a.b c`d",
            "struct<x:struct<y:bigint>,z:map<date,binary>>",
            ((2**53 + 1,), {datetime.date(1905, 1, 1): b"\0\xff"}),
            True,
        ),
        ("dense", VectorUDT(), Vectors.dense([1.0, 2.0]), True),
        ("sparse", VectorUDT(), Vectors.sparse(9, {3: 1.0}), False),
        ("matrix", MatrixUDT(), Matrices.dense(1, 2, [3.0, 4.0]), True),
        ("decimal", "decimal(38,18)", Decimal("-12345678901234567890.123456789012345678"), True),
        ("stamp", "timestamp", datetime.datetime(1905, 3, 1, 12), True),
        ("ntz", "timestamp_ntz", datetime.datetime(1600, 2, 29, 1, 2, 3, 4), True),
        ("date", "date", datetime.date(1600, 2, 29), True),
        ("old", "date", datetime.date(1905, 1, 1), False),
        ("binary", "binary", b"\0\x01", True),
        ("day", "interval day to second", datetime.timedelta(days=-3, microseconds=5), True),
        ("void", NullType(), None, True),
        ("float", "float", 0.5, True),
        ("byte", "tinyint", -128, False),
        ("flag", "boolean", True, False),
    ]
    kinds = [_parse_datatype_string(kind) if isinstance(kind, str) else kind for _, kind, _, _ in values]
    schema = StructType([StructField(v[0], kind, v[3], {"note": v[0]}) for v, kind in zip(values, kinds, strict=True)])
    good = tuple(v[2] for v in values)
    nulls = tuple(None if v[3] else v[2] for v in values)
    return spark.createDataFrame([good, nulls, good], schema).selectExpr("*", "make_ym_interval(1, 2) AS ym")


@pytest.mark.parametrize("deduplicate", [True, False])
@pytest.mark.parametrize("answers_bytes", [1000, 1 << 40], ids=["broadcast", "merge"])
def test_columns_of_every_type_are_as_they_were(deduplicate: bool, answers_bytes: int, spark: SparkSession) -> None:
    df = every_type(spark)
    requests = Requests.build(df, INPUT, deduplicate=deduplicate)
    out = joined(requests, answered(requests.frame), answers_bytes=answers_bytes)
    assert out.schema.fields[: len(df.columns)] == df.schema.fields
    # PySpark cannot collect a year-month interval: compare its text.
    shown = df.withColumn("ym", F.col("ym").cast("string")).collect()
    kept = [F.col("`" + c.replace("`", "``") + "`") for c in df.columns[:-1]]
    back = out.select(*kept, F.col("ym").cast("string")).collect()
    assert sorted(map(repr, back)) == sorted(map(repr, shown))
    assert [r["prediction"] for r in out.select("prediction").orderBy("prediction").collect()] == [
        None,
        "P",
        "P",
    ]


@pytest.mark.parametrize(
    ("output", "ddl"),
    [
        ("array(prompt, null)", "array<string>"),
        ("named_struct('label', prompt, 'score', 0.5D)", "struct<label:string,score:double>"),
        ("array(1.0F, 2.0F)", "array<float>"),
    ],
)
def test_output_keeps_its_type(output: str, ddl: str, spark: SparkSession) -> None:
    kind = _parse_datatype_string(ddl)
    requests = Requests.build(some(spark, 8), INPUT)
    out = joined(requests, answered(requests.frame, output, kind), output_type=kind)
    assert out.schema["prediction"] == StructField("prediction", kind, True)
    assert out.where("prediction is not null").count() == 6


@pytest.mark.parametrize(
    "read",
    [
        lambda out: out.select("prediction").collect(),
        lambda out: out.select("prediction_error").collect(),
        lambda out: out.select("details").collect(),
        lambda out: out.where("prediction is not null").count(),
        lambda out: out.where("prediction = 'P2'").select("id").collect(),
        lambda out: out.where("prediction_error is null").count(),
        lambda out: out.groupBy("prediction").count().collect(),
        lambda out: out.select(F.length("prediction")).distinct().collect(),
    ],
)
def test_request_without_answer_fails_whoever_reads_it(read: Any, incomplete: tuple[Requests, DataFrame]) -> None:
    out = joined(*incomplete, details_col="details")
    with pytest.raises(Py4JJavaError, match="RejoinError: a row has no answer"):
        read(out)


@pytest.mark.parametrize("answers_bytes", [1000, 1 << 40], ids=["broadcast", "merge"])
def test_skip_does_not_hide_a_request_without_answer(
    answers_bytes: int, adaptive: None, incomplete: tuple[Requests, DataFrame]
) -> None:
    with pytest.raises(Py4JJavaError, match="RejoinError"):
        joined(*incomplete, handle_invalid="skip", answers_bytes=answers_bytes).count()


def test_prompt_that_changes_with_every_read_is_named_as_the_cause(spark: SparkSession) -> None:
    df = some(spark).select("id", F.concat("message", F.current_timestamp().cast("string")).alias("message"))
    requests = Requests.build(df, INPUT)
    with pytest.raises(Py4JJavaError, match=r"rand\(\).*current_timestamp\(\).*Materialize"):
        joined(requests, answered(requests.frame)).collect()


def test_optimizer_does_not_try_the_check_on_a_row_of_nulls(spark: SparkSession) -> None:
    # A prompt that is never null folds its error to null, and the check becomes an expression over
    # the answers.
    df = spark.range(0, 10, 1, 3).select("id", F.concat(F.lit("p"), F.col("id").cast("string")).alias("message"))
    requests = Requests.build(df, INPUT)
    out = joined(requests, answered(requests.frame))
    assert out.where("prediction = 'P3'").select("id").collect() == [(3,)]
    assert out.where("prediction_error is null and prediction is not null").count() == 10


@pytest.mark.parametrize(
    ("threshold", "answers_bytes", "join"),
    [
        ("10485760b", 1000, "BroadcastHashJoin"),
        ("10MB", 10 << 20, "BroadcastHashJoin"),
        ("10MB", (10 << 20) + 1, "SortMergeJoin"),
        ("-1", 1000, "SortMergeJoin"),
        ("1g", 1 << 29, "BroadcastHashJoin"),
    ],
)
def test_size_of_the_answers_decides_the_join(
    threshold: str,
    answers_bytes: int,
    join: str,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    requests = Requests.build(some(spark), INPUT)
    answers = answered(requests.frame)
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", threshold)
    try:
        out = joined(requests, answers, answers_bytes=answers_bytes)
        out.collect()
        out.explain()
    finally:
        spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")
    plan = capsys.readouterr().out
    assert [j for j in ("BroadcastHashJoin", "SortMergeJoin") if j in plan] == [join]


def test_refused_rows_are_spread_over_the_tasks_of_a_merge_join(spark: SparkSession) -> None:
    df = spark.range(0, 4000, 1, 4).select("id", F.when(F.col("id") < 40, "p").alias("message"))
    requests = Requests.build(df, INPUT)
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        out = joined(requests, answered(requests.frame), answers_bytes=1 << 40)
        sizes = [r[0] for r in out.groupBy(F.spark_partition_id()).agg(F.count("*").alias("n")).select("n").collect()]
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert len(sizes) == 2
    assert max(sizes) < 2500


def test_filter_on_an_input_column_runs_below_the_join(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    requests = Requests.build(some(spark), INPUT)
    out = joined(requests, answered(requests.frame)).where("id = 5")
    out.explain()
    lines = capsys.readouterr().out.splitlines()
    assert [i for i, line in enumerate(lines) if "(id#" in line and "= 5)" in line] > [
        i for i, line in enumerate(lines) if "Join" in line
    ]
    assert out.count() == 1


def test_empty_frame_and_no_answers(adaptive: None, spark: SparkSession) -> None:
    requests = Requests.build(some(spark).where("id < 0"), INPUT)
    out = joined(requests, answered(requests.frame), details_col="details")
    assert out.collect() == []
    refused = Requests.build(some(spark).where("message is null"), INPUT)
    assert joined(refused, answered(refused.frame)).count() == 50
