"""Weights that were saved together with a pipeline, and the checksum by which a folder of weights is known.

    <pipeline>/stages/0_LLMPredictor_…/metadata     its model is "saved:<checksum>"
    <pipeline>/weights/<checksum>/                  config.json, *.safetensors, tokenizer

Such a stage gets the folder's path as its model when it is read, wherever the pipeline lies by then.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlparse

from platform_plugin.errors import ConfigError

SCHEME = "saved:"
FOLDER = "weights"


def checksum(folder: str | Path) -> str:
    """Return 64 hex digits of the names and contents of all files below `folder`. Reads them all."""
    root = Path(folder)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(_sha256, files))
    total = hashlib.sha256()
    for path, one in zip(files, sums, strict=True):
        total.update(f"{path.relative_to(root).as_posix()}\0{one}\n".encode())
    return total.hexdigest()


def locate(model: str, stage: str) -> str:
    """Return the folder of a model that was saved with its pipeline; any other model as it is.

    Args:
        stage: where the stage was read from, a path or a URI.

    Raises:
        ConfigError: the weights are not there, or not on a file system that an engine can read.
    """
    if not model.startswith(SCHEME):
        return model
    digest = model.removeprefix(SCHEME)
    url = urlparse(stage)
    if url.scheme not in ("", "file"):
        raise ConfigError(
            f"the weights of {stage} were saved with it, and an engine reads them from a local or shared folder only. "
            "Copy the pipeline to one, and load it from there."
        )
    for folder in Path(unquote(url.path)).absolute().parents:
        if (folder / FOLDER / digest / "config.json").is_file():
            return str(folder / FOLDER / digest)
    raise ConfigError(
        f"no folder {FOLDER}/{digest} above {stage}: copy the pipeline with all its files, and load that."
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
