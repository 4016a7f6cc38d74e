"""Models that are no LLM: how each form of one is found and loaded.

To add one, write a file ``predictors/<name>.py`` that defines

    WHAT: str                                   what a user gives as `model`, for messages
    def takes(model: str) -> bool               whether `model` names one of these; driver
    def described(config: ModelConfig) -> ModelConfig
                                                checked, with what an actor needs to find it; driver, no heavy import
    def load(config: ModelConfig) -> Predict    the model, loaded; Ray actor

A model is loaded once a process, however many transforms and callers use it there.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import pkgutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from platform_plugin.config import Frozen
from platform_plugin.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

Predict = Callable[[dict[str, "np.ndarray[Any, Any]"]], Any]
"""Arrays by the names of the input columns -> arrays by names, or one array; rows are the first axis."""


class ModelConfig(Frozen):
    """Which model, and what it takes to load it.

    Args:
        tracking_uri, registry_uri: MLflow's, as they were on the driver.
        stamp: of the file, so that one that is written anew is loaded anew.
    """

    model: str
    module_class: str | None = None
    model_args: dict[str, Any] = Field(default_factory=dict)
    tracking_uri: str | None = None
    registry_uri: str | None = None
    stamp: str = ""

    def signature(self) -> str:
        """Return 12 hex digits that are equal exactly for equal models."""
        text = json.dumps(self.model_dump(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@functools.cache
def find_predictors() -> dict[str, Any]:
    """Return the modules of all forms of models, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def form_of(model: str) -> str:
    """Return which form of model a text names. Raises ConfigError, with the forms, where it names none."""
    found = find_predictors()
    for name, module in found.items():
        if module.takes(model):
            return name
    forms = "".join(f"\n  {module.WHAT}" for module in found.values())
    gone = "" if Path(model).exists() or "/" not in model else " (there is no such file or folder)"
    raise ConfigError(f"model={model!r} is no model{gone}; wanted one of{forms}")


def described(config: ModelConfig) -> ModelConfig:
    """Return the config with all that an actor needs to load the model. Runs on: driver. Raises ConfigError."""
    form = form_of(config.model)
    if config.module_class is not None and form != "safetensors":
        raise ConfigError(
            f"moduleClass={config.module_class!r} goes with a .safetensors file only; model={config.model!r} brings "
            "its own code. Leave it out."
        )
    made: ModelConfig = find_predictors()[form].described(config)
    return made


def stamp(path: Path) -> str:
    """Return what changes when a file is written anew."""
    about = path.stat()
    return f"{about.st_size}-{about.st_mtime_ns}"


_loaded: dict[str, Predict] = {}
_lock = threading.Lock()


def loaded(config: ModelConfig) -> Predict:
    """Return the model, loaded at the first call of this process. Runs on: Ray actor."""
    key = config.signature()
    with _lock:
        if key not in _loaded:
            _loaded[key] = find_predictors()[form_of(config.model)].load(config)
        return _loaded[key]


def as_mapping(found: Any) -> Mapping[str, Any] | None:
    """Return what a model gave as columns by names, where it is that."""
    if isinstance(found, Mapping):
        return found
    if hasattr(found, "columns") and hasattr(found, "iloc"):
        return {str(name): found[name].to_numpy() for name in found.columns}
    return None
