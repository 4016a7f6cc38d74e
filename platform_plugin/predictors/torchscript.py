"""A TorchScript file: the module and its weights in one, without the code that made it."""

from __future__ import annotations

from pathlib import Path

from platform_plugin.errors import ConfigError
from platform_plugin.predictors import ModelConfig, Predict, stamp
from platform_plugin.tensors import TensorPredict, device, torch_module

WHAT = "a TorchScript file, *.pt or *.ts, that every node can read"


def takes(model: str) -> bool:
    """Return whether it is named as TorchScript files are."""
    return Path(model).suffix in (".pt", ".ts")


def described(config: ModelConfig) -> ModelConfig:
    """Find the file. Raises ConfigError."""
    path = Path(config.model).absolute()
    if not path.is_file():
        raise ConfigError(f"model={config.model!r}: there is no file {path}.")
    if config.model_args:
        raise ConfigError("modelArgs goes with a class or a .safetensors file; a TorchScript file is built already.")
    return config.model_copy(update={"model": str(path), "stamp": stamp(path)})


def load(config: ModelConfig) -> Predict:
    """Load the module onto the actor's device."""
    return TensorPredict(torch_module().jit.load(config.model, map_location=device()))
