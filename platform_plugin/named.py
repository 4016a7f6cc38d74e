"""An object that is named by its import path, ``package.module:name``: what a saved stage can hold in place of it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from platform_plugin.errors import ConfigError, near


def check_path(path: str, role: str) -> tuple[str, str]:
    """Return module and name of an import path. Raises ConfigError where it is none, or of ``__main__``."""
    module, colon, name = path.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ConfigError(
            f"{role}={path!r} is no import path; wanted 'package.module:name', as in {role}='features.text:length'."
        )
    if module == "__main__":
        raise ConfigError(
            f"{role}={path!r}: what a script or notebook defines itself cannot be imported by actors or when the stage "
            f"is loaded.\nMove {name!r} to a module of its own, as rules.py, and name it 'rules:{name}'."
        )
    return module, name


def stamp(path: str) -> str:
    """Return what changes when the file of a path's module, which is imported, is written anew; "" without one."""
    module = sys.modules[path.partition(":")[0]]
    file = Path(getattr(module, "__file__", None) or "/")
    return str(file.stat().st_mtime_ns) if file.is_file() else ""


def find(path: str, role: str) -> Any:
    """Import what a path names. Raises ConfigError, with near names, where there is no such thing."""
    module, name = check_path(path, role)
    try:
        found: Any = importlib.import_module(module)
    except Exception as exc:
        raise ConfigError(
            f"{role}={path!r}: module {module!r} does not import here: {type(exc).__name__}: {exc}\n"
            "It must be installed, or lie in a folder of sys.path, on the driver and wherever Ray runs."
        ) from exc
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            raise ConfigError(f"{role}={path!r}: {module!r} imports, and has no {part!r}.{near(part, names)}")
        found = getattr(found, part)
    return found
