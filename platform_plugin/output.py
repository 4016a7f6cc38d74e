"""The shape of an answer: free text, one of a list, or a typed value; how decoding is constrained to it and how what
came back is read. Spark types are named by their JSON form, so that nothing here needs Spark on a replica.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import json
import math
import random
import re
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from platform_plugin.config import Ask
from platform_plugin.engines import error_row
from platform_plugin.errors import ConfigError

Type = dict[str, Any] | str
"""A Spark type as ``DataType.jsonValue()`` gives it."""

_RANGES = {"byte": 2**7, "short": 2**15, "integer": 2**31, "long": 2**63}
_DAY = (
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))"
)
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_ZONE = "(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])"
# Not JSON schema's "date-time": it takes a fraction without end, and always a zone, which timestamp_ntz may not have.
_TEXTS = {"date": _DAY, "timestamp": f"{_DAY}T{_TIME}{_ZONE}", "timestamp_ntz": f"{_DAY}T{_TIME}"}
# Spark's 38 digits, and one more that rounding may bring; Python's own context has 28.
_DECIMALS = decimal.Context(prec=39, rounding=decimal.ROUND_HALF_UP)
_FLOAT_MAX = (2 - 2**-23) * 2.0**127
MOST_ITEMS = 32
"""Elements of an array at most: a small model would never end one."""
VECTOR: dict[str, Any] = {"finish_reason": "stop", "cached_tokens": 0, "output_tokens": 0}
"""What is known of every answer that is a vector."""
NARROW = "json_schema"
"""Key of a Spark field's metadata: a part of a JSON schema."""
_TAKES = "string, boolean, integers, float, double, decimal, date, timestamp, arrays and structs of them"


def json_schema(kind: Type, path: str = "outputSchema") -> dict[str, Any]:
    """Return the JSON schema that decoding is held to for a Spark type.

    Raises:
        ConfigError: a type that JSON, or a grammar for it, cannot hold to; names the field.
    """
    if isinstance(kind, dict) and kind["type"] == "struct":
        fields = {f["name"]: _narrowed(f, json_schema(f["type"], f"{path}.{f['name']}")) for f in kind["fields"]}
        if not fields:
            raise ConfigError(f"{path} is a struct without fields; name at least one, as in 'intent STRING'.")
        if len(fields) < len(kind["fields"]):
            names = ", ".join(f["name"] for f in kind["fields"])
            raise ConfigError(f"{path} has two fields of one name ({names}); JSON holds one of them. Rename one.")
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if isinstance(kind, dict) and kind["type"] == "array":
        return {"type": "array", "items": json_schema(kind["elementType"], f"{path}[]"), "maxItems": MOST_ITEMS}
    if kind == "string":
        return {"type": "string"}
    if kind == "boolean":
        return {"type": "boolean"}
    if isinstance(kind, str) and kind in _RANGES:
        return {"type": "integer", "minimum": -_RANGES[kind], "maximum": _RANGES[kind] - 1}
    if isinstance(kind, str) and kind in ("float", "double"):
        return {"type": "number"}
    if isinstance(kind, str) and kind.startswith("decimal"):
        precision, scale = _digits(kind)
        most = (10**precision - 1) / 10**scale
        if fractions.Fraction(repr(most)) >= 10 ** (precision - scale):  # a double has fewer digits: it was rounded up
            most = math.nextafter(most, 0)
        return {"type": "number", "minimum": -most, "maximum": most}
    if isinstance(kind, str) and kind in _TEXTS:
        return {"type": "string", "pattern": f"^{_TEXTS[kind]}$"}
    name = kind if isinstance(kind, str) else kind["type"]
    raise ConfigError(f"{path} is {name}, which a constrained answer cannot have; it takes {_TAKES}.")


def _narrowed(field: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a field; its metadata NARROW says what is wanted of its type: an enum, a maxLength."""
    own = field.get("metadata", {}).get(NARROW, {})
    return {"enum": own["enum"]} if "enum" in own else {**whole, **own}


def fault(text: str, kind: Type) -> str | None:
    """Return what is wrong with a JSON text that should hold a value of a Spark type, or None."""
    try:
        value = json.loads(text, parse_float=decimal.Decimal)
    except (ValueError, RecursionError, ArithmeticError) as exc:
        return f"not JSON: {exc or type(exc).__name__}"
    return _misfit(value, kind, "answer")


def _misfit(value: Any, kind: Type, path: str) -> str | None:
    """Return where `value` is not of `kind`: Spark would make a silent null of it."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        if not isinstance(value, dict):
            return f"{path} is not an object"
        absent = [f["name"] for f in kind["fields"] if f["name"] not in value]
        if absent:
            return f"{path} has no {', '.join(absent)}"
        faults = (_misfit_field(value[f["name"]], f, f"{path}.{f['name']}") for f in kind["fields"])
        return next((f for f in faults if f), None)
    if isinstance(kind, dict):
        if not isinstance(value, list):
            return f"{path} is not an array"
        faults = (_misfit(v, kind["elementType"], f"{path}[{i}]") for i, v in enumerate(value))
        return next((f for f in faults if f), None)
    return None if _is(value, kind) else f"{path}={value!r} is no {kind}"


def _misfit_field(value: Any, field: dict[str, Any], path: str) -> str | None:
    wanted = field.get("metadata", {}).get(NARROW, {}).get("enum")
    wrong = _misfit(value, field["type"], path)
    if wrong is None and wanted is not None and value not in wanted:
        return f"{path}={value!r} is none of {', '.join(map(str, wanted))}"
    return wrong


def _is(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind in _RANGES:
        return isinstance(value, int) and -_RANGES[kind] <= value < _RANGES[kind]
    if kind.startswith("decimal"):
        return isinstance(value, int | decimal.Decimal) and _fits(decimal.Decimal(value), kind)
    if kind in ("float", "double"):
        most = _FLOAT_MAX if kind == "float" else sys.float_info.max
        return isinstance(value, int | decimal.Decimal) and -most <= value <= most
    if not isinstance(value, str) or not re.fullmatch(_TEXTS[kind], value, re.ASCII):
        return False
    try:
        return bool(datetime.datetime.fromisoformat(value))
    except ValueError:  # the 29th of February
        return False


def _fits(value: decimal.Decimal, kind: str) -> bool:
    """Return whether the whole part fits, once what is behind the scale is rounded: Spark does that."""
    precision, scale = _digits(kind)
    if value == 0 or value.adjusted() < -scale - 1:
        return True
    if value.adjusted() >= precision - scale:
        return False
    made = rounded(value, kind)
    return made == 0 or made.adjusted() < precision - scale


def rounded(value: decimal.Decimal, kind: str) -> decimal.Decimal:
    """Return a value with the digits behind the point that "decimal(precision,scale)" has, as Spark rounds it."""
    return value.quantize(decimal.Decimal(1).scaleb(-_digits(kind)[1]), context=_DECIMALS)


def _digits(kind: str) -> tuple[int, int]:
    """Return precision and scale of "decimal(10,2)"."""
    precision, scale = kind.removeprefix("decimal(").rstrip(")").split(",")
    return int(precision), int(scale)


def example(kind: Type, chance: random.Random) -> Any:
    """Return some value of a Spark type, as JSON holds it; the same for the same seed."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        narrow = {f["name"]: f.get("metadata", {}).get(NARROW, {}).get("enum") for f in kind["fields"]}
        return {
            f["name"]: chance.choice(enum) if (enum := narrow[f["name"]]) else example(f["type"], chance)
            for f in kind["fields"]
        }
    if isinstance(kind, dict):
        return [example(kind["elementType"], chance) for _ in range(chance.randint(1, 3))]
    number = chance.randrange(100)
    moment = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=number, minutes=number)
    values = {
        "string": f"word {number}",
        "boolean": number % 2 == 0,
        "date": moment.date().isoformat(),
        "timestamp": f"{moment.isoformat()}Z",
        "timestamp_ntz": moment.isoformat(),
    }
    if kind.startswith("decimal"):
        return number % 10 / 10 if _digits(kind)[1] else number % 10
    return values.get(kind, number / 8 if kind in ("float", "double") else number)


def output_type(ask: Ask) -> pa.DataType:
    """Return the Arrow type of `output`: a text (free, a choice or JSON), a list of them where n > 1, or a vector."""
    if ask.task == "embed":
        return pa.list_(pa.float32())
    return pa.string() if ask.answers == 1 else pa.list_(pa.string())


def split_reasoning(text: str, marks: tuple[str, str]) -> tuple[str | None, str]:
    """Return what stands between the marks, None without a mark, and the rest; a mark left open holds all that follows.

    A text without a mark is returned as it is; else both parts are stripped.
    """
    pattern = re.compile(rf"{re.escape(marks[0])}(.*?)(?:{re.escape(marks[1])}|\Z)", re.DOTALL)
    thoughts = [thought.strip() for thought in pattern.findall(text)]
    return ("\n\n".join(thoughts), pattern.sub("", text).strip()) if thoughts else (None, text)


def to_answer(
    texts: Sequence[str], reasons: Sequence[str], ask: Ask, marks: tuple[str, str] | None = None
) -> dict[str, Any]:
    """Return output, error, finish_reason, reasoning and raw_text of one row, as far as they are known.

    Where the answer is held to a shape, one that was cut or does not parse is an error of the row. Such decoding
    starts at once, so the model does not reason.

    Args:
        texts: what the model said, one text an answer.
        reasons: why it ended, one an answer; "length" where it was cut.
        marks: between which the model reasons.
    """
    fields: dict[str, Any] = {"finish_reason": "length" if "length" in reasons else reasons[0]}
    if ask.constrained:
        for text, reason in zip(texts, reasons, strict=True):
            error = _error(text, reason, ask)
            if error:
                return {**fields, "error": error, "raw_text": text}
    elif marks:
        thoughts, texts = zip(*(split_reasoning(text, marks) for text in texts), strict=True)
        fields["reasoning"] = "\n\n".join(t for t in thoughts if t) or None
    return {**fields, "output": list(texts) if ask.answers > 1 else texts[0]}


def _error(text: str, reason: str, ask: Ask) -> dict[str, Any] | None:
    if reason == "length":
        return error_row("output", "OutputCut", "the answer was cut before its end; raise max_tokens or max_model_len")
    if ask.output_type is not None:
        wrong = fault(text, ask.output_type)
    else:
        choices = ask.choices or ()
        wrong = None if text in choices else f"answer={text[:100]!r} is none of the {len(choices)} choices"
    return error_row("output", "OutputUnparsable", wrong) if wrong else None
