"""An engine without a model: it answers with the user's last message, and fails where it is told to.

For tests and first steps. A token is a word between blanks; engine arguments say what to simulate.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pydantic import Field

from platform_plugin.arguments import SAMPLING_DEFAULTS, check_sampling
from platform_plugin.chat import Message, refused, to_messages
from platform_plugin.config import Ask, EngineConfig, Frozen, Placement
from platform_plugin.engines import Engine, answer_schema, error_row
from platform_plugin.errors import ConfigError, EngineStartError, UnsupportedTaskError, near
from platform_plugin.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTPUT = pa.string()


class EchoArgs(Frozen):
    """What the echo engine simulates.

    Attributes:
        delay_s: seconds that each row takes; rows wait side by side.
        max_model_len: words of prompt and answer together.
        fail_on: a row with this text in its prompt becomes a row with an error.
        die_on: a row with this text in its prompt ends the engine's process.
        fail_start: the engine does not start, and says this.
    """

    delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    max_model_len: int = Field(default=8192, ge=2, strict=True)
    fail_on: str | None = Field(default=None, min_length=1)
    die_on: str | None = Field(default=None, min_length=1)
    fail_start: str | None = Field(default=None, min_length=1)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """Return the arguments. Raises ConfigError, with near names for an unknown one."""
        known = cls.model_fields
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"engineArgs {name!r} is not known to engine 'echo'.{near(name, known)} Known: {', '.join(known)}."
                )
        return cls.of(**given)


@dataclass(frozen=True)
class EchoSpec:
    """Describes an echo engine. Runs on: driver."""

    config: EngineConfig

    def check(self) -> None:
        """Raise ConfigError for an argument that the echo engine does not have."""
        EchoArgs.read(self.config.engine_args)

    def check_ask(self, ask: Ask) -> None:
        """Raise ConfigError for what vLLM would refuse, so that a trial run tells the truth."""
        check_sampling(ask.sampling)
        if ask.sampling.get("n", 1) != 1:
            raise UnsupportedTaskError(f"samplingParams n={ask.sampling['n']!r}: a row has one answer; leave n out")

    def output_type(self, ask: Ask) -> pa.DataType:
        """Return string: the text of the one answer."""
        return OUTPUT

    def placement(self) -> Placement:
        """Return a tenth of a CPU: echoes run beside anything."""
        return Placement(num_cpus=0.1)

    def build(self) -> Engine:
        """Start at once. Runs on: Ray actor. Raises EngineStartError where `fail_start` says so."""
        args = EchoArgs.read(self.config.engine_args)
        if args.fail_start:
            raise EngineStartError(f"the echo engine cannot start: {args.fail_start}")
        return EchoEngine(args)


class EchoEngine:
    """Answers each row with its last user message. Runs on: Ray actor."""

    def __init__(self, args: EchoArgs) -> None:
        self._args = args
        self._meter = Meter()

    async def infer(self, batch: pa.Table, ask: Ask) -> pa.Table:
        """Answer every row, all rows at once."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._answer(p, ask)) for p in batch["prompt"].to_pylist()]
        keys = batch["key"].to_pylist()
        answers = [{"key": key, **task.result()} for key, task in zip(keys, tasks, strict=True)]
        return pa.Table.from_pylist(answers, schema=answer_schema(OUTPUT))

    def counters(self) -> Mapping[str, float]:
        """Return requests, failed, prompt_tokens, cached_tokens, output_tokens, busy_s and the gauge in_flight."""
        return self._meter.read()

    async def close(self) -> None:
        """Free nothing: an echo holds nothing."""

    async def _answer(self, prompt: str | None, ask: Ask) -> dict[str, Any]:
        """Return the answer of one row without its key."""
        with self._meter.flight():
            start = time.monotonic()
            messages = to_messages(prompt, ask)
            if refused(messages):
                answer: dict[str, Any] = {"error": messages}
            else:
                await asyncio.sleep(self._args.delay_s)
                answer = self._echo(messages, ask)
                if "output" in answer:
                    answer["seconds"] = time.monotonic() - start
        self._meter.count(answer)
        return answer

    def _echo(self, messages: list[Message], ask: Ask) -> dict[str, Any]:
        args = self._args
        text = "\n".join(m["content"] for m in messages)
        if args.die_on and args.die_on in text:
            os._exit(1)
        if args.fail_on and args.fail_on in text:
            return {"error": error_row("engine", "EchoFailure", f"the prompt holds fail_on={args.fail_on!r}")}
        asked = len(text.split())
        room = args.max_model_len - asked
        if room < 1:
            most = args.max_model_len - 1
            message = (
                f"{asked} tokens, the model takes {most} (max_model_len {args.max_model_len} less one for the "
                "answer); shorten the prompt or raise max_model_len"
            )
            return {"error": error_row("length", "PromptTooLong", message)}
        last = [m["content"] for m in messages if m["role"] == "user"][-1:]
        output = last[0] if last else ""
        words = output.split()
        most = min(room, {**SAMPLING_DEFAULTS, **ask.sampling}["max_tokens"] or room)
        cut = len(words) > most
        return {
            "output": " ".join(words[:most]) if cut else output,
            "finish_reason": "length" if cut else "stop",
            "prompt_tokens": asked,
            "cached_tokens": 0,
            "output_tokens": min(len(words), most),
            "truncated": False,
        }


SPEC = EchoSpec
