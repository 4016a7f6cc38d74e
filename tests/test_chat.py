from __future__ import annotations

import json

from platform_plugin.chat import refused, to_messages
from platform_plugin.config import Ask


def test_system_prompt_comes_first() -> None:
    assert to_messages("hi", Ask(system_prompt="S")) == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "hi"},
    ]


def test_rows_own_system_message_wins() -> None:
    talk = [{"role": "system", "content": "own"}, {"role": "user", "content": "hi"}]
    assert to_messages(json.dumps(talk), Ask(messages=True, system_prompt="S")) == talk


def test_row_without_text_is_refused_by_what_it_lacks() -> None:
    assert [refused(m) and m["type"] for m in (to_messages(None, Ask()), to_messages("", Ask()))] == [
        "NullPrompt",
        "EmptyPrompt",
    ]


def test_text_is_no_json_where_it_is_not_asked_as_messages() -> None:
    assert to_messages('[{"role": "user"}]', Ask()) == [{"role": "user", "content": '[{"role": "user"}]'}]
