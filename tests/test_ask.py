from __future__ import annotations

import pytest

from platform_plugin.ask import check_ask, row_ask
from platform_plugin.chat import refused
from platform_plugin.config import Ask


def test_rows_sampling_goes_over_that_of_all() -> None:
    ask = Ask(sampling={"temperature": 1.0, "n": 2, "top_p": 0.5}, system_prompt="S")
    own = row_ask(ask, '{"top_p": 0.9, "seed": 3, "n": 2}')
    assert own == ask.model_copy(update={"sampling": {"temperature": 1.0, "n": 2, "top_p": 0.9, "seed": 3}})
    assert row_ask(ask, None) is ask


def test_rows_sampling_is_checked_together_with_that_of_all() -> None:
    refusal = row_ask(Ask(sampling={"n": 2, "temperature": 1.0}), '{"temperature": 0}')
    assert refused(refusal)
    assert "n=2 would give equal answers" in str(refusal["message"])


@pytest.mark.parametrize(
    "template",
    [
        "auto",
        "none",
        "{{ messages[0].content }}",
        # What transformers adds to Jinja.
        "{% for m in messages %}{% if loop.index > 3 %}{% break %}{% endif %}{% endfor %}",
        "{%- generation -%}{{ x }}{%- endgeneration %}",
        "{{ raise_exception('no') }}{{ strftime_now('%Y') }}{{ messages | tojson }}",
    ],
)
def test_template_that_transformers_compiles_is_taken(template: str) -> None:
    check_ask(Ask(chat_template=template))
