"""Ray for a Spark session that brings none: joined where RAY_ADDRESS says so, else started on this machine.

What is started here is stopped at the end of the program, or when a session of Spark on Ray takes over.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from platform_plugin import pool, shipping
from platform_plugin.connection import use_token

logger = logging.getLogger(__name__)

ENVIRONMENT = {
    # A busy machine answers Serve's queue probes late; the default of 0.1 s fills the log with warnings.
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "5",
    # Ray's workers run niced, so an engine starves beside anything else on its machine.
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    # Ray's C++ side writes its errors to the user's terminal, most of them about what it then mends itself.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
}
"""What Ray's processes are to find where this package starts them; a value that is set already stays."""

_lock = threading.Lock()
_address: str | None = None
_before: dict[str, str | None] = {}


def started() -> bool:
    """Return whether this process runs on a Ray that was started here."""
    import ray

    return _address is not None and ray.is_initialized() and ray.get_runtime_context().gcs_address == _address


def connect() -> None:
    """Connect this process to Ray, unless it is. Runs on: driver.

    Joins the cluster at RAY_ADDRESS where that is set; else starts Ray on this machine, for this process alone.
    """
    import ray

    global _address
    with _lock:
        if ray.is_initialized():
            return
        address = os.environ.get("RAY_ADDRESS")
        if address:
            use_token()
            ray.init(
                address=address,
                runtime_env=shipping.runtime_env(),
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
            return
        if _address is None:
            _before.update({name: os.environ.get(name) for name in (*ENVIRONMENT, "RAY_AUTH_MODE")})
        os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
        ray.init(
            address="local",
            # Only logical: Spark's cores are not Ray's, and on one machine both shares overlap anyway.
            num_cpus=(os.cpu_count() or 1) + 2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        _address = ray.get_runtime_context().gcs_address
        atexit.register(stop)
        logger.info("Ray was started on this machine; it stops with this program")


def stop() -> None:
    """Stop the engines and Ray, if Ray was started here. Safe to call twice."""
    import ray

    global _address
    with _lock:
        if _address is None:
            return
        ours = started()
        _address = None
        atexit.unregister(stop)
        try:
            if ours:
                pool.shut_down(joined=False)
        except Exception:
            logger.warning("the engines did not stop cleanly", exc_info=True)
        finally:
            if ours:
                ray.shutdown()
            for name, value in _before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            _before.clear()
