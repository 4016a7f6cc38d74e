"""A request's prompt as chat messages: what every engine does to a row before its own work.

Templates and tokens belong to the engines; the user's prompt template belongs to `template`.
"""

from __future__ import annotations

import json

from typing_extensions import TypeIs

from platform_plugin.config import Ask
from platform_plugin.engines import error_row

Message = dict[str, str]
Refusal = dict[str, object]
"""The `error` struct of a row that cannot be asked."""


def to_messages(prompt: str | None, ask: Ask) -> list[Message] | Refusal:
    """Return the messages of one row, system prompt first, or the reason why there are none."""
    if not prompt:
        kind = "NullPrompt" if prompt is None else "EmptyPrompt"
        return error_row("prompt", kind, "the row has no text to answer; filter it out or fill it in")
    if ask.messages:
        try:
            messages = _read(prompt)
        except (ValueError, RecursionError) as exc:
            wanted = 'wanted a JSON array of {"role": text, "content": text}'
            return error_row("prompt", "BadMessages", f"{exc}; {wanted}")
    else:
        messages = [{"role": "user", "content": prompt}]
    if ask.system_prompt and not any(m["role"] == "system" for m in messages):
        messages.insert(0, {"role": "system", "content": ask.system_prompt})
    return messages


def refused(value: object) -> TypeIs[Refusal]:
    """Return whether `value` is the reason of a refusal, not what was asked for."""
    return isinstance(value, dict)


def _read(text: str) -> list[Message]:
    """Return the messages of a JSON text. Raises ValueError in words for the row's owner."""
    found = json.loads(text)
    if not isinstance(found, list) or not found:
        raise ValueError(f"got {'an empty array' if found == [] else type(found).__name__}")
    for i, message in enumerate(found):
        if not isinstance(message, dict):
            raise ValueError(f"message {i} is a {type(message).__name__}")
        for key in ("role", "content"):
            if not isinstance(message.get(key), str):
                raise ValueError(f"message {i} has {key}={message.get(key)!r}")
        # "\ud800" is valid JSON and no text: Arrow and the tokenizer would raise on it.
        message["content"].encode()
        message["role"].encode()
    return found
