"""A PostgreSQL of its own for an MLflow server, where the machine has one: a socket in a folder, no port."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_USER = "postgres"
"""PostgreSQL refuses to run as root."""


def found() -> bool:
    """Return whether PostgreSQL, its driver and, for root, a user to run it as are on this machine."""
    installed = all(map(shutil.which, ("postgres", "initdb"))) and importlib.util.find_spec("psycopg2") is not None
    return installed and (os.geteuid() != 0 or any(entry.pw_name == _USER for entry in pwd.getpwall()))


@contextmanager
def postgres(seconds: float = 60) -> Iterator[str]:
    """Start PostgreSQL on an empty database and return its URI; nothing of it is left."""
    given: dict[str, Any] = {"user": _USER} if os.geteuid() == 0 else {}
    folder = tempfile.mkdtemp(prefix="postgres-")
    if given:
        shutil.chown(folder, _USER)
    try:
        make = ["initdb", "--no-sync", "--auth=trust", "--username=mlflow", "-D", folder]
        subprocess.run(make, cwd="/", check=True, capture_output=True, **given)
        # Nothing that is written here is to outlive a crash.
        start = ["postgres", "-D", folder, "-k", folder, "-c", "listen_addresses=", "-F"]
        process = subprocess.Popen(start, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **given)
        try:
            _wait(folder, process, seconds)
            yield f"postgresql+psycopg2://mlflow@/postgres?host={folder}"
        finally:
            process.send_signal(signal.SIGINT)  # ends its connections, too
            process.wait(30)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wait(folder: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    import psycopg2

    deadline = time.monotonic() + seconds
    while True:
        try:
            psycopg2.connect(host=folder, user="mlflow", dbname="postgres").close()
            return
        except psycopg2.OperationalError as exc:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL did not start") from exc
        time.sleep(0.1)
