"""What a logged pipeline says of the weights of its stages: which they are, their checksum, or where the copy lies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from platform_plugin.errors import ConfigError, EngineStartError
from platform_plugin.profiles import resolve_profile
from platform_plugin.saved import FOLDER, SCHEME, checksum
from platform_plugin.weights import ensure_weights

OWN = "platform_plugin."


def own_stages(model: Any) -> Iterator[Any]:
    """Yield the stages of this project in a pipeline, those of nested pipelines too."""
    if type(model).__module__.startswith(OWN):
        yield model
    for stage in getattr(model, "stages", []):
        yield from own_stages(stage)


def reference(stage: Any) -> dict[str, Any]:
    """Return which weights a stage uses: its model, where they come from, and a folder's checksum."""
    model = stage.getOrDefault("model")
    source = resolve_profile(model).source
    made = {"stage": stage.uid, "model": model, "engine": stage.getOrDefault("engine")}
    made |= {"source": source.model_dump(exclude_none=True)}
    if source.folder:
        made["sha256"] = checksum(source.folder)
    return made


def copied(stage: Any, weights: Path) -> dict[str, Any]:
    """Copy a stage's weights below `weights`, have the stage name the copy, and return the reference.

    Raises:
        ConfigError: the model comes from the hub: there is no folder to copy.
    """
    profile = resolve_profile(stage.getOrDefault("model"))
    if profile.source.hub:
        raise ConfigError(
            f'model {profile.name!r} comes from the hub, and weights="copy" copies folders. '
            "Download it, and set `model` to its folder; or log it by reference."
        )
    folder = Path(ensure_weights(profile))
    digest = checksum(folder)
    if not (weights / digest).exists():
        shutil.copytree(folder, weights / digest)
    made = {"stage": stage.uid, "model": profile.name, "engine": stage.getOrDefault("engine")}
    return made | {"source": {FOLDER: digest}, "sha256": digest}


def name_copy(stage: Any, digest: str) -> None:
    """Have a stage name the weights that are saved with its pipeline."""
    stage.set(stage.model, SCHEME + digest)


def verify(stage: Any, references: list[dict[str, Any]]) -> None:
    """Raise EngineStartError where a stage's folder holds other files than when it was logged."""
    model = stage.getOrDefault("model")
    for known in references:
        if known["stage"] != stage.uid or "sha256" not in known:
            continue
        if not Path(model).is_dir():
            raise EngineStartError(
                f"the model's folder {model} is not on this machine; it was logged by reference.\n"
                'Bring it here, or log the pipeline with weights="copy".'
            )
        found = checksum(model)
        if found != known["sha256"]:
            raise EngineStartError(
                f"the files in {model} are not those that were logged: checksum {found[:12]}, "
                f"and {known['sha256'][:12]} is wanted.\n"
                "Bring back the folder as it was, or log the pipeline again with this one."
            )
