"""Which way a frame goes, and what is said where it cannot: no cluster, no JVM."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import types as t

from platform_plugin.bridges import load_bridge
from platform_plugin.connection import Connection
from platform_plugin.crossing import check_columns, no_arrow
from platform_plugin.errors import ConfigError, SchemaError, UnknownPluginError
from platform_plugin.hand_off import check_word
from platform_plugin.probe import reason


@pytest.mark.parametrize(("word", "folder"), [("auto", None), ("inline", None), ("raydp", None), ("parquet", "/tmp")])
def test_words_that_are_known(word: str, folder: str | None) -> None:
    check_word(word, folder)


def test_word_that_is_not_known_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownPluginError, match=r"'inlin' is not known; one of auto, inline, .*mean 'inline'"):
        check_word("inlin", None)


def test_parquet_wants_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs handOffDir"):
        check_word("parquet", None)
    with pytest.raises(ConfigError, match="'s3a://bucket/x' is a URI"):
        check_word("parquet", "s3a://bucket/x")
    with pytest.raises(ConfigError, match="absent' is no folder that this program can write to"):
        load_bridge("parquet", str(tmp_path / "absent")).check_session(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (t.DayTimeIntervalType(), "column 'x' of type interval day to second.*in parquet.*interval"),
        (t.ArrayType(t.StructType().add("y", t.NullType())), "'x' of type array<struct<y:void>>.*no void"),
        (t.MapType(t.StringType(), t.YearMonthIntervalType(0)), "'x' of type map<string,interval year>"),
    ],
)
def test_parquet_names_the_column_that_it_cannot_carry(kind: t.DataType, words: str) -> None:
    schema = t.StructType().add("fine", t.DecimalType(38, 18)).add("x", kind)
    with pytest.raises(SchemaError, match=words):
        load_bridge("parquet", "/tmp").check(schema)


def test_stream_names_the_column_that_cannot_pass() -> None:
    schema = t.StructType().add("fine", t.DayTimeIntervalType()).add("x", t.ArrayType(t.NullType()))
    with pytest.raises(SchemaError, match="'x' of type array<void> cannot pass"):
        check_columns(schema, no_arrow, "cannot pass")


def test_ray_that_nobody_serves_is_not_reached_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    assert "ConnectionRefusedError" in str(reason(Connection(address, "nobody", None)))
