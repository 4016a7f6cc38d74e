from __future__ import annotations

import math

import pytest

from platform_plugin.ask import check_ask, row_ask
from platform_plugin.chat import refused
from platform_plugin.config import Ask
from platform_plugin.errors import ConfigError
from platform_plugin.stages import LLMPredictor


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


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("name", ["requestTimeout", "idleTimeout", "startTimeout"])
def test_time_that_is_no_finite_number_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: "):
        LLMPredictor(inputCol="message", **{name: value})
