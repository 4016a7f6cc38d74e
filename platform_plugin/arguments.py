"""The names, JSON types and ranges of vLLM's arguments: a driver without vLLM refuses a wrong one.

The names come from ``conf/vllm_arguments.yaml``. For another version of vLLM, write it anew with

    python -m platform_plugin.arguments > conf/vllm_arguments.yaml

What needs the model or the hardware (heads against parallel sizes, memory) vLLM checks itself.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from typing import Any

import yaml

from platform_plugin.errors import ConfigError, near
from platform_plugin.profiles import conf_dir

SAMPLING_DEFAULTS: Mapping[str, Any] = types.MappingProxyType({"temperature": 0.0, "max_tokens": 256})
"""What a request is sampled with where `samplingParams` is silent; the rest is vLLM's default."""

_REPLICAS = "replicas are counted by minReplicas and maxReplicas"
_NO_COLUMN = "the answer has no column for it"
_FINAL = "a request is answered once, when it is whole"

OWNED_ENGINE_ARGS: Mapping[str, str] = types.MappingProxyType(
    {
        "model": "set the stage's model",
        "model_weights": "set the stage's model",
        "trust_remote_code": "set the stage's trustRemoteCode",
        "disable_log_stats": "the run report is made of these statistics",
        "skip_tokenizer_init": "prompts are rendered and counted with the tokenizer",
        "data_parallel_size": _REPLICAS,
        "data_parallel_rank": _REPLICAS,
        "data_parallel_start_rank": _REPLICAS,
        "data_parallel_size_local": _REPLICAS,
        "data_parallel_address": _REPLICAS,
        "data_parallel_rpc_port": _REPLICAS,
        "data_parallel_hybrid_lb": _REPLICAS,
        "data_parallel_external_lb": _REPLICAS,
        "data_parallel_multi_port_external_lb": _REPLICAS,
        "data_parallel_backend": _REPLICAS,
    }
)
"""Engine arguments that a user may not set, and why."""

OWNED_SAMPLING: Mapping[str, str] = types.MappingProxyType(
    {
        "output_kind": _FINAL,
        "stream_interval": _FINAL,
        "skip_clone": "it is internal to vLLM",
        "output_text_buffer_length": "it is internal to vLLM",
        "trace_decode_token_ids": "it is for debugging vLLM",
        "routed_experts_prompt_start": _NO_COLUMN,
        "structured_outputs": "set the stage's outputSchema or outputChoices",
        "repetition_detection": "it is an object of vLLM, which JSON cannot carry",
        "detokenize": "the answer is text",
        "logprobs": _NO_COLUMN,
        "flat_logprobs": _NO_COLUMN,
        "prompt_logprobs": _NO_COLUMN,
        "prompt_logprob_token_ids": _NO_COLUMN,
        "prompt_logprob_start": _NO_COLUMN,
        "logprob_token_ids": _NO_COLUMN,
    }
)
"""Sampling parameters that a user may not set, and why."""

_NO_EMPTY = ("without an empty string", lambda v: "" not in ([v] if isinstance(v, str) else v))


def _token_ids(given: list[int]) -> bool:
    return all(type(token) is int and 0 <= token < 2**31 for token in given)


_RANGES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "n": ("at least 1, and at most 16384", lambda v: 1 <= v <= 16384),
    "max_tokens": ("at least 1, and below 2^31", lambda v: 1 <= v < 2**31),
    "min_tokens": ("at least 0, and below 2^31", lambda v: 0 <= v < 2**31),
    "temperature": ("from 0 to 2", lambda v: 0 <= v <= 2),
    "top_p": ("above 0 and at most 1", lambda v: 0 < v <= 1),
    "top_k": ("at least 1, or 0 for all tokens", lambda v: v >= -1),
    "min_p": ("from 0 to 1", lambda v: 0 <= v <= 1),
    "presence_penalty": ("from -2 to 2", lambda v: -2 <= v <= 2),
    "frequency_penalty": ("from -2 to 2", lambda v: -2 <= v <= 2),
    "repetition_penalty": ("a finite number above 0", lambda v: 0 < v < float("inf")),
    "allowed_token_ids": ("a list of token ids, with one at least", lambda v: bool(v) and _token_ids(v)),
    "stop_token_ids": ("a list of token ids", _token_ids),
    "stop": _NO_EMPTY,
    "bad_words": _NO_EMPTY,
    "logit_bias": (
        "keyed by token ids, with numbers from -100 to 100",
        lambda v: all(str(t).isdecimal() and type(b) in (int, float) and -100 <= b <= 100 for t, b in v.items()),
    ),
    "seed": ("a signed integer of 64 bits", lambda v: -(2**63) <= v < 2**63),
}


def check_engine_args(args: Mapping[str, Any]) -> None:
    """Raise ConfigError for an engine argument unknown, not the user's, or of a wrong type."""
    _refuse(_faults("engineArgs", args, _arguments()["engine_args"], OWNED_ENGINE_ARGS))


def check_sampling(params: Mapping[str, Any], label: str = "samplingParams") -> None:
    """Raise ConfigError for a parameter unknown, not the user's, of a wrong type or range."""
    _refuse(_faults(label, params, _arguments()["sampling_params"], OWNED_SAMPLING))
    faults = [
        f"{label}: {name}={params[name]!r}, but it must be {wanted}."
        for name, (wanted, holds) in _RANGES.items()
        if params.get(name) is not None and not holds(params[name])
    ]
    used = {**SAMPLING_DEFAULTS, **params}
    if used.get("n", 1) > 1 and used["temperature"] == 0:
        faults.append(f"{label}: n={used['n']} would give equal answers; set a temperature above 0.")
    if used["max_tokens"] is not None and used.get("min_tokens", 0) > used["max_tokens"]:
        faults.append(f"{label}: min_tokens={used['min_tokens']} is more than max_tokens={used['max_tokens']}.")
    _refuse(faults)


_POOLING: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "dimensions": ("an integer of at least 1", lambda v: type(v) is int and v >= 1),
    "use_activation": ("true or false; true normalizes", lambda v: isinstance(v, bool)),
}


def check_pooling(params: Mapping[str, Any]) -> None:
    """Raise ConfigError for a pooling parameter unknown or of a wrong value."""
    faults = []
    for name, value in params.items():
        if name not in _POOLING:
            there = ", ".join(_POOLING)
            faults.append(f"poolingParams: {name!r} is not known; there are {there}.{near(name, _POOLING)}")
        elif not _POOLING[name][1](value):
            faults.append(f"poolingParams: {name}={value!r}, but it must be {_POOLING[name][0]}.")
    _refuse(faults)


def _refuse(faults: list[str]) -> None:
    if faults:
        raise ConfigError("\n".join(faults[:5]))


@cache
def _arguments() -> dict[str, dict[str, str]]:
    text = (conf_dir() / "vllm_arguments.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, str]] = yaml.safe_load(text)
    return loaded


def _faults(label: str, given: Mapping[str, Any], known: Mapping[str, str], owned: Mapping[str, str]) -> list[str]:
    faults = []
    for name, value in given.items():
        if name in owned:
            faults.append(f"{label}: {name!r} cannot be set: {owned[name]}.")
        elif name not in known:
            hint = near(name, known) or " Names are spelled as vLLM spells them."
            faults.append(f"{label}: vLLM has no {name!r}.{hint}")
        elif not any(_fits(value, kind) for kind in known[name].split(" | ")):
            given_type = type(value).__name__
            faults.append(f"{label}: {name}={value!r} is {given_type}, but it must be {known[name]}.")
    return faults


def _fits(value: Any, kind: str) -> bool:
    if kind.startswith("array"):
        item = kind.removeprefix("array").removeprefix("<").removesuffix(">") or "any"
        return isinstance(value, list | tuple) and all(_fits(v, item) for v in value)
    if isinstance(value, bool):  # which Python takes for an int
        return kind in ("boolean", "any")
    wanted: dict[str, type | tuple[type, ...]] = {
        "any": object,
        "null": type(None),
        "integer": int,
        "number": (int, float),
        "string": str,
        "object": Mapping,
    }
    return kind in wanted and isinstance(value, wanted[kind])


def installed_arguments() -> dict[str, dict[str, str]]:
    """Return what ``conf/vllm_arguments.yaml`` must hold for the installed vLLM. Imports vllm."""
    import dataclasses

    import msgspec
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import SamplingParams

    engine = [(f.name, f.type, f.default) for f in dataclasses.fields(AsyncEngineArgs)]
    sampling = [(f.name, f.type, f.default) for f in msgspec.structs.fields(SamplingParams)]
    return {
        "engine_args": _described(engine, OWNED_ENGINE_ARGS),
        "sampling_params": _described(sampling, OWNED_SAMPLING),
    }


def _described(fields: list[tuple[str, Any, Any]], owned: Collection[str]) -> dict[str, str]:
    described = {}
    for name, annotation, default in sorted(fields, key=lambda field: field[0]):
        if name.startswith("_") or name in owned:
            continue
        kinds = json_types(annotation)
        if default is None:  # vLLM annotates some as `int` whose default is None
            kinds |= {"null"}
        null_last = sorted(kinds, key=lambda kind: (kind == "null", kind))
        described[name] = "any" if "any" in kinds else " | ".join(null_last)
    return described


def json_types(annotation: Any) -> set[str]:
    """Return the JSON types that an annotation admits, "any" where JSON has no word for it."""
    plain: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
    if annotation in (None, type(None)):
        return {"null"}
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(json_types, inner))
    if origin is typing.Annotated:
        return json_types(inner[0])
    if origin is typing.Literal:
        return set().union(*(json_types(type(value)) for value in inner))
    base = origin or annotation
    if not isinstance(base, type) or issubclass(base, Enum):
        return {"any"}
    if base in (list, set, tuple):
        items = json_types(inner[0]) if inner else {"any"}
        item = items.pop() if len(items) == 1 else "any"
        return {"array" if item == "any" else f"array<{item}>"}
    return {"object"} if base is dict else {plain.get(base, "any")}


def _write() -> None:
    import contextlib
    import importlib.metadata
    import sys

    with contextlib.redirect_stdout(sys.stderr):  # vLLM speaks while it is imported
        found = installed_arguments()
    owner = importlib.metadata.packages_distributions()["vllm"][0]
    head = (
        f"# What vLLM {importlib.metadata.version(owner)} takes, name: JSON types. Written by\n"
        "#     python -m platform_plugin.arguments > conf/vllm_arguments.yaml\n"
        "# Names that a user may not set are in platform_plugin/arguments.py, with the reason.\n"
    )
    sys.stdout.write(head + yaml.safe_dump(found, sort_keys=False, width=120))


if __name__ == "__main__":
    _write()
