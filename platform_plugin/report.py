"""What a run did, for people and for the log: a small table, HTML in a notebook, JSON.

What the numbers are compared with (prices, gates) does not belong here.
"""

from __future__ import annotations

import dataclasses
import html
import json
from dataclasses import dataclass, field
from typing import Any, Self

from platform_plugin.tally import Histogram, Tally

__all__ = ["Histogram", "RunReport", "Tally"]


@dataclass(frozen=True)
class RunReport:
    """What one transform did.

    Attributes:
        rows: input rows; each is asked, reused or refused.
        distinct: requests asked of the engine.
        failed: **requests** by error type; each fails every row that asked it.
        refused: **rows** by error type that Spark did not let cross (an empty prompt, say).
        truncated: requests whose prompt was shortened.
        answering_s: seconds from the start of the first request to the last answer.
        seconds: of the whole transform; `steps` says what they went on, in order.
        engine_busy_share: share of `answering_s` in which the engine had work; None if unknown.
    """

    stage: str
    engine: str
    model: str
    rows: int
    distinct: int
    seconds: float
    failed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    truncated: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    answering_s: float = 0.0
    engine_busy_share: float | None = None
    latency: Histogram = field(default_factory=Histogram)
    steps: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, tally: Tally, **known: Any) -> Self:
        """Build the report of what `tally` summed; `known` are the fields that it does not know."""
        return cls(
            failed=tally.failed,
            truncated=tally.truncated,
            prompt_tokens=tally.prompt_tokens,
            cached_tokens=tally.cached_tokens,
            output_tokens=tally.output_tokens,
            answering_s=tally.seconds,
            latency=tally.latency,
            **known,
        )

    @property
    def reused(self) -> int:
        """Rows answered by another row's answer or an earlier one."""
        return self.rows - self.distinct - sum(self.refused.values())

    @property
    def tokens_per_s(self) -> float | None:
        """Output tokens per second of `answering_s`."""
        return self.output_tokens / self.answering_s if self.answering_s > 0 else None

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompt tokens that came from the engine's prefix cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and what follows from them, as JSON values."""
        quantiles = {f"latency_p{p}_s": self.latency.quantile(p / 100) for p in (50, 90, 99)}
        derived = {
            "reused": self.reused,
            "tokens_per_s": self.tokens_per_s,
            "prefix_hit_rate": self.prefix_hit_rate,
        }
        values = dataclasses.asdict(self) | {"latency": self.latency.to_dict()}
        return values | derived | quantiles

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        fields = {f.name: values[f.name] for f in dataclasses.fields(cls)}
        return cls(**fields | {"latency": Histogram.from_dict(values["latency"])})

    def to_json(self) -> str:
        """Return the report as JSON; a NaN is refused, since other readers of JSON refuse it."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def _title(self) -> str:
        return f"{self.stage}  {self.engine}  {self.model}"

    def _lines(self) -> list[tuple[str, str]]:
        """Return label and text of each line; what did not happen has no line."""
        refused = sum(self.refused.values())
        tokens = f"{self.prompt_tokens:,} in"
        if self.cached_tokens:
            tokens += f" ({self.prefix_hit_rate:.0%} from the prefix cache)"
        if self.output_tokens:
            tokens += f"  {self.output_tokens:,} out"
        if self.tokens_per_s:
            tokens += f"  {self.tokens_per_s:,.0f} out/s"
        latency = [(p, self.latency.quantile(p / 100)) for p in (50, 90, 99)]
        steps = " + ".join(f"{name} {s:.1f}" for name, s in self.steps.items())
        busy = self.engine_busy_share
        lines = [
            (
                "rows",
                f"{self.rows:,} = {self.distinct:,} asked + {self.reused:,} reused"
                + (f" + {refused:,} refused" if refused else ""),
            ),
            ("refused", _by_type(self.refused)),
            ("failed", _by_type(self.failed)),
            ("truncated", f"{self.truncated:,}" if self.truncated else ""),
            ("tokens", tokens if self.prompt_tokens or self.output_tokens else ""),
            ("latency", "  ".join(f"p{p} {s:.3g} s" for p, s in latency if s is not None)),
            ("engine", f"busy {busy:.0%}" if busy is not None else ""),
            ("seconds", f"{self.seconds:.1f}" + (f" = {steps}" if steps else "")),
        ]
        return [(label, text) for label, text in lines if text]

    def __str__(self) -> str:
        lines = [f"  {label:<9}  {text}" for label, text in self._lines()]
        return "\n".join([self._title(), *lines])

    def _repr_html_(self) -> str:
        left = "text-align: left"
        cells = "".join(
            f'<tr><th style="{left}">{label}</th><td style="{left}">{html.escape(text)}</td></tr>'
            for label, text in self._lines()
        )
        caption = f'<caption style="{left}">{html.escape(self._title())}</caption>'
        return f"<table>{caption}{cells}</table>"


def _by_type(counts: dict[str, int]) -> str:
    """Return "12 PromptTooLong  3 Timeout", the most frequent first."""
    return "  ".join(f"{n:,} {kind}" for kind, n in sorted(counts.items(), key=lambda e: -e[1]))
