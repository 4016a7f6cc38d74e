"""Existing Spark UDFs on Ray actors: the public names.

One changed import: `udf_compat.functions`. No changed import: ``python -m udf_compat SCRIPT``, or `install` first.
A name is loaded when it is first used, so that importing this package loads neither Spark nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from platform_plugin.udf.pools import census
    from platform_plugin.udf.settings import configure
    from udf_compat.installing import install, uninstall
    from udf_compat.moving import on_ray, on_spark

_HOMES = {
    "census": "platform_plugin.udf.pools",
    "configure": "platform_plugin.udf.settings",
    "install": "udf_compat.installing",
    "on_ray": "udf_compat.moving",
    "on_spark": "udf_compat.moving",
    "uninstall": "udf_compat.installing",
}
__all__ = ["census", "configure", "install", "on_ray", "on_spark", "uninstall"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
