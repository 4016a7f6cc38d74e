"""What every engine must do. A test file of an engine subclasses `EngineConformance` and says how to build it small."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.config import Ask, EngineConfig
from platform_plugin.engines import Engine, EngineSpec, load_spec
from platform_plugin.errors import ConfigError
from tests.answer_conformance import AnswerConformance
from tests.asking import SHORT, EngineFixtures, batch_of


class EngineConformance(AnswerConformance, EngineFixtures):
    """The contract of `Engine` and `EngineSpec`; `max_model_len` of `config` is at most 512."""

    def prompt_of(self, tokens: int, ask: Any) -> str:
        """Return a prompt that is `tokens` tokens long with all that the engine puts around it."""
        base = ask(batch_of("go"))[0]["prompt_tokens"]
        return "go" + " go" * (tokens - base)

    def test_spec_pickles_and_is_frozen(self, spec: EngineSpec) -> None:
        assert pickle.loads(pickle.dumps(spec)) == spec
        with pytest.raises(AttributeError):
            spec.config = EngineConfig()

    def test_spec_satisfies_the_protocol(self, spec: EngineSpec) -> None:
        assert isinstance(spec, EngineSpec)
        spec.check()
        spec.check_ask(SHORT)
        assert spec.output_type(SHORT) == pa.string()
        assert spec.placement().total()["CPU"] > 0

    def test_engine_satisfies_the_protocol(self, engine: Engine) -> None:
        assert isinstance(engine, Engine)

    def test_unknown_engine_argument_is_refused_with_the_near_name(self) -> None:
        config = self.config.model_copy(update={"engine_args": {"maxModelLen": 64}})
        with pytest.raises(ConfigError, match=r"maxModelLen.*max_model_len"):
            load_spec(config).check()

    def test_unknown_sampling_key_is_refused_with_the_near_name(self, spec: EngineSpec) -> None:
        with pytest.raises(ConfigError, match=r"maxTokens.*max_tokens"):
            spec.check_ask(Ask(sampling={"maxTokens": 4}))

    def test_sampling_value_of_wrong_type_is_refused(self, spec: EngineSpec) -> None:
        with pytest.raises(ConfigError, match=r"max_tokens"):
            spec.check_ask(Ask(sampling={"max_tokens": "four"}))

    def test_rows_keep_their_order(self, ask: Any) -> None:
        rows = ask(batch_of(*(f"word {i}" for i in range(40))))
        assert len(rows) == 40
        assert {row["error"] for row in rows} == {None}

    def test_one_row_has_all_figures(self, ask: Any) -> None:
        (row,) = ask(batch_of("one two three four five six"))
        assert row["finish_reason"] in ("stop", "length")
        assert row["prompt_tokens"] >= 6
        assert 0 <= row["cached_tokens"] <= row["prompt_tokens"]
        assert 1 <= row["output_tokens"] <= 4
        assert row["truncated"] is False
        assert row["seconds"] >= 0

    def test_answer_stops_at_max_tokens(self, ask: Any) -> None:
        (row,) = ask(batch_of("one two three four"), Ask(sampling={"max_tokens": 2, "temperature": 0}))
        assert (row["finish_reason"], row["output_tokens"]) == ("length", 2)

    def test_batch_of_no_rows_has_no_answers(self, ask: Any) -> None:
        assert ask(batch_of()) == []

    def test_null_and_empty_prompts_are_bad_rows_among_good_ones(self, ask: Any) -> None:
        rows = ask(batch_of("good", None, "", "good"))
        assert [row["error"] and row["error"]["type"] for row in rows] == [
            None,
            "NullPrompt",
            "EmptyPrompt",
            None,
        ]
        assert rows[0]["output"] == rows[3]["output"]

    def test_batch_without_a_good_row_has_the_same_schema(self, ask: Any) -> None:
        assert len(ask(batch_of(None, ""))) == 2

    def test_prompt_at_the_limit_has_room_for_one_token(self, ask: Any) -> None:
        limit = self.config.engine_args["max_model_len"]
        (row,) = ask(batch_of(self.prompt_of(limit - 1, ask)))
        assert (row["prompt_tokens"], row["output_tokens"]) == (limit - 1, 1)

    @pytest.mark.parametrize("beyond", [0, 1, 1000])
    def test_longer_prompt_is_a_bad_row_that_says_by_how_much(self, ask: Any, beyond: int) -> None:
        limit = self.config.engine_args["max_model_len"]
        bad, good = ask(batch_of(self.prompt_of(limit + beyond, ask), "go"))
        assert (bad["error"]["stage"], bad["error"]["type"]) == ("length", "PromptTooLong")
        assert bad["error"]["message"].startswith(f"{limit + beyond} tokens, the model takes {limit - 1} ")
        assert good["error"] is None

    def test_messages_are_answered(self, ask: Any) -> None:
        talk = [
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "reply"},
            {"role": "user", "content": "second"},
        ]
        (row,) = ask(batch_of(json.dumps(talk)), SHORT.model_copy(update={"messages": True}))
        assert row["error"] is None
        assert row["prompt_tokens"] >= 3

    def test_one_user_message_is_the_same_as_a_prompt(self, ask: Any) -> None:
        (plain,) = ask(batch_of("hello there"))
        talk = json.dumps([{"role": "user", "content": "hello there"}])
        (row,) = ask(batch_of(talk), SHORT.model_copy(update={"messages": True}))
        assert (row["output"], row["prompt_tokens"]) == (plain["output"], plain["prompt_tokens"])

    def test_system_prompt_yields_to_the_rows_own(self, ask: Any) -> None:
        own = json.dumps([{"role": "system", "content": "a b c"}, {"role": "user", "content": "hello"}])
        none = json.dumps([{"role": "user", "content": "hello"}])
        both = SHORT.model_copy(update={"messages": True, "system_prompt": "a b c"})
        rows = ask(batch_of(own, none), both)
        assert rows[0]["prompt_tokens"] == rows[1]["prompt_tokens"]
        (longer,) = ask(batch_of("hello"), SHORT.model_copy(update={"system_prompt": "a b c d e f"}))
        assert longer["prompt_tokens"] > rows[0]["prompt_tokens"]

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("hello", "Expecting value"),
            ("[]", "empty array"),
            ('{"role": "user"}', "got dict"),
            ('["hello"]', "message 0 is a str"),
            ('[{"role": "user"}]', "content=None"),
            ('[{"role": 1, "content": "a"}]', "role=1"),
            (r'[{"role": "user", "content": "\ud800"}]', "surrogates not allowed"),
            ("[" * 100_000, "recursion"),
        ],
    )
    def test_messages_that_are_none_are_bad_rows(self, ask: Any, text: str, word: str) -> None:
        good = json.dumps([{"role": "user", "content": "hello"}])
        bad, other = ask(batch_of(text, good), SHORT.model_copy(update={"messages": True}))
        assert (bad["error"]["stage"], bad["error"]["type"]) == ("prompt", "BadMessages")
        assert word in bad["error"]["message"]
        assert other["error"] is None

    @pytest.mark.parametrize(
        "text",
        ["日本語のテキスト", "👩‍👩‍👧‍👦 🇫🇷", "naïve café", "\x00\x01", " ", "{% raw %}{{ x }}"],
    )
    def test_any_text_is_answered(self, ask: Any, text: str) -> None:
        (row,) = ask(batch_of(text))
        assert row["error"] is None

    def test_batches_run_side_by_side(self, engine: Engine, runner: asyncio.Runner) -> None:
        async def both() -> list[pa.Table]:
            calls = (engine.infer(batch_of(f"a {i}", f"b {i}"), SHORT) for i in range(2))
            return list(await asyncio.gather(*calls))

        first, second = runner.run(both())
        assert first["key"].to_pylist() == second["key"].to_pylist() == [b"0", b"1"]
        assert first["error"].null_count == second["error"].null_count == 2

    def test_counters_are_the_sums_of_the_rows(self, engine: Engine, ask: Any) -> None:
        before = dict(engine.counters())
        rows = ask(batch_of("a b c", None, "d e f g h"))
        after = engine.counters()
        added = {name: after[name] - before[name] for name in before}
        assert (added["requests"], added["failed"]) == (3, 1)
        for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
            assert added[name] == sum(row[name] or 0 for row in rows)
        assert added["busy_s"] > 0
        assert after["in_flight"] == 0

    def test_cancelled_batch_leaves_nothing_in_flight(self, engine: Engine, runner: asyncio.Runner) -> None:
        async def cancel() -> None:
            long = Ask(sampling={"max_tokens": 400, "temperature": 0, "ignore_eos": True})
            call = asyncio.ensure_future(engine.infer(batch_of("count", "on"), long))
            while engine.counters()["in_flight"] < 2:
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

        runner.run(cancel())
        assert engine.counters()["in_flight"] == 0
