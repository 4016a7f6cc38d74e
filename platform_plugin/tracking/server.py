"""What is asked of MLflow's server beside logging: a sign of life, the active run, a run of one's own."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from platform_plugin.tracking.courier import PROBE_S

if TYPE_CHECKING:
    from mlflow import MlflowClient


def probe(uri: str) -> None:
    """Raise unless a tracking server answers, in PROBE_S seconds; other stores are taken to be there."""
    if not uri.startswith(("http://", "https://")):
        return
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import http_request

    # A user's credentials and certificates apply; a refusal is an answer, and a 404 one of a proxy.
    credentials = get_default_host_creds(uri)  # type: ignore[no-untyped-call]
    answer = http_request(  # type: ignore[no-untyped-call]
        credentials, "/health", "GET", max_retries=0, timeout=PROBE_S, raise_on_status=False
    )
    if answer.status_code >= 500:
        raise ConnectionError(f"it answers {answer.status_code}")


def connect(uri: str) -> MlflowClient:
    """Return a client of the server or store at `uri`; nothing is asked of it yet."""
    from mlflow import MlflowClient

    return MlflowClient(uri)


def active_run() -> tuple[str | None, str | None]:
    """Return the run of this thread, else the run of the main thread as the parent of one to be made."""
    import mlflow
    from mlflow.tracking import fluent

    active = mlflow.active_run()
    if active is not None:
        return active.info.run_id, None
    if os.environ.get("MLFLOW_RUN_ID"):
        return os.environ["MLFLOW_RUN_ID"], None
    # Spark's CrossValidator transforms on threads of its own.
    stacks = fluent._active_run_stack.get_all_thread_values()
    main = stacks.get(threading.main_thread().ident or 0)
    return None, main[-1].info.run_id if main else None


def create_run(client: MlflowClient, name: str, began_s: float, parent_id: str | None) -> str:
    """Make a run in the experiment that is set, or in its parent's, and return its id."""
    from mlflow.tracking import fluent
    from mlflow.tracking.context.registry import resolve_tags

    experiment = str(fluent._get_experiment_id())
    tags = {"mlflow.parentRunId": parent_id} if parent_id else {}
    if parent_id:
        experiment = client.get_run(parent_id).info.experiment_id
    run = client.create_run(experiment, int(began_s * 1000), resolve_tags(tags), name)
    return str(run.info.run_id)


def end_run(client: MlflowClient, run_id: str, status: str) -> None:
    """End a run without a word: MLflow's ``set_terminated`` prints an address for each."""
    from mlflow.entities import RunStatus

    ended_ms = int(time.time() * 1000)
    client._tracking_client.store.update_run_info(run_id, RunStatus.from_string(status), ended_ms, None)
