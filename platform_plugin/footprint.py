"""What a model needs of a replica's memory, from its files alone: no engine is started and no weight is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Footprint:
    """Bytes that one replica needs; None where the model's files are not on this machine."""

    max_model_len: int | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_cache_bytes: int | None = None

    @property
    def kv_cache_tokens(self) -> int | None:
        """Tokens that the KV cache holds, of all requests in flight together."""
        if not self.kv_bytes_per_token or self.kv_cache_bytes is None:
            return None
        return self.kv_cache_bytes // self.kv_bytes_per_token


def of_folder(folder: str, engine_args: dict[str, Any]) -> Footprint:
    """Return the footprint of a model's folder under vLLM-spelled engine arguments."""
    known = engine_args.get("max_model_len")
    path = Path(folder) / "config.json"
    if not path.is_file():
        return Footprint(max_model_len=known, kv_cache_bytes=engine_args.get("kv_cache_memory_bytes"))
    config = json.loads(path.read_text())
    heads = config.get("num_key_value_heads") or config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    size = 4 if engine_args.get("dtype") in ("float32", "float") else 2
    return Footprint(
        max_model_len=known or config.get("max_position_embeddings"),
        weights_bytes=sum(p.stat().st_size for p in Path(folder).glob("*.safetensors")) or None,
        # A key and a value for each head of each layer.
        kv_bytes_per_token=2 * config["num_hidden_layers"] * heads * width * size,
        kv_cache_bytes=engine_args.get("kv_cache_memory_bytes"),
    )
