"""The engine protocol: what answers the requests.

To add an engine, write a file ``engines/<name>.py`` that defines ``SPEC``, a class that satisfies `EngineSpec`;
``setEngine("<name>")`` finds it by its file name and the conformance suite tests it. A spec describes on the
driver and imports nothing heavy; its ``build()`` makes the engine on the hardware.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from platform_plugin.config import Ask, EngineConfig, Placement
from platform_plugin.errors import UnknownPluginError, near
from platform_plugin.footprint import Footprint

REQUEST_SCHEMA = pa.schema([("key", pa.binary()), ("prompt", pa.string())])
"""What crosses to an engine. `prompt` is the user's message, or with ``Ask.messages`` a JSON array of
``{"role", "content"}``. A column `sampling` (string, a JSON object or null) may follow: the row's own sampling
parameters, over those of the ask."""

ERROR_TYPE = pa.struct(
    [
        ("stage", pa.string()),
        ("type", pa.string()),
        ("message", pa.string()),
        ("retryable", pa.bool_()),
    ]
)


def answer_schema(output: pa.DataType) -> pa.Schema:
    """Return the one schema of good and bad answers; only the type of `output` varies.

    `reasoning` is the text that a model sets off from its answer; `raw_text` what it said, where that is no answer
    (it was cut, or does not parse).
    """
    return pa.schema(
        [
            ("key", pa.binary()),
            ("output", output),
            ("error", ERROR_TYPE),
            ("finish_reason", pa.string()),
            ("prompt_tokens", pa.int64()),
            ("cached_tokens", pa.int64()),
            ("output_tokens", pa.int64()),
            ("truncated", pa.bool_()),
            ("seconds", pa.float64()),
            ("reasoning", pa.string()),
            ("raw_text", pa.string()),
        ]
    )


def error_row(stage: str, kind: str, message: str, retryable: bool = False) -> dict[str, Any]:
    """Return the `error` struct of one bad row."""
    return {"stage": stage, "type": kind, "message": message, "retryable": retryable}


@runtime_checkable
class Engine(Protocol):
    """What answers batches of requests. Runs on: Ray actor (a Serve replica)."""

    async def infer(self, batch: pa.Table, ask: Ask) -> pa.Table:
        """Answer every row of `batch` (REQUEST_SCHEMA) as `ask` says.

        Returns a table in ``answer_schema(...)`` of the same length and order. A row that cannot be answered is a
        row with `error` set; only the loss of the engine itself raises (`EngineDiedError`).
        """
        ...

    def counters(self) -> Mapping[str, float]:
        """Return sums and counts since the start, never averages: at least requests, busy_s, prompt_tokens,
        cached_tokens, output_tokens.
        """
        ...

    async def close(self) -> None:
        """Free what the engine holds; no process of it is left."""
        ...


@runtime_checkable
class EngineSpec(Protocol):
    """What describes an engine. Runs on: driver; frozen, picklable, with no heavy import."""

    config: EngineConfig

    def check(self) -> None:
        """Raise ConfigError for what can be known to be wrong without the package or the hardware."""
        ...

    def check_ask(self, ask: Ask) -> None:
        """Raise ConfigError for a request option that this engine does not know."""
        ...

    def output_type(self, ask: Ask) -> pa.DataType:
        """Return the Arrow type of `output`."""
        ...

    def count_tokens(self, prompts: list[str], ask: Ask) -> list[int]:
        """Return the tokens of each prompt, template included; loads a tokenizer at most. Runs on: driver."""
        ...

    def footprint(self) -> Footprint:
        """Return what one replica needs of memory, as far as the model's files tell. Runs on: driver."""
        ...

    def placement(self) -> Placement:
        """Return what one replica needs."""
        ...

    def build(self) -> Engine:
        """Load the engine. Runs on: Ray actor. Raises EngineStartError with the engine's own words."""
        ...


def find_engines() -> list[str]:
    """Return the names of all engines, by their file names."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load_spec(config: EngineConfig) -> EngineSpec:
    """Return the spec of ``config.engine``. Runs on: driver.

    Raises:
        UnknownPluginError: no file of that name; the names found are listed.
    """
    names = find_engines()
    if config.engine not in names:
        raise UnknownPluginError(
            f"engine={config.engine!r} is not known; found: {', '.join(names)}.{near(config.engine, names)}"
        )
    module = importlib.import_module(f"{__name__}.{config.engine}")
    spec: EngineSpec = module.SPEC(config)
    return spec
