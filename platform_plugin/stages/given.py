"""Params that are given by name: refused where there is none of that name, converted where they are given to a copy."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params

from platform_plugin.errors import ConfigError, near


class GivenByName(Params):
    """How the stages of this project take their params."""

    def setParams(self, **params: Any) -> Self:
        """Set any number of params at once, by the names of the constructor."""
        return self._given(params)

    def copy(self, extra: dict[Param[Any], Any] | None = None) -> Self:
        """Return a copy with other values, converted as by a setter; PySpark would take them as they come."""
        return super().copy({param: _converted(param, value) for param, value in (extra or {}).items()})

    def _given(self, params: dict[str, Any]) -> Self:
        known = [p.name for p in self.params]
        for name in params:
            if name not in known:
                raise ConfigError(
                    f"{type(self).__name__} has no param {name!r}.{near(name, known)} explainParams() lists them all."
                )
        return self._set(**params)

    def _set(self, **params: Any) -> Self:
        """Set what is not None; what a param does not take is refused by its name."""
        given = {name: value for name, value in params.items() if value is not None}
        return super()._set(**{name: _converted(self.getParam(name), value) for name, value in given.items()})


def _converted(param: Param[Any], value: Any) -> Any:
    try:
        return param.typeConverter(value)
    except (ConfigError, TypeError, ValueError) as exc:
        raise ConfigError(f"{param.name}: {exc}") from exc
