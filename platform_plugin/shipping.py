"""What a cluster that this machine joins must be sent: this package with its conf, and the user's own modules.

On one machine nothing is shipped: Ray's workers take the driver's import path.
"""

from __future__ import annotations

import functools
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from platform_plugin.profiles import conf_dir

SKIP = shutil.ignore_patterns("__pycache__", "*.pyc")


def runtime_env() -> dict[str, Any]:
    """Return the Ray runtime_env that brings the modules to every worker of a joined cluster."""
    return {"py_modules": [str(path) for path in sorted(staged().iterdir())]}


@functools.cache
def staged() -> Path:
    """Return a folder with one entry a module: ours, and those the driver has imported from the user's folders."""
    folder = Path(tempfile.mkdtemp(prefix="platform-plugin-"))
    own = Path(__file__).parent
    shutil.copytree(own, folder / own.name, ignore=SKIP)
    shutil.copytree(conf_dir(), folder / own.name / "conf", ignore=SKIP, dirs_exist_ok=True)
    for source in _user_modules():
        if source.is_dir():
            shutil.copytree(source, folder / source.name, ignore=SKIP)
        else:
            shutil.copy(source, folder / source.name)
    return folder


@functools.cache
def archive() -> Path:
    """Return the staged modules as a zip, for Spark's Python workers."""
    path = Path(tempfile.mkdtemp(prefix="platform-plugin-")) / "modules.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(staged().rglob("*")):
            if file.is_file():
                out.write(file, file.relative_to(staged()))
    return path


def _user_modules() -> list[Path]:
    """Find the top-level modules that came from outside every installation."""
    found = set()
    installed = {Path(p).resolve() for p in (sys.prefix, sys.base_prefix)}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name in ("__main__", "platform_plugin") or not file:
            continue
        path = Path(file).resolve()
        top = path.parent if path.name == "__init__.py" else path
        if path.suffix == ".py" and not any(p in path.parents for p in installed):
            found.add(top)
    return sorted(found)
