"""A request's messages as tokens, shortened where the model does not take them whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

from platform_plugin.arguments import SAMPLING_DEFAULTS
from platform_plugin.chat import Message, Refusal, refused, to_messages
from platform_plugin.config import Ask
from platform_plugin.engines import error_row


class Prompt(NamedTuple):
    """What an engine is given."""

    messages: list[Message]
    tokens: Sequence[Any]
    truncated: bool


def fit(
    messages: list[Message], render: Callable[[list[Message]], Sequence[Any]], ask: Ask, max_model_len: int
) -> Prompt | Refusal:
    """Return the prompt as ``ask.prompt_too_long`` says, or why it is too long.

    A prompt that leaves room for one token of answer (none, where a vector is wanted) stays whole. Else it is cut so
    that ``min(max_tokens, max_model_len // 4)`` tokens are left for the answer: the last user message keeps its
    longest end (truncate_left) or beginning (truncate_right) that fits, and nothing else is touched.

    Args:
        render: messages -> the tokens of the whole prompt; called again for each length that is tried.
        max_model_len: tokens of prompt and answer together.
    """
    tokens = render(messages)
    answer = 0 if ask.task == "embed" else 1
    if len(tokens) <= max_model_len - answer:
        return Prompt(messages, tokens, truncated=False)
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=None)
    if ask.prompt_too_long == "error" or last is None:
        return _too_long(len(tokens), max_model_len, answer, "shorten the prompt or raise max_model_len")
    content = messages[last]["content"]

    def cut(size: int) -> Prompt:
        kept = content[len(content) - size :] if ask.prompt_too_long == "truncate_left" else content[:size]
        shorter = [*messages[:last], {**messages[last], "content": kept}, *messages[last + 1 :]]
        return Prompt(shorter, render(shorter), truncated=True)

    wanted = {**SAMPLING_DEFAULTS, **ask.sampling}["max_tokens"] or max_model_len
    room = answer and min(wanted, max(1, max_model_len // 4))
    size, prompt = _longest(cut, len(content), len(tokens), max_model_len - room)
    if not size:
        rest = f"of which {len(prompt.tokens)} are not of the last user message, the only one that is shortened"
        return _too_long(len(tokens), max_model_len, answer, f"{rest}; {room} are kept free for the answer")
    return prompt


def _longest(cut: Callable[[int], Prompt], length: int, tokens: int, budget: int) -> tuple[int, Prompt]:
    """Return how many of `length` characters, which are `tokens` tokens, can be kept within `budget`, and the prompt.

    By characters, since every tokenizer has them and what is kept is then the user's own text; a guess by tokens a
    character comes near in a few steps, whatever the length.
    """
    size, prompt = 0, cut(0)
    above, above_tokens = length, tokens
    step = 0
    while above - size > 1 and len(prompt.tokens) < budget:
        step += 1
        # Every third time the middle: uneven text can hold a guess at one end.
        share = (budget - len(prompt.tokens)) / (above_tokens - len(prompt.tokens)) if step % 3 else 0.5
        tried = min(max(size + int((above - size) * share), size + 1), above - 1)
        found = cut(tried)
        if len(found.tokens) <= budget:
            size, prompt = tried, found
        else:
            above, above_tokens = tried, len(found.tokens)
    return size, prompt


def _too_long(tokens: int, max_model_len: int, answer: int, remedy: str) -> Refusal:
    most = max_model_len - answer
    less = " less one for the answer" if answer else ""
    return error_row(
        "length",
        "PromptTooLong",
        f"{tokens} tokens, the model takes {most} (max_model_len {max_model_len}{less}); {remedy}",
    )


class Prompter:
    """Turns the text of a row into token ids, on a thread of its own. Runs on: Ray actor."""

    def __init__(self, tokenizer: Any, max_model_len: int) -> None:
        self.tokenizer = tokenizer
        self._max_model_len = max_model_len
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokenize")

    async def prompt(self, text: str | None, ask: Ask) -> Prompt | Refusal:
        """Return the prompt of one row, or why there is none.

        Off the loop and row by row: the first rows of a batch compute while its last ones are tokenized.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._prompt, text, ask)

    def ends_with(self, mark: str, prompt: Prompt) -> bool:
        """Return whether the template has written `mark` at the end: a model then begins inside of it."""
        end: str = self.tokenizer.decode(prompt.tokens[-16:])
        return end.rstrip().endswith(mark)

    def close(self) -> None:
        """End the thread; prompts that wait for it are dropped."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _prompt(self, text: str | None, ask: Ask) -> Prompt | Refusal:
        messages = to_messages(text, ask)
        if refused(messages):
            return messages
        try:
            return fit(messages, lambda m: token_ids(self.tokenizer, m, ask), ask, self._max_model_len)
        except Exception as exc:  # a template is a program: it raises what it likes
            return error_row("template", type(exc).__name__, str(exc))


def token_ids(tokenizer: Any, messages: list[Message], ask: Ask) -> list[int]:
    """Return the token ids of the messages through the chat template, or of the bare text where there is none."""
    own = None if ask.chat_template == "auto" else ask.chat_template
    has_template = own is not None or getattr(tokenizer, "chat_template", None) is not None
    if own == "none" or not (has_template or ask.messages or ask.system_prompt):
        return cast("list[int]", tokenizer.encode(messages[-1]["content"]))
    # Rendered and tokenized in one call: the template's own BOS is then the only one.
    options = {"add_generation_prompt": True, **ask.chat_template_kwargs}
    return cast(
        "list[int]",
        tokenizer.apply_chat_template(messages, chat_template=own, tokenize=True, return_dict=False, **options),
    )


def count_tokens(tokenizer: Any, texts: Sequence[str], ask: Ask) -> list[int]:
    """Return the number of tokens of each prompt, 0 for one that cannot be rendered. Runs on: driver."""
    counts = []
    for text in texts:
        messages = to_messages(text, ask)
        try:
            counts.append(0 if refused(messages) else len(token_ids(tokenizer, messages, ask)))
        except Exception:  # a template is a program; the run will say so of this row
            counts.append(0)
    return counts
