"""The share of answers that are JSON, and of the shape that was wanted."""

from __future__ import annotations

import importlib
import json
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from platform_plugin.errors import ConfigError, MissingDependencyError
from platform_plugin.measure import Mean, Values, texts


class JsonValidity(Mean):
    """Share of rows whose prediction is JSON, and valid against a JSON schema; a failed row is not.

    Args:
        schema: a JSON schema; without one, any JSON is valid.
    """

    name = "json_validity"
    takes: ClassVar = {"prediction": ("text", "struct")}

    def __init__(self, schema: dict[str, Any] | None = None) -> None:
        self._schema = schema
        if schema is not None:
            validators = _validators()
            try:
                validators.validator_for(schema).check_schema(schema)
            except Exception as exc:  # of jsonschema, which is imported only here
                raise ConfigError(f"json_validity: schema is no JSON schema: {exc}".splitlines()[0]) from exc

    @cached_property
    def _validator(self) -> Any:
        return _validators().validator_for(self._schema)(self._schema) if self._schema is not None else None

    def __getstate__(self) -> dict[str, Any]:
        return {"_schema": self._schema}

    def values(self, batch: pa.Table) -> Values:
        """Return 1 or 0; equal answers are looked at once a batch."""
        answers = texts(batch, "prediction")
        known = {answer: self._valid(answer) for answer in set(answers)}
        return np.fromiter((known[answer] for answer in answers), np.float64, len(answers))

    def _valid(self, answer: str | None) -> bool:
        if answer is None:
            return False
        try:
            value = json.loads(answer, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
        return self._validator is None or bool(self._validator.is_valid(value))


def _validators() -> Any:
    try:
        validators = importlib.import_module("jsonschema.validators")
    except ImportError as exc:
        raise MissingDependencyError(
            'json_validity with a schema needs the package jsonschema: pip install "platform-plugin[evaluation]"'
        ) from exc
    return validators


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


METRIC = JsonValidity
