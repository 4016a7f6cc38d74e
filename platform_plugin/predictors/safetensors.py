"""Weights in a safetensors file, and the torch module that they are for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from platform_plugin import named
from platform_plugin.errors import ConfigError
from platform_plugin.predictors import ModelConfig, Predict, stamp
from platform_plugin.tensors import TensorPredict, device

WHAT = "a *.safetensors file that every node can read, with moduleClass='package.module:Class' built with modelArgs"


def takes(model: str) -> bool:
    """Return whether it is named as safetensors files are."""
    return Path(model).suffix == ".safetensors"


def described(config: ModelConfig) -> ModelConfig:
    """Find the file and the class. Raises ConfigError."""
    path = Path(config.model).absolute()
    if not path.is_file():
        raise ConfigError(f"model={config.model!r}: there is no file {path}.")
    if config.module_class is None:
        raise ConfigError(
            f"model={config.model!r} holds weights only; say what they are for: moduleClass='package.module:Class', "
            "and modelArgs for what its constructor takes."
        )
    named.check_path(config.module_class, "moduleClass")
    # A driver need not have torch, which the class imports; the actor has.
    if importlib.util.find_spec("torch") is not None:
        named.find(config.module_class, "moduleClass")
    return config.model_copy(update={"model": str(path), "stamp": stamp(path)})


def load(config: ModelConfig) -> Predict:
    """Build the module and load its weights, all of them. Raises what torch says of weights that do not fit."""
    from safetensors.torch import load_file

    assert config.module_class is not None
    module = named.find(config.module_class, "moduleClass")(**config.model_args)
    module.load_state_dict(load_file(config.model, device=device()))
    return TensorPredict(module.to(device()))
