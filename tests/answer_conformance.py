"""What every engine must make of an ask: many answers, shapes, a row's own sampling, long prompts, time limits.

A part of the suite of `engine_conformance`.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.config import Ask, EngineConfig
from platform_plugin.engines import Engine, EngineSpec
from platform_plugin.errors import ConfigError
from platform_plugin.output import fault
from tests.asking import SHORT, batch_of


def struct_of(**fields: Any) -> dict[str, Any]:
    """Return the JSON form of a Spark struct."""
    named = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": named}


TICKET = struct_of(intent="string", urgent="boolean")
NUMBERS = {"type": "array", "elementType": "byte", "containsNull": True}
VISIT = struct_of(day="date", place=struct_of(floor="short", open="boolean", at="timestamp_ntz"), price="decimal(6,2)")
CHOICES = ("card lost", "card", "日本", 'say "hi"\\\n')
WARM = {"temperature": 1.0, "max_tokens": 8}


class AnswerConformance:
    """The contract of `Ask`; the fixtures are those of `EngineFixtures`."""

    config: EngineConfig

    def test_n_answers_are_a_list(self, spec: EngineSpec, ask: Any) -> None:
        three = Ask(sampling={**WARM, "n": 3})
        spec.check_ask(three)
        assert spec.output_type(three) == pa.list_(pa.string())
        good, bad = ask(batch_of("tell me about taxis", None), three)
        assert [type(text) for text in good["output"]] == [str] * 3
        assert 3 <= good["output_tokens"] <= 24
        assert good["prompt_tokens"] == ask(batch_of("tell me about taxis"))[0]["prompt_tokens"]
        assert bad["error"]["type"] == "NullPrompt"

    def test_answer_is_one_of_the_choices(self, spec: EngineSpec, ask: Any) -> None:
        choose = Ask(choices=CHOICES)
        spec.check_ask(choose)
        rows = ask(batch_of(*(f"what is number {i}?" for i in range(6))), choose)
        assert {row["output"] for row in rows} <= set(CHOICES)
        assert {row["finish_reason"] for row in rows} == {"stop"}

    @pytest.mark.parametrize("kind", [TICKET, VISIT, NUMBERS], ids=["flat", "nested", "array"])
    def test_answer_is_of_the_type(self, spec: EngineSpec, ask: Any, kind: dict[str, Any]) -> None:
        typed = Ask(output_type=kind)
        spec.check_ask(typed)
        rows = ask(batch_of("My card was stolen, block it!", "Open on 3 May at 10:00?"), typed)
        assert [row["error"] for row in rows] == [None, None]
        assert [fault(row["output"], kind) for row in rows] == [None, None]

    def test_n_typed_answers_are_a_list_of_json(self, ask: Any) -> None:
        (row,) = ask(batch_of("my card is gone"), Ask(output_type=VISIT, sampling={"n": 2, "temperature": 1.0}))
        assert [fault(text, VISIT) for text in row["output"]] == [None, None]

    @pytest.mark.parametrize(
        "shape", [{"output_type": TICKET}, {"output_type": TICKET, "n": 2}, {"choices": CHOICES[:1]}]
    )
    def test_shaped_answer_that_was_cut_is_an_error_with_its_text(self, ask: Any, shape: dict[str, Any]) -> None:
        shape = dict(shape)
        sampling = {"max_tokens": 1, "n": shape.pop("n", 1), "temperature": 1.0}
        row, other = ask(batch_of("my card is gone", None), Ask(sampling=sampling, **shape))
        assert (row["error"]["stage"], row["error"]["type"], row["finish_reason"]) == ("output", "OutputCut", "length")
        assert "max_tokens" in row["error"]["message"]
        assert row["raw_text"]
        assert row["output_tokens"] == sampling["n"]
        assert row["prompt_tokens"] > 0
        assert other["error"]["type"] == "NullPrompt"

    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"choices": ("a",), "output_type": TICKET}, "both set"),
            ({"choices": ("a", "a")}, "all different"),
            ({"choices": ("a", "")}, "not empty"),
            ({"choices": ()}, "at least one"),
            ({"chat_template": " "}, "chatTemplate is empty"),
            ({"sampling": {"max_tokens": 10**30}}, r"below 2\^31"),
            ({"sampling": {"n": 10**9, "temperature": 1.0}}, "at most 16384"),
            ({"sampling": {"allowed_token_ids": []}}, "one at least"),
            ({"sampling": {"stop_token_ids": [-1]}}, "a list of token ids"),
            ({"output_type": struct_of(a="binary")}, r"outputSchema\.a is binary"),
            ({"choices": ("a",), "sampling": {"min_tokens": 3}}, "min_tokens cannot go with"),
            ({"sampling": {"n": 2}}, "temperature above 0"),
            ({"chat_template": "{% for m in messages %}"}, "chatTemplate is not Jinja: line 1"),
            ({"chat_template_kwargs": {"tokenize": False}}, "'tokenize' cannot be set"),
            ({"chat_template": "none", "messages": True}, "need a template"),
            ({"chat_template": "none", "system_prompt": "Be brief."}, "a system prompt need a template"),
        ],
    )
    def test_ask_that_no_row_can_meet_is_refused(self, spec: EngineSpec, given: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            spec.check_ask(Ask(**given))

    def test_rows_own_sampling_wins(self, ask: Any) -> None:
        own = ['{"max_tokens": 1}', None, '{"max_tokens": 3}', "{}"]
        rows = ask(batch_of(*["tell me about yellow taxis please"] * 4, sampling=own), Ask(sampling={"max_tokens": 2}))
        assert [row["output_tokens"] for row in rows] == [1, 2, 3, 2]

    @pytest.mark.parametrize(
        ("sampling", "words"),
        [
            ("max_tokens=3", "Expecting value"),
            ("[1]", "got list; wanted a JSON object"),
            ("null", "got NoneType"),
            ('{"maxTokens": 3}', "'max_tokens'"),
            ('{"temperature": 9}', "from 0 to 2"),
            ('{"max_tokens": "3"}', "is str"),
            ('{"temperature": NaN}', "from 0 to 2"),
            ('{"n": 2, "temperature": 1}', "n is 1 for all rows"),
            ('{"structured_outputs": {}}', "cannot be set"),
            # Each of these would end vLLM's engine core, or the thread that feeds it.
            ('{"logit_bias": {"5": "x"}}', "numbers from -100 to 100"),
            ('{"seed": 99999999999999999999}', "64 bits"),
        ],
    )
    def test_sampling_that_is_none_makes_a_bad_row(self, ask: Any, sampling: str, words: str) -> None:
        bad, good = ask(batch_of("hello", "hello", sampling=[sampling, None]))
        assert (bad["error"]["stage"], bad["error"]["type"]) == ("sampling", "BadSampling")
        assert words in bad["error"]["message"]
        assert good["error"] is None

    def test_seed_makes_a_row_repeatable(self, ask: Any) -> None:
        def texts() -> list[str]:
            own = ['{"seed": 7}', '{"seed": 7}']
            return [row["output"] for row in ask(batch_of("tell", "tell", sampling=own), Ask(sampling=WARM))]

        assert len({*texts(), *texts()}) == 1

    @pytest.mark.parametrize("side", ["truncate_left", "truncate_right"])
    @pytest.mark.parametrize(("max_tokens", "part"), [(4, 0), (None, 4), (10_000, 4)])
    def test_long_message_is_cut_to_leave_room(self, ask: Any, side: Any, max_tokens: int | None, part: int) -> None:
        limit = self.config.engine_args["max_model_len"]
        room = limit // part if part else 4
        shorten = Ask(
            system_prompt="Be brief.", prompt_too_long=side, sampling={"max_tokens": max_tokens, "stop": [" "]}
        )
        long, short = ask(batch_of("go " * limit * 2, "go"), shorten)
        assert (long["error"], long["truncated"], short["truncated"]) == (None, True, False)
        assert limit - room - 1 <= long["prompt_tokens"] <= limit - room

    def test_prompt_that_the_model_takes_is_not_cut(self, ask: Any) -> None:
        limit = self.config.engine_args["max_model_len"]
        base = ask(batch_of("go"))[0]["prompt_tokens"]
        shorten = SHORT.model_copy(update={"prompt_too_long": "truncate_left"})
        (row,) = ask(batch_of("go" + " go" * (limit - 1 - base)), shorten)
        assert (row["prompt_tokens"], row["truncated"]) == (limit - 1, False)

    def test_only_the_last_user_message_is_cut(self, ask: Any) -> None:
        limit = self.config.engine_args["max_model_len"]
        shorten = SHORT.model_copy(update={"messages": True, "prompt_too_long": "truncate_right"})
        first = {"role": "user", "content": "go " * limit}
        last = {"role": "user", "content": "go on"}
        bad, good = ask(batch_of(json.dumps([first, last]), json.dumps([last, first])), shorten)
        assert (bad["error"]["stage"], bad["error"]["type"]) == ("length", "PromptTooLong")
        assert "are not of the last user message" in bad["error"]["message"]
        assert (good["error"], good["truncated"]) == (None, True)

    def test_bare_text_is_cut_too(self, ask: Any) -> None:
        limit = self.config.engine_args["max_model_len"]
        shorten = SHORT.model_copy(update={"chat_template": "none", "prompt_too_long": "truncate_left"})
        (row,) = ask(batch_of("go " * limit), shorten)
        assert (row["error"], row["truncated"]) == (None, True)
        assert limit - 5 <= row["prompt_tokens"] <= limit - 4

    def test_row_that_takes_too_long_is_a_bad_row(self, engine: Engine, ask: Any, runner: asyncio.Runner) -> None:
        (row,) = ask(batch_of("count"), Ask(sampling={"max_tokens": 400, "ignore_eos": True}, request_timeout_s=1e-4))
        assert (row["error"]["stage"], row["error"]["type"]) == ("engine", "RequestTimeout")
        assert row["error"]["retryable"] is True
        assert "requestTimeout=0.0001 s" in row["error"]["message"]
        assert engine.counters()["in_flight"] == 0
