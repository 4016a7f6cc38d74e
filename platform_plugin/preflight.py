"""What a transform would do, before it does it: rows, requests, tokens and memory, with no engine started."""

from __future__ import annotations

import html
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from platform_plugin.arguments import SAMPLING_DEFAULTS
from platform_plugin.footprint import Footprint

if TYPE_CHECKING:
    from platform_plugin.config import Ask
    from platform_plugin.engines import EngineSpec
    from platform_plugin.requests import Requests

SAMPLE = 1000
_Z95 = 1.96


@dataclass(frozen=True)
class Preflight:
    """What a transform would ask, printed as a small table.

    Attributes:
        prompt_tokens: estimate for all requests; `prompt_tokens_off` is half its 95 % interval, 0 if all were counted.
        too_long: estimate of the requests that the model does not take.
        output_tokens_bound: no more than so many tokens will be generated.
    """

    rows: int
    refused: dict[str, int]
    distinct: int
    sampled: int
    prompt_tokens: float
    prompt_tokens_off: float
    longest: int
    too_long: float
    output_tokens_bound: int
    footprint: Footprint

    def lines(self) -> list[tuple[str, str]]:
        """Return label and text of each line."""
        print_ = self.footprint
        off = f" ± {self.prompt_tokens_off:,.0f}" if self.prompt_tokens_off else ""
        refused = "  ".join(f"{n:,} {kind}" for kind, n in self.refused.items())
        lines = [
            ("rows", f"{self.rows:,}"),
            ("refused", refused or "none"),
            ("requests", f"{self.distinct:,} distinct"),
            ("prompt", f"{self.prompt_tokens:,.0f}{off} tokens ({self.sampled:,} requests counted)"),
            ("longest", f"{self.longest:,} of {_number(print_.max_model_len)} tokens; {self.too_long:,.0f} too long"),
            ("output", f"at most {self.output_tokens_bound:,} tokens" if self.output_tokens_bound else "vectors"),
            ("weights", _bytes(print_.weights_bytes)),
            ("KV cache", f"{_bytes(print_.kv_cache_bytes)}, {_number(print_.kv_cache_tokens)} tokens"),
        ]
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{label:<9} {text}" for label, text in self.lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{label}</th><td>{html.escape(text)}</td></tr>" for label, text in self.lines())
        return f"<table>{rows}</table>"


def preflight(requests: Requests, spec: EngineSpec, ask: Ask) -> Preflight:
    """Count the rows and the requests, and tokenize a sample of them. Runs on: driver, and Spark.

    The sample is the first of the requests in the order of their keys, which are hashes: as good as drawn by lot, and
    the same each time.
    """
    counts = requests.count()
    distinct = requests.frame.count()
    sample = [row["prompt"] for row in requests.frame.orderBy("key").limit(SAMPLE).collect()]
    tokens = spec.count_tokens(sample, ask)
    footprint = spec.footprint()
    mean = statistics.fmean(tokens) if tokens else 0.0
    spread = statistics.stdev(tokens) if len(tokens) > 1 else 0.0
    unseen = 1 - len(tokens) / distinct if distinct else 0.0
    most = footprint.max_model_len
    answer = 0 if ask.task == "embed" else 1
    long = sum(n > most - answer for n in tokens) / len(tokens) if tokens and most else 0.0
    limit = answer and ({**SAMPLING_DEFAULTS, **ask.sampling}["max_tokens"] or most or 0)
    return Preflight(
        rows=counts.rows,
        refused=dict(counts.refused),
        distinct=distinct,
        sampled=len(tokens),
        prompt_tokens=mean * distinct,
        prompt_tokens_off=_Z95 * spread / math.sqrt(len(tokens)) * math.sqrt(unseen) * distinct if tokens else 0.0,
        longest=max(tokens, default=0),
        too_long=long * distinct,
        output_tokens_bound=distinct * limit * ask.answers,
        footprint=footprint,
    )


def _bytes(size: int | None) -> str:
    return "not known here" if size is None else f"{size / 2**20:,.0f} MiB"


def _number(value: int | None) -> str:
    return "not known here" if value is None else f"{value:,}"
