"""This machine's processor, memory, disk, network and GPU while a transform runs, as MLflow's own monitor names them.

MLflow's monitor asks the server for the run at each sample, on a thread that waits minutes for a server that is down;
here its collectors are used, and whoever wants the figures takes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

INTERVAL_S = 10.0
PREFIX = "system/"


class SystemMetrics:
    """Samples on a thread of its own until `stop`. Runs on: driver, of whose machine it tells."""

    def __init__(self, ready: Callable[[], None]) -> None:
        """Begin to sample; `ready` is called every ten seconds, and whoever is called then calls `take`."""
        import psutil
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

        kinds: list[Any] = [CPUMonitor, DiskMonitor, NetworkMonitor]
        self._collectors = [kind() for kind in kinds] + _gpu()
        self._ready = ready
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        psutil.cpu_percent()  # the first call has nothing to compare with
        threading.Thread(target=self._run, name="platform-plugin-system-metrics", daemon=True).start()

    def stop(self) -> None:
        """Take a last sample and no more; `take` returns it."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._collect()

    def take(self) -> dict[str, float]:
        """Return the averages since the last time, none twice."""
        with self._lock:
            found: dict[str, float] = {}
            for collector in self._collectors:
                found |= {PREFIX + name: float(value) for name, value in collector.aggregate_metrics().items()}
                collector.clear_metrics()
        return found

    def _collect(self) -> None:
        with self._lock:
            for collector in self._collectors:
                collector.collect_metrics()

    def _run(self) -> None:
        interval_s = float(os.environ.get("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL") or INTERVAL_S)
        while not self._stopped.wait(interval_s):
            self._collect()
            self._ready()


def switched_off(run_id: str | None) -> bool:
    """Return whether MLflow does it for this run already, or the user turned it off."""
    from mlflow.tracking import fluent

    off = os.environ.get("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "").lower() == "false"
    return off or run_id in fluent.run_id_to_system_metrics_monitor


def _gpu() -> list[Any]:
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

    try:
        return [GPUMonitor()]  # type: ignore[no-untyped-call]
    except Exception:  # no GPU, or no package that sees one
        return []
