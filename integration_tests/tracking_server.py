"""A real MLflow server on loopback: SQLite or another store, local artifacts, one worker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Server:
    """One that runs; `stop` ends it before its time."""

    uri: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End it and its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)


@contextmanager
def tracking_server(folder: Path, store: str | None = None, seconds: float = 240) -> Iterator[Server]:
    """Start a server whose files are in `folder`, and wait until it answers.

    Args:
        store: URI of its database; without one, SQLite in `folder`.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", store or f"sqlite:///{folder / 'mlflow.db'}"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    with (folder / "server.log").open("wb") as log:
        # Its runner of jobs is seven processes, of which nothing here makes use.
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    server = Server(f"http://127.0.0.1:{port}", process)
    try:
        deadline = time.monotonic() + seconds
        while not _answers(server.uri):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no MLflow server: {(folder / 'server.log').read_text()[-3000:]}")
            time.sleep(0.2)
        yield server
    finally:
        server.stop()


def _answers(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
