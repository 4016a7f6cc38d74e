from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_plugin.chat import Message, refused
from platform_plugin.config import Ask
from platform_plugin.prompting import Prompt, Prompter, fit

LEFT = Ask(prompt_too_long="truncate_left", sampling={"max_tokens": 2})
RIGHT = Ask(prompt_too_long="truncate_right", sampling={"max_tokens": 2})


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def letters(messages: list[Message]) -> str:
    """Return one token a letter, with one more around each message."""
    return "".join(f"<{m['content']}" for m in messages)


def pieces(messages: list[Message]) -> list[str]:
    """Return tokens of most uneven length: every capital begins one."""
    text = letters(messages)
    starts = [0, *(i for i, c in enumerate(text) if i and (c == "<" or c.isupper()))]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


def fitted(messages: list[Message], ask: Ask, limit: int, render: Any = letters) -> Prompt:
    prompt = fit(messages, render, ask, limit)
    assert not refused(prompt)
    return prompt


def test_left_drops_the_beginning_and_right_the_end() -> None:
    assert fitted([user("0123456789")], LEFT, 8).tokens == "<56789"
    assert fitted([user("0123456789")], RIGHT, 8).tokens == "<01234"


def test_only_the_last_user_message_is_shortened() -> None:
    talk = [{"role": "system", "content": "S"}, user("first"), user("last one"), {"role": "assistant", "content": "A"}]
    prompt = fitted(talk, LEFT, 16)
    assert prompt.messages == [*talk[:2], user("one"), talk[3]]
    assert prompt.truncated
    assert talk[2] == user("last one")


def test_answer_is_left_a_quarter_of_the_room_at_most() -> None:
    def tokens(max_tokens: int | None) -> int:
        ask = Ask(prompt_too_long="truncate_left", sampling={"max_tokens": max_tokens})
        return len(fitted([user("x" * 100)], ask, 20).tokens)

    assert [tokens(1), tokens(3), tokens(256), tokens(None)] == [19, 17, 15, 15]


@pytest.mark.parametrize(
    "talk", [[{"role": "system", "content": "x" * 20}, user("hello")], [{"role": "system", "content": "x" * 99}]]
)
def test_what_is_too_long_without_the_message_is_refused(talk: list[Message]) -> None:
    refusal = fit(talk, letters, LEFT, 20)
    assert refused(refusal)
    assert refusal["type"] == "PromptTooLong"


@given(
    text=st.text("aB", min_size=1, max_size=300),
    limit=st.integers(8, 60),
    side=st.sampled_from([LEFT, RIGHT]),
    render=st.sampled_from([letters, pieces]),
)
def test_the_longest_part_that_fits_is_kept(text: str, limit: int, side: Ask, render: Any) -> None:
    prompt = fitted([user(text)], side, limit, render)
    kept = prompt.messages[0]["content"]
    if not prompt.truncated:
        assert kept == text
        assert len(prompt.tokens) < limit
        return
    assert text.endswith(kept) if side is LEFT else text.startswith(kept)
    assert len(prompt.tokens) <= limit - 2
    more = text[-len(kept) - 1 :] if side is LEFT else text[: len(kept) + 1]
    # One letter more is too long, or the same number of tokens: then the budget was met.
    assert len(render([user(more)])) > limit - 2 or len(prompt.tokens) == limit - 2


def test_long_text_takes_few_renderings() -> None:
    sizes: list[int] = []

    def counting(messages: list[Message]) -> list[str]:
        tokens = pieces(messages)
        sizes.append(len(tokens))
        return tokens

    fitted([user("aB" * 20_000 + "a" * 100_000 + "BaaB" * 20_000)], LEFT, 4096, counting)
    assert len(sizes) <= 30
    assert sum(sizes[1:]) < 20 * 4096


class Tokenizer:
    """A tokenizer of letters, whose template writes what it was given."""

    chat_template: str | None = "own"

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def apply_chat_template(self, messages: list[Message], *, chat_template: str | None, **options: Any) -> list[int]:
        if chat_template == "raises":
            raise ValueError(f"on {threading.current_thread().name}")
        return self.encode(f"{chat_template} {letters(messages)} {options}")


def said(ask: Ask, text: str = "hi", tokenizer: Tokenizer | None = None) -> Any:
    prompter = Prompter(tokenizer or Tokenizer(), 4096)
    prompt = asyncio.run(prompter.prompt(text, ask))
    prompter.close()
    return prompt if refused(prompt) else prompter.tokenizer.decode(prompt.tokens)


def test_template_gets_the_asks_text_and_arguments() -> None:
    usual = "'tokenize': True, 'return_dict': False, 'add_generation_prompt': True"
    assert said(Ask()) == f"None <hi {{{usual}}}"
    kwargs = {"enable_thinking": False, "add_generation_prompt": False}
    asked = Ask(chat_template="{{ x }}", chat_template_kwargs=kwargs)
    assert said(asked).startswith("{{ x }} <hi ")
    assert "'add_generation_prompt': False, 'enable_thinking': False" in said(asked)


def test_text_is_bare_where_there_is_no_template() -> None:
    bare = Tokenizer()
    bare.chat_template = None
    assert said(Ask(chat_template="none")) == said(Ask(), tokenizer=bare) == "hi"
    assert said(Ask(chat_template="{{ x }}"), tokenizer=bare).startswith("{{ x }} <hi")
    assert said(Ask(system_prompt="S"), tokenizer=bare).startswith("None <S<hi")


def test_template_that_raises_is_a_refusal_from_the_tokenizers_thread() -> None:
    refusal = said(Ask(chat_template="raises"))
    assert (refusal["stage"], refusal["type"]) == ("template", "ValueError")
    assert refusal["message"].startswith("on tokenize")


def test_mark_that_the_template_wrote_is_seen() -> None:
    prompter = Prompter(Tokenizer(), 99)
    tokens = [Prompt([], prompter.tokenizer.encode(text), truncated=False) for text in ("a<think>\n", "<think>a")]
    assert [prompter.ends_with("<think>", prompt) for prompt in tokens] == [True, False]
