"""What is asked of an engine: checked on the driver, and made one row's own by its `sampling` column.

What a user may set is `config.Ask`; what vLLM takes is `arguments`.
"""

from __future__ import annotations

import json
import re

from platform_plugin.arguments import check_pooling, check_sampling
from platform_plugin.chat import Refusal
from platform_plugin.config import Ask
from platform_plugin.engines import error_row
from platform_plugin.errors import ConfigError
from platform_plugin.output import json_schema

_OWN_KWARGS = frozenset(
    [
        "conversation",
        "chat_template",
        "tokenize",
        "padding",
        "truncation",
        "max_length",
        "return_tensors",
        "return_dict",
        "return_assistant_tokens_mask",
        "tokenizer_kwargs",
    ]
)
"""Arguments of the tokenizer, which are not the template's."""

_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""A tag that transformers adds to Jinja, for training."""


def check_ask(ask: Ask) -> None:
    """Raise ConfigError for sampling, a template or a shape of answers that no row can be asked with. On the driver."""
    _check_values(ask, "samplingParams")
    check_pooling(ask.pooling)
    _check_template(ask)
    if ask.choices and ask.output_type is not None:
        raise ConfigError("outputChoices and outputSchema are both set: an answer has one shape; unset one of them.")
    given = ask.choices
    if given is not None and not (given and all(given) and len(set(given)) == len(given)):
        raise ConfigError(f"outputChoices={list(given)!r}: wanted at least one text, not empty and all different.")
    if ask.output_type is not None:
        json_schema(ask.output_type)


def check_task(ask: Ask, runner: str, model: str) -> None:
    """Raise ConfigError where an engine of this `runner`, as vLLM names it, does not do what is asked."""
    if (ask.task == "embed") != (runner == "pooling"):
        does, stage = ("embeds", "LLMEmbedder") if runner == "pooling" else ("generates", "LLMPredictor")
        raise ConfigError(
            f"model={model!r} {does} here (engineArgs runner={runner!r}), and task {ask.task!r} is asked of it; "
            f"give it to {stage}, or choose another model."
        )


def row_ask(ask: Ask, sampling: str | None) -> Ask | Refusal:
    """Return the ask of one row, whose own `sampling` (a JSON object) goes over that of `ask`, or what is wrong."""
    if sampling is None:
        return ask
    try:
        own = json.loads(sampling)
    except (ValueError, RecursionError) as exc:
        return bad_sampling(f"{exc}; wanted a JSON object such as {{}}")
    if not isinstance(own, dict):
        return bad_sampling(f"got {type(own).__name__}; wanted a JSON object such as {{}}")
    asked = ask.model_copy(update={"sampling": {**ask.sampling, **own}})
    try:
        _check_values(asked, "sampling")
    except ConfigError as exc:
        return bad_sampling(str(exc))
    if asked.answers != ask.answers:
        return bad_sampling(f"n={asked.answers}, but n is {ask.answers} for all rows: the column has one type")
    return asked


def bad_sampling(message: str) -> Refusal:
    """Return the error of a row whose own `sampling` cannot be used."""
    return error_row("sampling", "BadSampling", message)


def timed_out(ask: Ask) -> Refusal:
    """Return the error of a row that was not answered in time."""
    message = f"no answer within requestTimeout={ask.request_timeout_s:g} s; raise it, or lower max_tokens"
    return error_row("engine", "RequestTimeout", message, retryable=True)


def _check_values(ask: Ask, label: str) -> None:
    check_sampling(ask.sampling, label)
    endless = [name for name in ("min_tokens", "ignore_eos") if ask.sampling.get(name)]
    if ask.constrained and endless:
        # The grammar has come to its end, and the one token that it allows is forbidden.
        raise ConfigError(f"{label}: {endless[0]} cannot go with outputChoices or outputSchema; leave it out.")


def _check_template(ask: Ask) -> None:
    owned = sorted(_OWN_KWARGS & ask.chat_template_kwargs.keys())
    if owned:
        raise ConfigError(f"chatTemplateKwargs {owned[0]!r} cannot be set: it is the tokenizer's, not the template's.")
    if ask.chat_template == "none":
        given = {
            "messages": ask.messages,
            "a system prompt": ask.system_prompt,
            "chatTemplateKwargs": ask.chat_template_kwargs,
        }
        for name, value in given.items():
            if value:
                raise ConfigError(f'chatTemplate="none" sends the bare text, and {name} need a template; use "auto"')
    elif not ask.chat_template.strip():
        raise ConfigError('chatTemplate is empty, and so would be every prompt; "auto" is the model\'s own template.')
    elif ask.chat_template != "auto":
        import jinja2
        import jinja2.ext

        try:
            jinja2.Environment(extensions=[jinja2.ext.loopcontrols]).parse(_GENERATION.sub("", ask.chat_template))
        except jinja2.TemplateSyntaxError as exc:
            raise ConfigError(
                f"chatTemplate is not Jinja: line {exc.lineno}: {exc.message}. "
                'Wanted "auto" (the model\'s own), "none", or the text of a template.'
            ) from exc
