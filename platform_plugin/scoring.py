"""The online face: rows as dicts, without Spark, through the same template and the same engine as ``transform``."""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from platform_plugin import pool, session
from platform_plugin.config import Ask, Replicas
from platform_plugin.engines import EngineSpec, error_row
from platform_plugin.errors import SessionError
from platform_plugin.template import PromptTemplate, value_of

DETAILS = (
    *("finish_reason", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("truncated", "seconds", "reasoning", "raw_text"),
)
ROLES = ("system", "user", "assistant", "tool")
# What Spark's rlike takes for a letter, a digit or a mark: Java's \S is of ASCII.
_TEXT = re.compile(r"\S", re.ASCII)


@dataclass(frozen=True)
class Fields:
    """Where a row's request is, and where its answer goes; see the stage's params. `vector`: as one of spark.ml."""

    output: str
    error: str
    details: str | None = None
    input: str | None = None
    template: PromptTemplate | None = None
    messages: str | None = None
    sampling: str | None = None
    vector: bool = False


@dataclass(frozen=True)
class Scorer:
    """Answers rows that are dicts. Runs on: any process that is connected to Ray."""

    spec: EngineSpec
    ask: Ask
    replicas: Replicas
    fields: Fields

    def score(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return each row with its answer, or its error, in the order of `rows`."""
        batch, refused = self._batch(rows)
        answers = self._answers(pool.value(self._call(batch))) if batch.num_rows else []
        return self._joined(rows, refused, answers)

    async def ascore(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Do as `score`, without blocking the event loop."""
        batch, refused = self._batch(rows)
        answers = self._answers(await self._call(batch)) if batch.num_rows else []
        return self._joined(rows, refused, answers)

    def _call(self, batch: pa.Table) -> Any:
        import ray

        if not ray.is_initialized():
            raise SessionError(
                "this process is not connected to Ray, where the engines run.\n"
                "Call ray.init() (or ray.init(address=...) for a cluster), or start a session with spark_on_ray()."
            )
        name = pool.find(self.spec) or pool.start(self.spec, self.replicas, joined=session.joined())
        return pool.handle(name).infer.remote(batch, self.ask)

    def _batch(self, rows: Sequence[Mapping[str, Any]]) -> tuple[pa.Table, dict[int, dict[str, Any]]]:
        """Return the requests of the rows that can be asked, keyed by place, and the errors of those that cannot."""
        columns: dict[str, list[Any]] = {"key": [], "prompt": []}
        types: dict[str, pa.DataType] = {"key": pa.binary(), "prompt": pa.string()}
        if self.fields.sampling is not None:
            columns["sampling"], types["sampling"] = [], pa.string()
        refused = {}
        for place, row in enumerate(rows):
            prompt, error = self._prompt(row)
            if error is not None:
                refused[place] = error
                continue
            columns["key"].append(str(place).encode())
            columns["prompt"].append(prompt)
            if self.fields.sampling is not None:
                own = value_of(row, self.fields.sampling, "samplingParamsCol")
                columns["sampling"].append(own if own is None or isinstance(own, str) else _json(own))
        return pa.table(columns, schema=pa.schema(types.items())), refused

    def _prompt(self, row: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
        """Return the prompt of a row or its error: the same as Spark's expressions of `requests` give."""
        fields = self.fields
        if fields.messages is not None:
            messages = value_of(row, fields.messages, "messagesCol")
            wrong = _bad_messages(messages)
            if wrong is not None or messages is None:
                return None, error_row("render", "BadMessages", wrong or "")
            return _json([{"role": m["role"], "content": m["content"]} for m in messages]), None
        if fields.template is not None:
            prompt = fields.template.render(row)
            null = next((f for f in fields.template.fields if value_of(row, f) is None), None)
            message = f"template field {null!r} is null"
        else:
            prompt = value_of(row, fields.input or "", "inputCol")
            message = f"inputCol {fields.input!r} is null"
        if prompt is None:
            return None, error_row("render", "NullPrompt", message)
        if not _TEXT.search(prompt):
            return None, error_row("render", "EmptyPrompt", "the prompt has no text in it")
        return prompt, None

    def _answers(self, table: pa.Table) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = table.to_pylist()
        if self.ask.output_type is not None:
            for answer in answers:
                answer["output"] = _typed(answer["output"], self.ask.output_type)
        if self.fields.vector:
            from pyspark.ml.linalg import Vectors

            for answer in answers:
                answer["output"] = None if answer["output"] is None else Vectors.dense(answer["output"])
        return answers

    def _joined(
        self, rows: Sequence[Mapping[str, Any]], refused: dict[int, dict[str, Any]], answers: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        by_place = {int(answer["key"]): answer for answer in answers}
        joined = []
        for place, row in enumerate(rows):
            answer = by_place.get(place)
            made = {
                **row,
                self.fields.output: answer["output"] if answer else None,
                self.fields.error: answer["error"] if answer else refused[place],
            }
            if self.fields.details is not None:
                made[self.fields.details] = {name: answer[name] for name in DETAILS} if answer else None
            joined.append(made)
        return joined


def _bad_messages(messages: Any) -> str | None:
    if messages is None:
        return "messages is null"
    if not messages:
        return "messages is empty"
    if any(m is None for m in messages):
        return "a message is null"
    strange = [m["role"] for m in messages if m["role"] not in ROLES]
    if strange:
        return f"role {strange[0] if strange[0] is not None else 'null'} is not one of {', '.join(ROLES)}"
    if any(m["content"] is None for m in messages):
        return "the content of a message is null"
    if not any(m["role"] == "user" and _TEXT.search(m["content"]) for m in messages):
        return "no message of role user has text in it"
    return None


def _json(value: Any) -> str:
    """Return JSON as Spark's to_json writes it: no blanks, no nulls in objects."""
    if isinstance(value, Mapping):
        value = {k: v for k, v in value.items() if v is not None}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def _typed(text: Any, kind: Any) -> Any:
    """Return the value of a JSON text as Spark's from_json and Row give it."""
    if text is None:
        return None
    if isinstance(text, list):
        return [_typed(t, kind) for t in text]
    return _value(json.loads(text, parse_float=decimal.Decimal), kind)


def _value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, dict) and kind["type"] == "struct":
        return {f["name"]: _value(value.get(f["name"]), f["type"]) for f in kind["fields"]}
    if isinstance(kind, dict):
        return [_value(v, kind["elementType"]) for v in value]
    if kind in ("float", "double"):
        return float(value)
    if kind.startswith("decimal"):
        scale = int(kind.rstrip(")").split(",")[1])
        return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-scale), decimal.ROUND_HALF_UP)
    if kind == "date":
        return datetime.date.fromisoformat(value)
    if kind.startswith("timestamp"):
        return datetime.datetime.fromisoformat(value)
    return value
