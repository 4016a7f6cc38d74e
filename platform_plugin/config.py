"""What a user may set, checked once at construction and frozen. No Spark, Ray or engine import belongs here."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from platform_plugin.errors import ConfigError


class Frozen(BaseModel):
    """A frozen value that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Build the value; pydantic's complaint becomes a ConfigError of one line a field."""
        try:
            return cls(**values)
        except ValidationError as exc:
            lines = [
                f"{'.'.join(str(p) for p in e['loc']) or cls.__name__}={e.get('input')!r}: {e['msg']}"
                for e in exc.errors()[:5]
            ]
            raise ConfigError("; ".join(lines)) from exc


class EngineConfig(Frozen):
    """Which engine answers, with which model: what an engine's signature is made of."""

    engine: str = "vllm"
    model: str = "smollm2-135m"
    engine_args: dict[str, Any] = Field(default_factory=dict)
    trust_remote_code: bool = False

    def signature(self) -> str:
        """Return 12 hex digits that are equal exactly for equal engines, whatever the order of the keys."""
        text = json.dumps(self.model_dump(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


TooLong = Literal["error", "truncate_left", "truncate_right"]
Task = Literal["generate", "embed"]


class Ask(Frozen):
    """What one transform wants of each request; it travels with every batch, so engines are shared.

    Args:
        task: a text for an answer, or with "embed" a vector, made as `pooling` says (as vLLM spells it).
        messages: whether a prompt is a JSON array of messages.
        chat_template: "auto", "none" or Jinja text; `chat_template_kwargs` go to it.
        sampling: as vLLM spells it; a request's own `sampling` column wins over it.
        prompt_too_long: what becomes of a prompt that the model does not take.
        choices: the answer is one of these.
        output_type: the answer is JSON of this Spark type (``StructType.jsonValue()``).
        request_timeout_s: from when the engine takes the request.
    """

    task: Task = "generate"
    pooling: dict[str, Any] = Field(default_factory=dict)
    system_prompt: str | None = None
    messages: bool = False
    chat_template: str = "auto"
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    sampling: dict[str, Any] = Field(default_factory=dict)
    prompt_too_long: TooLong = "error"
    choices: tuple[str, ...] | None = None
    output_type: dict[str, Any] | None = None
    request_timeout_s: float = Field(default=600.0, gt=0)

    @property
    def answers(self) -> int:
        """How many answers a request has."""
        return int(self.sampling.get("n") or 1)

    @property
    def constrained(self) -> bool:
        """Whether decoding is held to a shape: an answer that was cut is then no answer."""
        return bool(self.choices) or self.output_type is not None


class Replicas(Frozen):
    """How many replicas an engine has, and how long an idle one is kept."""

    min_replicas: int = Field(default=1, ge=0)
    max_replicas: int = Field(default=1, ge=1)
    idle_timeout_s: float = Field(default=300.0, gt=0)
    start_timeout_s: float = Field(default=600.0, gt=0)

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"minReplicas={self.min_replicas} is more than maxReplicas={self.max_replicas}")
        return self


class Placement(Frozen):
    """What one replica needs of the cluster: `bundles` are one a GPU worker, for tensor x pipeline parallel."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    bundles: tuple[dict[str, float], ...] = ()
    strategy: Literal["PACK", "SPREAD", "STRICT_PACK"] = "PACK"

    def total(self) -> dict[str, float]:
        """Return the sum of resources of one replica."""
        if not self.bundles:
            return {"CPU": self.num_cpus, "GPU": self.num_gpus}
        keys = {k for b in self.bundles for k in b}
        return {k: sum(b.get(k, 0.0) for b in self.bundles) for k in keys}
