"""How a Spark Python worker reaches the Ray cluster of its driver."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zipimport import zipimporter

_MANY_MODULES = 20
_SPARKS = re.compile(r"spark-core_.*\.jar|pyspark\.zip|py4j-.*\.zip")


@dataclass(frozen=True)
class Connection:
    """The address of the driver's cluster; pickles into the functions that Spark runs. Holds no token."""

    address: str
    namespace: str
    auth_mode: str | None

    @classmethod
    def of_driver(cls) -> Self:
        """Return the cluster that this process is connected to. Runs on: driver."""
        import ray

        context = ray.get_runtime_context()
        return cls(context.gcs_address, context.namespace, os.environ.get("RAY_AUTH_MODE"))

    def open(self) -> Any:
        """Connect, once a Python worker, and return the module `ray`. Runs on: Spark executor."""
        # A JVM that was started before ray.init gives its workers no RAY_AUTH_MODE: they would fail after 20 s.
        if self.auth_mode is not None:
            os.environ["RAY_AUTH_MODE"] = self.auth_mode
        import ray

        if ray.is_initialized():
            context = ray.get_runtime_context()
            if (context.gcs_address, context.namespace) == (self.address, self.namespace):
                _settle()
                return ray
            # A worker that Spark kept over a restart of Ray.
            ray.shutdown()
        ray.init(
            address=self.address,
            namespace=self.namespace,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        _settle()
        return ray


_settled_modules = 0


def _settle() -> None:
    """Make what Spark's worker does between tasks cheap: a tenth of a second each, over what no longer changes.

    Again at the head of a task before which more was imported: what the first call of an engine needs, say.
    """
    global _settled_modules
    if len(sys.modules) < _settled_modules + _MANY_MODULES:
        return
    _settled_modules = len(sys.modules)
    # It collects garbage over all that was imported ...
    gc.collect()
    gc.freeze()
    # ... and invalidates the caches of imports, for which Python reads the directories of Spark's archives again.
    for finder in list(sys.path_importer_cache.values()):
        if isinstance(finder, zipimporter) and _SPARKS.fullmatch(Path(finder.archive).name):
            finder.invalidate_caches = lambda: None  # type: ignore[method-assign]


def use_token() -> None:
    """Join with this machine's token where it has one, as `ray start` does; ray.init would come without."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    if "RAY_AUTH_MODE" not in os.environ and AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
        os.environ["RAY_AUTH_MODE"] = "token"
        Config.initialize("")
