"""The price table: what a million tokens of a model cost."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import Field, model_validator

from platform_plugin.config import Frozen
from platform_plugin.errors import ConfigError, near
from platform_plugin.profiles import conf_dir


class Price(Frozen):
    """Price of a million tokens; what came from the prefix cache costs `cached_input`, without it `input`."""

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    cached_input: float = Field(default=-1.0, ge=-1, allow_inf_nan=False)

    @model_validator(mode="after")
    def _cached(self) -> Price:
        if self.cached_input < 0:
            object.__setattr__(self, "cached_input", self.input)
        return self


class Prices(Frozen):
    """The table: model -> price, all in one currency."""

    currency: str = Field(min_length=1)
    per_million_tokens: dict[str, Price]


def load_price(model: str, path: Path | None = None) -> tuple[Price, str]:
    """Return the price of a model and the currency, from conf/prices.yaml or another table.

    Raises:
        ConfigError: no such file, one that is not valid, or one without the model.
    """
    path = path or conf_dir() / "prices.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ConfigError(f"the price table {path} cannot be read: {exc}") from exc
    if not isinstance(values, dict):
        raise ConfigError(f"the price table {path} needs the fields currency and per_million_tokens.")
    try:
        table = Prices.of(**{str(k): v for k, v in values.items()})
    except ConfigError as exc:
        raise ConfigError(f"the price table {path}: {exc}") from exc
    known = table.per_million_tokens
    if model not in known:
        raise ConfigError(
            f"the price table {path} has no model {model!r}; it has {', '.join(sorted(known)) or 'none'}."
            f"{near(model, known)}\nAdd it there, or pass prices=<your own table>, or leave the metric 'cost' out."
        )
    return known[model], table.currency
