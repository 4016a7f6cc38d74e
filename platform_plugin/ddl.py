"""Spark DDL: read by Spark where it runs in this process, else by a reader of its own.

It does not where rows are scored online; and Spark Connect's server makes a struct of any type, so it is asked only for
what this reader does not know (NOT NULL, comments).
"""

from __future__ import annotations

import re

from pyspark.errors import ParseException
from pyspark.sql import types as t
from pyspark.sql.types import DataType, StructType

from platform_plugin.errors import ConfigError, near

_SIMPLE: dict[str, type[DataType]] = {
    "boolean": t.BooleanType,
    "byte": t.ByteType,
    "tinyint": t.ByteType,
    "short": t.ShortType,
    "smallint": t.ShortType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "long": t.LongType,
    "bigint": t.LongType,
    "float": t.FloatType,
    "real": t.FloatType,
    "double": t.DoubleType,
    "string": t.StringType,
    "binary": t.BinaryType,
    "date": t.DateType,
    "timestamp": t.TimestampType,
    "timestamp_ntz": t.TimestampNTZType,
    "decimal": t.DecimalType,
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")


def read_type(text: str, role: str) -> DataType:
    """Return the type that a DDL text names; a list of fields is a struct. Raises ConfigError."""
    try:
        if not text.strip():
            raise ValueError("it is empty")
        return _parsed(text)
    except (ParseException, ValueError) as exc:
        word = re.split(r"\W", text.strip())[0]
        raise ConfigError(
            f"{role}={text!r} is not Spark DDL: {str(exc).strip().splitlines()[0]}{near(word, _SIMPLE)}\n"
            "Write it as in 'double', 'array<float>' or 'label STRING, score DOUBLE'."
        ) from exc


def _parsed(text: str) -> DataType:
    from pyspark.sql import utils

    if _spark_runs():
        return t._parse_datatype_string(text)
    try:
        return _Reader(text).whole()
    except ValueError:
        if not utils.is_remote():
            raise
        from pyspark.sql.connect.session import SparkSession

        return SparkSession.active().createDataFrame([], text).schema


def _spark_runs() -> bool:
    from pyspark import SparkContext
    from pyspark.sql import utils

    return SparkContext._active_spark_context is not None and not utils.is_remote()


class _Reader:
    """Reads one text from left to right; ValueError where it is none."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, str]] = []
        place = 0
        while text[place:].strip():
            found = _TOKEN.match(text, place)
            if found is None:
                raise ValueError(f"{text[place:].strip()[:20]!r} was not expected")
            self._tokens.append((found[1] or "", found[2] or "", found[3] or ""))
            place = found.end()

    def whole(self) -> DataType:
        """Return a type, or the struct of a list of fields."""
        fields = len(self._tokens) > 1 and not self._tokens[1][2]
        found = self._fields() if fields or self._at(1, ":") else self._type()
        if self._tokens:
            raise ValueError(f"{''.join(self._tokens[0])!r} was not expected")
        return found

    def _type(self) -> DataType:
        _, word, _ = self._next()
        word = word.lower()
        if word in ("array", "map", "struct"):
            self._take("<")
            if word == "struct":
                kind: DataType = self._fields()
            elif word == "array":
                kind = t.ArrayType(self._type())
            else:
                key = self._type()
                self._take(",")
                kind = t.MapType(key, self._type())
            self._take(">")
            return kind
        if word not in _SIMPLE:
            raise ValueError(f"{word!r} is no type")
        if word == "decimal" and self._at(0, "("):
            self._take("(")
            precision = int(self._next()[1])
            self._take(",")
            scale = int(self._next()[1])
            self._take(")")
            return t.DecimalType(precision, scale)
        return _SIMPLE[word]()

    def _fields(self) -> StructType:
        found = StructType()
        while True:
            quoted, word, _ = self._next()
            if self._at(0, ":"):
                self._take(":")
            found.add(quoted.replace("``", "`") or word, self._type())
            if not self._at(0, ","):
                return found
            self._take(",")

    def _at(self, ahead: int, sign: str) -> bool:
        return len(self._tokens) > ahead and self._tokens[ahead][2] == sign

    def _next(self) -> tuple[str, str, str]:
        if not self._tokens:
            raise ValueError("it ends too soon")
        return self._tokens.pop(0)

    def _take(self, sign: str) -> None:
        if not self._at(0, sign):
            raise ValueError(f"{sign!r} was expected")
        self._tokens.pop(0)
