"""An engine without a model: it answers with the user's last message, and fails where it is told to.

For tests and first steps. A token is a word between blanks; engine arguments say what to simulate.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa
from pydantic import Field

from platform_plugin.arguments import SAMPLING_DEFAULTS
from platform_plugin.ask import check_ask, check_task, timed_out
from platform_plugin.chat import Message, refused, to_messages
from platform_plugin.config import Ask, EngineConfig, Frozen, Placement
from platform_plugin.engines import Engine, error_row
from platform_plugin.errors import ConfigError, EngineStartError, near
from platform_plugin.footprint import Footprint
from platform_plugin.meter import Meter
from platform_plugin.output import VECTOR, example, output_type, to_answer
from platform_plugin.prompting import fit
from platform_plugin.rows import answer_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


WIDTH = 64
"""Places of a vector."""


class EchoArgs(Frozen):
    """What the echo engine simulates.

    Attributes:
        delay_s: seconds that each row takes; rows wait side by side.
        max_model_len: words of prompt and answer together.
        fail_on: a row with this text in its prompt becomes a row with an error.
        die_on: a row with this text in its prompt ends the engine's process.
        cut_on: a row with this text in its prompt has its answer cut in half, as where max_tokens is too small.
        garble_on: a row with this text in its prompt has an answer that fits no shape.
        prefix_words: the engine remembers the prompts it saw by so many first words; 0: it does not.
        fail_start: the engine does not start, and says this.
        runner: as vLLM names it; with "pooling" it gives vectors of words, counted in `WIDTH` places.
    """

    delay_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    max_model_len: int = Field(default=8192, ge=2, strict=True)
    fail_on: str | None = Field(default=None, min_length=1)
    die_on: str | None = Field(default=None, min_length=1)
    cut_on: str | None = Field(default=None, min_length=1)
    garble_on: str | None = Field(default=None, min_length=1)
    prefix_words: int = Field(default=0, ge=0, strict=True)
    fail_start: str | None = Field(default=None, min_length=1)
    runner: Literal["auto", "generate", "pooling"] = "auto"

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
        check_ask(ask)
        check_task(ask, EchoArgs.read(self.config.engine_args).runner, self.config.model)

    def output_type(self, ask: Ask) -> pa.DataType:
        """Return string, where n > 1 a list of strings, or a vector's list of floats."""
        return output_type(ask)

    def count_tokens(self, prompts: list[str], ask: Ask) -> list[int]:
        """Return the words of each prompt, the system prompt's included."""
        system = len((ask.system_prompt or "").split())
        return [system + len(prompt.split()) for prompt in prompts]

    def footprint(self) -> Footprint:
        """Return the words that it takes; there are no weights."""
        return Footprint(max_model_len=EchoArgs.read(self.config.engine_args).max_model_len)

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
    """Answers each row with its last user message, or with some value of the shape. Runs on: Ray actor."""

    def __init__(self, args: EchoArgs) -> None:
        self._args = args
        self._meter = Meter()
        self._prefixes: set[str] = set()

    async def infer(self, batch: pa.Table, ask: Ask) -> pa.Table:
        """Answer every row, all rows at once."""
        return await answer_rows(batch, ask, self._meter, self._answer)

    def prefixes(self) -> list[str]:
        """Return the first `prefix_words` words of every prompt that was seen, each once, sorted."""
        return sorted(self._prefixes)

    def counters(self) -> Mapping[str, float]:
        """Return requests, failed, prompt_tokens, cached_tokens, output_tokens, busy_s and the gauge in_flight."""
        return self._meter.read()

    async def close(self) -> None:
        """Free nothing: an echo holds nothing."""

    async def _answer(self, text: str | None, ask: Ask) -> dict[str, Any]:
        """Return the answer of one row without its key."""
        start = time.monotonic()
        messages = to_messages(text, ask)
        if refused(messages):
            return {"error": messages}
        try:
            async with asyncio.timeout(ask.request_timeout_s):
                await asyncio.sleep(self._args.delay_s)
        except TimeoutError:
            return {"error": timed_out(ask)}
        answer = self._echo(messages, ask)
        return answer if answer.keys() == {"error"} else {**answer, "seconds": time.monotonic() - start}

    def _echo(self, messages: list[Message], ask: Ask) -> dict[str, Any]:
        args = self._args
        text = "\n".join(m["content"] for m in messages)
        if args.prefix_words:
            self._prefixes.add(" ".join(text.split()[: args.prefix_words]))
        if args.die_on and args.die_on in text:
            os._exit(1)
        if args.fail_on and args.fail_on in text:
            return {"error": error_row("engine", "EchoFailure", f"the prompt holds fail_on={args.fail_on!r}")}
        prompt = fit(messages, lambda ms: [word for m in ms for word in m["content"].split()], ask, args.max_model_len)
        if refused(prompt):
            return {"error": prompt}
        if ask.task == "embed":
            vector = _vector(prompt.tokens, ask.pooling.get("dimensions", WIDTH))
            return {"output": vector, **VECTOR, "prompt_tokens": len(prompt.tokens), "truncated": prompt.truncated}
        room = args.max_model_len - len(prompt.tokens)
        most = min(room, {**SAMPLING_DEFAULTS, **ask.sampling}["max_tokens"] or room)
        outputs, reasons, words = [], [], 0
        for index in range(ask.answers):
            output = self._output(prompt.messages, ask, index)
            if args.garble_on and args.garble_on in text:
                output = f"?{output}"
            if args.cut_on and args.cut_on in text:
                output, cut = output[: len(output) // 2], True
            elif cut := len(output.split()) > most:
                output = " ".join(output.split()[:most])
            outputs.append(output)
            reasons.append("length" if cut else "stop")
            words += len(output.split())
        return {
            **to_answer(outputs, reasons, ask),
            "prompt_tokens": len(prompt.tokens),
            "cached_tokens": 0,
            "output_tokens": words,
            "truncated": prompt.truncated,
        }

    @staticmethod
    def _output(messages: list[Message], ask: Ask, index: int) -> str:
        """Return the whole answer `index`, the same for the same messages."""
        chance = random.Random(f"{index} {json.dumps(messages)}")
        if ask.choices:
            return chance.choice(ask.choices)
        if ask.output_type is not None:
            return json.dumps(example(ask.output_type, chance))
        return next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")


def _vector(words: Sequence[str], width: int) -> list[float]:
    """Return how often words fall on each of `width` places, as a vector of length 1."""
    counts = [0] * width
    for word in words:
        counts[zlib.crc32(word.encode()) % width] += 1
    length = math.hypot(*counts)
    return [count / length for count in counts]


SPEC = EchoSpec
