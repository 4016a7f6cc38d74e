"""The online face: rows as dicts, without Spark, through the same template and the same engine as ``transform``."""

from __future__ import annotations

import datetime
import decimal
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from platform_plugin import pool, session
from platform_plugin.config import Ask, Replicas
from platform_plugin.engines import EngineSpec, error_row
from platform_plugin.errors import SchemaError, SessionError
from platform_plugin.output import rounded
from platform_plugin.template import PromptTemplate, value_of

DETAILS = (
    *("finish_reason", "prompt_tokens", "cached_tokens", "output_tokens"),
    *("truncated", "seconds", "reasoning", "raw_text"),
)
ROLES = ("system", "user", "assistant", "tool")
# What Spark's rlike takes for a letter, a digit or a mark: Java's \S is of ASCII.
_TEXT = re.compile(r"\S", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


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
            try:
                prompt, error, own = self._request(row)
            except SchemaError as exc:
                raise SchemaError(f"rows[{place}]: {exc}") from exc
            if error is not None:
                refused[place] = error
                continue
            columns["key"].append(str(place).encode())
            columns["prompt"].append(prompt)
            if self.fields.sampling is not None:
                columns["sampling"].append(own)
        return pa.table(columns, schema=pa.schema(types.items())), refused

    def _request(self, row: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None, str | None]:
        """Return the prompt of a row, or its error, and its own sampling parameters."""
        if not isinstance(row, Mapping):
            raise SchemaError(
                f"the row is a {type(row).__name__}; wanted a dict by column. Use Row.asDict(recursive=True)."
            )
        prompt, error = self._prompt(row)
        own = None if self.fields.sampling is None else _sampling(row, self.fields.sampling)
        return None if prompt is None else _clean(prompt), error, own

    def _prompt(self, row: Mapping[str, Any]) -> tuple[str | None, dict[str, Any] | None]:
        """Return the prompt of a row or its error: the same as Spark's expressions of `requests` give."""
        fields = self.fields
        if fields.messages is not None:
            messages = _messages(row, fields.messages)
            wrong = _bad_messages(messages)
            if wrong is not None:
                return None, error_row("render", "BadMessages", wrong)
            return _json(messages), None
        if fields.template is not None:
            prompt = fields.template.render(row)
            null = next((f for f in fields.template.fields if value_of(row, f) is None), None)
            message = f"template field {null!r} is null"
        else:
            prompt = value_of(row, fields.input or "", "inputCol")
            if not isinstance(prompt, str | None):
                raise _wrong_type("inputCol", fields.input, prompt, "a str", "Use str(), or promptTemplate.")
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
                try:
                    answer["output"] = _typed(answer["output"], self.ask.output_type)
                except (ValueError, OverflowError, OSError) as exc:  # a timestamp that is of year 10000 in this zone
                    answer["output"] = None
                    answer["error"] = error_row("output", "OutputUnparsable", f"no value of Python's: {exc}")
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


def _wrong_type(role: str, field: str | None, value: Any, wanted: str, remedy: str) -> SchemaError:
    return SchemaError(f"{role} {field!r} is a {type(value).__name__}; wanted {wanted}. {remedy}")


def _clean(text: str) -> str:
    """Return the text as Spark reads it: half of a surrogate pair, which UTF-8 cannot hold, becomes U+FFFD."""
    return _SURROGATE.sub("\ufffd", text)


def _plain(value: Any) -> Any:
    """Return a Row as a dict, any other value as it is."""
    return value.asDict(recursive=True) if hasattr(value, "asDict") else value


def _sampling(row: Mapping[str, Any], field: str) -> str | None:
    own = _plain(value_of(row, field, "samplingParamsCol"))
    if not isinstance(own, str | Mapping | None):
        remedy = "Write {'max_tokens': 16}, say."
        raise _wrong_type("samplingParamsCol", field, own, "a dict, or a str with a JSON object", remedy)
    return None if own is None else _clean(own if isinstance(own, str) else _json(own))


def _messages(row: Mapping[str, Any], field: str) -> list[dict[str, str | None] | None] | None:
    """Return the messages of a row; what a message lacks is None in it. Raises SchemaError for any other type."""
    found = value_of(row, field, "messagesCol")
    remedy = "Write [{'role': 'user', 'content': 'text'}]."
    if found is None:
        return None
    if not isinstance(found, list | tuple):
        raise _wrong_type("messagesCol", field, found, "a list of dicts", remedy)
    messages: list[dict[str, str | None] | None] = []
    for index, given in enumerate(found):
        message = _plain(given)
        if message is None:
            messages.append(None)
            continue
        if not isinstance(message, Mapping):
            raise _wrong_type("messagesCol", f"{field}[{index}]", message, "a dict", remedy)
        parts = {name: message.get(name) for name in ("role", "content")}
        for name, part in parts.items():
            if not isinstance(part, str | None):
                raise _wrong_type("messagesCol", f"{field}[{index}].{name}", part, "a str", remedy)
        messages.append({name: part if part is None else _clean(part) for name, part in parts.items()})
    return messages


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
        return "a message has no content"
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
    if kind == "float":
        return struct.unpack("f", struct.pack("f", value))[0]
    if kind == "double":
        return float(value)
    if kind.startswith("decimal"):
        return rounded(decimal.Decimal(value), kind)
    if kind == "date":
        return datetime.date.fromisoformat(value)
    if kind == "timestamp":
        # As collect() gives it: in this process's time zone, without saying so.
        return datetime.datetime.fromtimestamp(datetime.datetime.fromisoformat(value).timestamp())
    if kind == "timestamp_ntz":
        return datetime.datetime.fromisoformat(value)
    return value
