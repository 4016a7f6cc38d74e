"""What a param takes: each converter returns the JSON value that is saved, or raises ConfigError in plain words."""

from __future__ import annotations

import json
import math
from typing import Any

from platform_plugin.errors import ConfigError, near


def json_dict(value: Any) -> dict[str, Any]:
    """Convert a value to a dict of plain JSON values, or say why it is none."""
    if not isinstance(value, dict):
        raise ConfigError(f"{value!r} is a {type(value).__name__}; a dict of JSON values is wanted.")
    try:
        made = json.loads(json.dumps(value, allow_nan=False, default=_plain))
    except (TypeError, ValueError) as exc:
        raise ConfigError(
            f"{value!r} does not go into JSON ({exc}); a stage is saved as JSON, so it takes numbers, strings, "
            "booleans, lists and dicts only."
        ) from exc
    assert isinstance(made, dict)
    return made


def one_of(*words: str) -> Any:
    """Return a converter that takes only these words."""

    def convert(value: Any) -> str:
        if value not in words:
            raise ConfigError(f"{value!r} is not one of {', '.join(words)}.{near(str(value), words)}")
        return str(value)

    return convert


def at_least(least: float, convert: Any) -> Any:
    """Return a converter that takes only numbers from `least` on."""

    def check(value: Any) -> Any:
        made = convert(value)
        if not math.isfinite(made):
            raise ConfigError(f"{value!r} is not a finite number; {least:g} is the least that this param takes.")
        if made < least:
            raise ConfigError(f"{value!r} is less than {least:g}, the least that this param takes.")
        return made

    return check


def deduplicate(value: Any) -> str:
    """Convert True, False or "auto" to the word that is saved."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(one_of("auto", "true", "false")(value))


def _plain(value: Any) -> Any:
    # numpy scalars and arrays: what a user computed rather than wrote.
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is in it")


def strings(value: Any) -> list[str]:
    """Convert a list of strings."""
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{value!r} is not a list of strings.")
    return list(value)


def share(value: Any) -> float:
    """Convert a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"{value!r} is not a share; a number from 0 to 1 is wanted, 0.05 for five in a hundred.")
    return float(value)
