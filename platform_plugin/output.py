"""The shape of an answer: free text, one of a list, or a typed struct; how decoding is constrained to it and how what
came back is read. Spark types are named by their JSON form, so that nothing here needs Spark on a replica.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
from typing import Any

from platform_plugin.errors import ConfigError

Type = dict[str, Any] | str
"""A Spark type as ``DataType.jsonValue()`` gives it."""

_RANGES = {"byte": 2**7, "short": 2**15, "integer": 2**31, "long": 2**63}
_TEXTS = {"date": "date", "timestamp": "date-time", "timestamp_ntz": "date-time"}
_TAKES = "string, boolean, integers, float, double, decimal, date, timestamp, arrays and structs of them"


def json_schema(kind: Type, path: str = "outputSchema") -> dict[str, Any]:
    """Return the JSON schema that decoding is held to for a Spark type.

    Raises:
        ConfigError: a type that JSON, or a grammar for it, cannot hold to; names the field.
    """
    if isinstance(kind, dict) and kind["type"] == "struct":
        fields = {f["name"]: json_schema(f["type"], f"{path}.{f['name']}") for f in kind["fields"]}
        if not fields:
            raise ConfigError(f"{path} is a struct without fields; name at least one, as in 'intent STRING'.")
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if isinstance(kind, dict) and kind["type"] == "array":
        return {"type": "array", "items": json_schema(kind["elementType"], f"{path}[]")}
    if kind == "string":
        return {"type": "string"}
    if kind == "boolean":
        return {"type": "boolean"}
    if isinstance(kind, str) and kind in _RANGES:
        return {"type": "integer"}
    if isinstance(kind, str) and (kind in ("float", "double") or kind.startswith("decimal")):
        return {"type": "number"}
    if isinstance(kind, str) and kind in _TEXTS:
        return {"type": "string", "format": _TEXTS[kind]}
    name = kind if isinstance(kind, str) else kind["type"]
    raise ConfigError(f"{path} is {name}, which a constrained answer cannot have; it takes {_TAKES}.")


def fault(text: str, kind: Type) -> str | None:
    """Return what is wrong with a JSON text that should hold a value of a Spark type, or None."""
    try:
        value = json.loads(text, parse_float=decimal.Decimal)
    except (ValueError, RecursionError) as exc:
        return f"not JSON: {exc}"
    return _misfit(value, kind, "answer")


def _misfit(value: Any, kind: Type, path: str) -> str | None:
    """Return where `value` is not of `kind`: Spark would make a silent null of it."""
    if isinstance(kind, dict) and kind["type"] == "struct":
        if not isinstance(value, dict):
            return f"{path} is not an object"
        absent = [f["name"] for f in kind["fields"] if f["name"] not in value]
        if absent:
            return f"{path} has no {', '.join(absent)}"
        faults = (_misfit(value[f["name"]], f["type"], f"{path}.{f['name']}") for f in kind["fields"])
        return next((f for f in faults if f), None)
    if isinstance(kind, dict):
        if not isinstance(value, list):
            return f"{path} is not an array"
        faults = (_misfit(v, kind["elementType"], f"{path}[{i}]") for i, v in enumerate(value))
        return next((f for f in faults if f), None)
    return None if _is(value, kind) else f"{path}={value!r} is no {kind}"


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
        return isinstance(value, int | decimal.Decimal) and math.isfinite(float(value))
    try:
        return isinstance(value, str) and bool(
            datetime.date.fromisoformat(value) if kind == "date" else datetime.datetime.fromisoformat(value)
        )
    except ValueError:
        return False


def _fits(value: decimal.Decimal, kind: str) -> bool:
    """Return whether the whole part fits; Spark rounds what is behind the scale."""
    precision, scale = (int(n) for n in kind.removeprefix("decimal(").rstrip(")").split(","))
    return value == 0 or value.adjusted() < precision - scale
