"""Where UDFs run, set once for all that are made afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from platform_plugin.errors import ConfigError, near
from platform_plugin.udf.options import UdfOptions

_current = UdfOptions()


def configure(**options: Any) -> None:
    """Set where UDFs that are made from now on run; what is left out goes back to its default. Runs on: driver.

    Args:
        options: ``replicas`` (least, most), ``num_cpus``, ``num_gpus``, ``batch_rows``, ``in_flight``,
            ``idle_timeout`` and ``start_timeout`` in seconds, ``shared_prologue``, ``pool``; see
            `platform_plugin.udf.options.UdfOptions`.

    Raises:
        ConfigError: an option is not known or not valid.
    """
    global _current
    _current = UdfOptions.of(**_known(options))


def options_with(own: Mapping[str, Any] | None) -> UdfOptions:
    """Return what `configure` set, with a UDF's own options over it."""
    if not own:
        return _current
    set_before: dict[str, Any] = _current.model_dump()
    return UdfOptions.of(**{**set_before, **_known(dict(own))})


def _known(options: dict[str, Any]) -> dict[str, Any]:
    names = UdfOptions.model_fields
    for name in options:
        if name not in names:
            raise ConfigError(f"{name!r} is no option of UDFs on Ray; there are {', '.join(names)}.{near(name, names)}")
    if isinstance(options.get("replicas"), int):
        options["replicas"] = (options["replicas"], options["replicas"])
    return options
