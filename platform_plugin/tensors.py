"""A torch module as a function of arrays: what every form of one has in common."""

from __future__ import annotations

from typing import Any

from platform_plugin.errors import MissingDependencyError, UdfContractError


def torch_module() -> Any:
    """Return the package torch. Raises MissingDependencyError."""
    try:
        import torch
    except ImportError as exc:
        raise MissingDependencyError(
            "this model needs torch, which is not installed where the actor runs: pip install platform-plugin[cpu]"
        ) from exc
    return torch


def device() -> str:
    """Return where tensors go in this process: "cuda" where the actor was given a GPU."""
    return "cuda" if torch_module().cuda.is_available() else "cpu"


class TensorPredict:
    """Calls a module with one tensor a column, in the order of the columns. Runs on: Ray actor.

    Floating inputs become of the type that the module's weights have; what comes back is on the CPU.
    """

    def __init__(self, module: Any) -> None:
        self._module = module.eval()
        floats = [p.dtype for p in module.parameters() if p.dtype.is_floating_point]
        self._float = floats[0] if floats else None

    def __call__(self, inputs: dict[str, Any]) -> Any:
        """Return the module's arrays."""
        torch = torch_module()
        with torch.inference_mode():
            return self._arrays(self._module(*(self._tensor(name, array) for name, array in inputs.items())))

    def _tensor(self, name: str, array: Any) -> Any:
        if array.dtype.kind not in "biuf":
            raise UdfContractError(
                f"column {name!r} is no array of numbers ({array.dtype}); a torch module takes those."
            )
        # A copy: arrays out of Arrow are read-only, which torch warns of.
        tensor = torch_module().tensor(array, device=device())
        return tensor.to(self._float) if self._float is not None and tensor.dtype.is_floating_point else tensor

    def _arrays(self, found: Any) -> Any:
        if isinstance(found, dict):
            return {str(name): self._arrays(tensor) for name, tensor in found.items()}
        if hasattr(found, "_asdict"):
            return self._arrays(found._asdict())
        if hasattr(found, "detach"):
            found = found.detach().cpu()
            return (found.float() if str(found.dtype) == "torch.bfloat16" else found).numpy()
        return found
