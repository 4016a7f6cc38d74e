"""Measurements: one file a bench, found by its file name; `make bench` runs them, `make bench ONLY=name` one.

To add one, write a file ``bench/<name>.py`` that defines ``run(bench: Bench) -> None`` and calls ``bench.record``. A
bench that names a ratio runs both sides in one run. Nothing here is a test: no figure is asserted.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FILE = Path("build/bench.json")


@dataclass
class Bench:
    """What the benches share: one session, and where figures go."""

    command: str
    results: list[dict[str, Any]] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def spark(self) -> Any:
        """The one session of Spark on Ray, started when the first bench asks for it."""
        from platform_plugin import spark_on_ray

        return self.stack.enter_context(spark_on_ray("bench", executors=1, executor_cores=2, executor_memory="4g"))

    def record(self, name: str, value: float, unit: str, **sides: float) -> None:
        """Print a figure with both sides' raw ones, and keep it for build/bench.json."""
        command = f"make bench ONLY={self.command}"
        self.results.append({"name": name, "value": round(value, 4), "unit": unit, "sides": sides, "command": command})
        raw = "  ".join(f"{k}={v:,.3f}" for k, v in sides.items())
        sys.stdout.write(f"{name} = {value:.3f} {unit}   ({raw})\n")
        sys.stdout.flush()


def find_benches() -> list[str]:
    """Return the names of all benches, by their file names."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def run(only: list[str]) -> list[dict[str, Any]]:
    """Run benches by name, all where none is named, and write build/bench.json."""
    bench = Bench("")
    with bench.stack:
        for name in only or find_benches():
            began = time.monotonic()
            bench.command = name
            module = importlib.import_module(f"{__name__}.{name}")
            measure: Callable[[Bench], None] = module.run
            measure(bench)
            sys.stdout.write(f"  {name} took {time.monotonic() - began:.0f} s\n")
    kept = [r for r in _earlier() if r["name"] not in {n["name"] for n in bench.results}]
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps([*kept, *bench.results], indent=1))
    sys.stdout.write(f"{len(bench.results)} figures of {platform.machine()} in {FILE}\n")
    return bench.results


def _earlier() -> list[dict[str, Any]]:
    return json.loads(FILE.read_text()) if FILE.exists() else []
