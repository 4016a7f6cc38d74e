from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import psutil
import pytest

from platform_plugin.config import Ask, EngineConfig
from platform_plugin.engines import Engine, load_spec
from platform_plugin.errors import EngineDiedError, EngineStartError
from tests.asking import SHORT, batch_of
from tests.engine_conformance import EngineConformance

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm", reason="vllm is not installed: the extra `cpu` or `gpu`")

SMALL = {
    "max_model_len": 512,
    "max_num_seqs": 16,
    "block_size": 32,
    "dtype": "bfloat16",
    "enforce_eager": True,
    "kv_cache_memory_bytes": 256 * 1024**2,
}
WITH_BOS = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
OWN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} ({{ tone }}){% endfor %}"
RAISES = "{{ raise_exception('roles must alternate') }}"


def vllm(**engine_args: Any) -> EngineConfig:
    return EngineConfig(engine="vllm", model="smollm2-135m", engine_args=SMALL | engine_args)


def engine_cores() -> list[psutil.Process]:
    """Return the living processes that this one has started for vLLM; replicas of other tests are Ray's."""
    return [
        p
        for p in psutil.Process().children()
        if p.status() != psutil.STATUS_ZOMBIE and "EngineCore" in " ".join(p.cmdline())
    ]


class TestVllmConformance(EngineConformance):
    """The conformance suite, and what is peculiar to vLLM, on one engine that the last test kills."""

    config = vllm()

    @pytest.fixture
    def sent(self, engine: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
        """Return the token ids that reach vLLM, as they come."""
        sent: list[list[int]] = []
        generate = engine._llm.generate

        def spy(prompt: dict[str, list[int]], *args: Any) -> Any:
            sent.append(prompt["prompt_token_ids"])
            return generate(prompt, *args)

        monkeypatch.setattr(engine._llm, "generate", spy)
        return sent

    @pytest.fixture
    def bos_tokenizer(self, engine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
        """Give the engine a tokenizer that adds BOS by itself, and a template that writes one too."""
        from tokenizers.processors import TemplateProcessing
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(engine._llm.model_config.tokenizer)
        bos = (tokenizer.bos_token, tokenizer.bos_token_id)
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=f"{bos[0]} $A", special_tokens=[bos])
        tokenizer.chat_template = WITH_BOS
        monkeypatch.setattr(engine._prompter, "tokenizer", tokenizer)
        return tokenizer

    def test_tokens_are_those_of_the_models_chat_template(self, engine: Any, ask: Any, sent: list[list[int]]) -> None:
        from transformers import AutoTokenizer

        ask(batch_of("Where is my card?"), SHORT.model_copy(update={"system_prompt": "Be brief."}))
        tokenizer = AutoTokenizer.from_pretrained(engine._llm.model_config.tokenizer)
        talk = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is my card?"},
        ]
        wanted = tokenizer.apply_chat_template(talk, tokenize=True, add_generation_prompt=True)
        assert sent == [wanted["input_ids"]]

    def test_template_that_writes_bos_does_not_get_two(
        self, ask: Any, sent: list[list[int]], bos_tokenizer: Any
    ) -> None:
        ask(batch_of("hello"))
        word = bos_tokenizer.encode("hello", add_special_tokens=False)
        assert sent == [[bos_tokenizer.bos_token_id, *word]]

    def test_raw_completion_keeps_the_tokenizers_bos(self, ask: Any, sent: list[list[int]], bos_tokenizer: Any) -> None:
        ask(batch_of("hello"), SHORT.model_copy(update={"chat_template": "none"}))
        word = bos_tokenizer.encode("hello", add_special_tokens=False)
        assert sent == [[bos_tokenizer.bos_token_id, *word]]

    def test_model_without_template_completes_the_bare_prompt(
        self, ask: Any, sent: list[list[int]], bos_tokenizer: Any
    ) -> None:
        bos_tokenizer.chat_template = None
        plain = ask(batch_of("hello", "hello"))
        asked = ask(batch_of("hello"), SHORT.model_copy(update={"system_prompt": "Be brief."}))
        assert [row["error"] for row in plain] == [None, None]
        assert sent == [bos_tokenizer.encode("hello")] * 2
        assert asked[0]["error"]["stage"] == "template"

    def test_template_that_raises_makes_a_bad_row(self, ask: Any, bos_tokenizer: Any) -> None:
        bos_tokenizer.chat_template = RAISES
        (row,) = ask(batch_of("hello"))
        assert (row["error"]["stage"], row["error"]["type"]) == ("template", "TemplateError")
        assert row["error"]["message"] == "roles must alternate"

    def test_own_template_and_its_arguments_are_used(self, engine: Any, ask: Any, sent: list[list[int]]) -> None:
        given = SHORT.model_copy(update={"chat_template": OWN, "chat_template_kwargs": {"tone": "kindly"}})
        (row,) = ask(batch_of("hello"), given)
        assert row["error"] is None
        assert engine._prompter.tokenizer.decode(sent[0]) == "user: hello (kindly)"

    @pytest.mark.parametrize("side", ["truncate_left", "truncate_right"])
    def test_truncation_keeps_the_template_and_the_system_prompt(
        self, engine: Any, ask: Any, sent: list[list[int]], side: Any
    ) -> None:
        text = " ".join(f"n{i}\u65e5\U0001f695" for i in range(900))
        ask(batch_of(text), SHORT.model_copy(update={"prompt_too_long": side, "system_prompt": "Be brief."}))
        said = engine._prompter.tokenizer.decode(sent[0])
        before = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
        after = "<|im_end|>\n<|im_start|>assistant\n"
        assert (said[: len(before)], said[-len(after) :]) == (before, after)
        kept = said[len(before) : -len(after)]
        assert 512 - 4 - 4 <= len(sent[0]) <= 512 - 4
        assert text.endswith(kept) if side == "truncate_left" else text.startswith(kept)

    def test_model_whose_template_opens_the_reasoning_has_it_split_off(
        self, engine: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        marks = {"reasoning": ("<think>", "</think>")}
        monkeypatch.setattr(engine, "_profile", engine._profile.model_copy(update=marks))
        for end, thinks in (("<think>\n", True), ("", False)):
            template = "{{ messages[0].content }}" + end
            (row,) = ask(batch_of("Why?"), Ask(chat_template=template, sampling={"max_tokens": 8, "min_tokens": 8}))
            assert (bool(row["reasoning"]), bool(row["output"])) == (thinks, not thinks)

    def test_logit_bias_takes_the_keys_of_json(self, engine: Any, ask: Any) -> None:
        (token,) = engine._prompter.tokenizer.encode("taxi")[:1]
        (row,) = ask(batch_of("hello"), Ask(sampling={"max_tokens": 2, "logit_bias": {str(token): 100}}))
        assert row["output"] == engine._prompter.tokenizer.decode([token, token])

    def test_request_that_timed_out_is_taken_back_from_vllm(self, engine: Any, ask: Any) -> None:
        long = {"n": 2, "temperature": 1.0, "max_tokens": 400, "ignore_eos": True}
        rows = ask(batch_of("count", "on"), Ask(sampling=long, request_timeout_s=0.3))
        assert [row["error"]["type"] for row in rows] == ["RequestTimeout"] * 2
        assert engine._llm.get_num_unfinished_requests() == 0

    def test_shape_that_sampling_forbids_fails_its_row_only(self, ask: Any) -> None:
        batch = batch_of("hello", "hello", sampling=['{"allowed_token_ids": [5]}', None])
        bad, good = ask(batch, Ask(choices=("yes", "no")))
        assert bad["error"]["type"] == "RequestAborted"
        assert good["output"] in ("yes", "no")

    @pytest.mark.parametrize(
        ("sampling", "words"),
        [
            ({"logit_bias": {"5": "x"}}, "expected `float`"),
            ({"temperature": -1.0}, "temperature"),
            ({"max_tokens": 0}, "max_tokens"),
        ],
    )
    def test_value_that_vllm_refuses_makes_bad_rows_with_its_words(
        self, ask: Any, sampling: dict[str, Any], words: str
    ) -> None:
        rows = ask(batch_of("hello", "there"), Ask(sampling=sampling))
        assert {row["error"]["type"] for row in rows} == {"BadSampling"}
        assert words in rows[0]["error"]["message"].lower()
        assert ask(batch_of("hello"))[0]["error"] is None

    def test_shared_prefix_comes_from_the_cache(self, ask: Any) -> None:
        prefix = "The rules of the game, at length and in order. " * 12
        ask(batch_of(prefix + "one"))
        (row,) = ask(batch_of(prefix + "two"))
        assert row["cached_tokens"] >= 96

    def test_cancelled_batch_is_taken_back_from_vllm(self, engine: Any, runner: asyncio.Runner) -> None:
        async def cancel() -> int:
            long = Ask(sampling={"max_tokens": 400, "temperature": 0, "ignore_eos": True})
            call = asyncio.ensure_future(engine.infer(batch_of(*(f"count {i}" for i in range(8))), long))
            while engine._llm.get_num_unfinished_requests() < 8:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return int(engine._llm.get_num_unfinished_requests())

        assert runner.run(cancel()) == 0

    def test_killed_engine_core_is_a_death_at_once(self, engine: Engine, runner: asyncio.Runner) -> None:
        async def kill() -> float:
            long = Ask(sampling={"max_tokens": 400, "temperature": 0, "ignore_eos": True})
            call = asyncio.ensure_future(engine.infer(batch_of("count", "on"), long))
            while engine.counters()["in_flight"] < 2:
                await asyncio.sleep(0)
            (core,) = engine_cores()
            os.kill(core.pid, signal.SIGKILL)
            start = time.monotonic()
            with pytest.raises(EngineDiedError, match="killed, or out of memory"):
                await call
            with pytest.raises(EngineDiedError):
                await engine.infer(batch_of("later"), SHORT)
            return time.monotonic() - start

        assert runner.run(kill()) < 5


@pytest.fixture
def nothing_left() -> Any:
    """Check that a test leaves no process of vLLM behind."""
    before = {p.pid for p in engine_cores()}
    yield
    assert {p.pid for p in engine_cores()} <= before


@pytest.mark.slow
@pytest.mark.usefixtures("nothing_left")
def test_close_leaves_no_process() -> None:
    with asyncio.Runner() as runner:
        engine = load_spec(vllm()).build()
        runner.run(engine.infer(batch_of("hello"), SHORT))
        assert len(engine_cores()) == 1
        runner.run(engine.close())


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("engine_args", "words"),
    [
        ({"dtype": "float99"}, r"float99"),
        ({"max_model_len": 1_000_000}, r"max_model_len \(1000000\) is greater than the derived"),
        # Found by the engine core alone, in its own process.
        pytest.param({"kv_cache_memory_bytes": 1024**2, "max_model_len": 8192}, r"KV cache", marks=pytest.mark.slow),
    ],
)
def test_value_that_vllm_cannot_start_with_reaches_the_user(engine_args: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineStartError, match=words) as error:
        load_spec(vllm(**engine_args)).build()
    assert "See root cause above" not in str(error.value)
    assert len(str(error.value)) < 1500
