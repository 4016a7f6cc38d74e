"""A prompt template: parsed once, rendered as a Spark Column and in Python, to the same text.

A field takes the types that both sides can print alike: string, integers, boolean, decimal, double,
date and timestamp_ntz. A template writes a decimal with all digits of its scale and no exponent,
and a double as Python's ``repr`` writes it after rounding to 15 significant digits (whole numbers
below 2**53 are not rounded). The JVM's own text of a double depends on its version, so neither side
uses it.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from platform_plugin.double_text import double_column, double_text
from platform_plugin.errors import ConfigError, SchemaError, near

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructType

_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_AS_CAST = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp_ntz")
_TAKES = "string, integers, boolean, decimal, double, date, timestamp_ntz"
_REMEDY = {
    "timestamp": "Its text depends on the session's time zone: use date_format(<col>, 'yyyy-MM-dd HH:mm:ss').",
    "float": "It has no decimal text that both sides print alike: cast it to decimal(p, s).",
    "binary": "Use base64(<col>) or decode(<col>, 'UTF-8').",
}


@dataclass(frozen=True)
class PromptTemplate:
    """A text with ``{column}`` fields; ``{{`` and ``}}`` are braces.

    Example:
        >>> PromptTemplate.parse("Rate {item}: {{1-5}}").render({"item": "tea"})
        'Rate tea: {1-5}'
    """

    text: str
    parts: tuple[tuple[str, bool], ...]
    """The text in pieces: (literal, False) or (column name, True)."""

    @classmethod
    def parse(cls, text: str) -> PromptTemplate:
        """Parse the template.

        Raises:
            ConfigError: a lone brace, an empty field, a conversion or format, no field at all.
        """
        if not isinstance(text, str):
            raise ConfigError(f"promptTemplate is {type(text).__name__}; wanted a text with {{column}} fields.")
        parts: list[tuple[str, bool]] = []
        for token in _TOKEN.finditer(text):
            field = token[1]
            if field is not None:
                _check_field(text, token.start(), field)
                parts.append((field, True))
            elif token[0] in "{}":
                raise ConfigError(
                    f"promptTemplate has a lone {token[0]!r} at {_place(text, token.start())}. "
                    f"Write {token[0] * 2!r} for the character, or {{column}} for a field."
                )
            else:
                parts.append(({"{{": "{", "}}": "}"}.get(token[0], token[0]), False))
        if not any(is_field for _, is_field in parts):
            raise ConfigError(
                f"promptTemplate={text[:80]!r} has no field, so all rows would ask the same. "
                "Name a column in it: {column}."
            )
        return cls(text, tuple(parts))

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns named, each once, in order."""
        return tuple(dict.fromkeys(part for part, is_field in self.parts if is_field))

    def check(self, schema: StructType) -> None:
        """Raise SchemaError for a field that is not in `schema`, or of a type not taken."""
        self.column(schema)

    def column(self, schema: StructType) -> Column:
        """Return the text as a Spark expression, null where any field is null."""
        from pyspark.sql import functions as F

        from platform_plugin import schema as columns

        pieces = []
        for part, is_field in self.parts:
            if is_field:
                field = columns.find_field(schema, part, "promptTemplate field")
                pieces.append(_spark_text(columns.column(field.name), field.dataType, part))
            else:
                pieces.append(F.lit(part))
        return F.concat(*pieces)

    def render(self, row: Mapping[str, Any]) -> str | None:
        """Return the text of one row, None where any field is None.

        It equals the Spark side for values of the column's own type: 3 is not 3.0.

        Raises:
            SchemaError: a field is not in `row`, or is of a type a template does not take.
        """
        texts = {field: _python_text(value_of(row, field), field) for field in self.fields}
        pieces = [texts[part] if is_field else part for part, is_field in self.parts]
        return None if None in pieces else "".join(piece or "" for piece in pieces)


def _check_field(text: str, start: int, field: str) -> None:
    if not field.strip():
        raise ConfigError(
            f"promptTemplate has an empty field at {_place(text, start)}. "
            "Name a column in it, or write '{{}}' for the characters."
        )
    if mark := re.search("[!:]", field):
        what = "conversion" if mark[0] == "!" else "format"
        raise ConfigError(
            f"promptTemplate field {{{field}}} at {_place(text, start)} has a {what} "
            f"({field[mark.start() :]!r}); "
            "fields take only a column's name. Make a column of the wanted text in Spark first."
        )


def _place(text: str, index: int) -> str:
    """Return "line 2, column 5", both from 1."""
    before = text[:index].split("\n")
    return f"line {len(before)}, column {len(before[-1]) + 1}"


def value_of(row: Mapping[str, Any], field: str, role: str = "promptTemplate field") -> Any:
    """Return the value of `field`, found as Spark finds columns: without regard to case. Raises SchemaError."""
    if field in row:
        return row[field]
    for name, value in row.items():
        if name.lower() == field.lower():
            return value
    raise SchemaError(
        f"{role} {field!r} is not in the row, which has "
        f"{', '.join(map(repr, row)) or 'nothing'}."
        f"{near(field, row) or ' Add it.'}"
    )


def _python_text(value: Any, field: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        # Spark's decimal has no negative zero.
        return format(value if value else value.copy_abs(), "f")
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        text = value.isoformat(sep=" ")
        return text.rstrip("0") if value.microsecond else text
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    kind = "datetime with a time zone" if isinstance(value, datetime.datetime) else type(value).__name__
    raise SchemaError(
        f"promptTemplate field {field!r} is a {kind}; a template takes {_TAKES}. Make a text of it first."
    )


def _spark_text(value: Column, kind: DataType, field: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType

    name = kind.simpleString()
    if name in _AS_CAST:
        return value.cast("string")
    if isinstance(kind, DecimalType):
        # The cast to string prints 0E-18, or not, as spark.sql.ansi.enabled is.
        digits = "0" if kind.scale <= 0 else "0." + "0" * kind.scale
        return F.call_function("format_number", value, F.lit(digits))
    if name == "double":
        return double_column(value)
    raise SchemaError(
        f"promptTemplate field {field!r} is {name}; a template takes {_TAKES}. "
        f"{_REMEDY.get(name, 'Make a string column of it first, with to_json or concat_ws.')}"
    )
