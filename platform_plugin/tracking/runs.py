"""A listener that puts every transform into an MLflow run: the active one, or one of its own.

What is logged is `description`'s and `plots`'; that no server can hold up a job is the courier's doing: all that talks
to a server here runs on its thread.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from platform_plugin.errors import PlatformPluginError
from platform_plugin.listeners import Transform
from platform_plugin.tracking import description, plots
from platform_plugin.tracking.courier import WAIT_S, Courier
from platform_plugin.tracking.server import active_run, connect, create_run, end_run, probe
from platform_plugin.tracking.system import SystemMetrics, switched_off

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)

SAMPLE_ROWS = 100
FIGURES = ("finish_reason", "prompt_tokens", "cached_tokens", "output_tokens", "truncated", "seconds")


@dataclass
class Tracked:
    """Where one transform is logged, and what of it was known when it began."""

    uri: str
    run_id: str | None
    parent_id: str | None
    params: dict[str, str]
    label: str
    own: bool = False
    system: SystemMetrics | None = None


@dataclass
class Place:
    """Where in a run a stage's transforms go: names begin with `prefix`, and each transform is a step."""

    prefix: str
    params: dict[str, str]
    steps: int = 0


@dataclass
class MlflowTracker:
    """Logs every transform of this process. Runs on: driver; its network traffic on the courier's thread.

    Args:
        log_samples: log prompts and answers too, not only figures of the sampled requests.
        log_models: log the stage as a model, once a run and stage.
        log_system_metrics: log this machine's while a transform runs.
    """

    log_samples: bool = False
    log_models: bool = False
    log_system_metrics: bool = True
    courier: Courier = field(default_factory=lambda: Courier(probe))
    sample_rows: int = SAMPLE_ROWS

    def __post_init__(self) -> None:
        self._tracked: dict[str, Tracked] = {}
        self._places: dict[str, list[Place]] = {}

    @property
    def sample_prompts(self) -> bool:
        """Whether the sample has the prompts in it."""
        return self.log_samples

    def began(self, transform: Transform) -> None:
        """Find the run; one of its own is made meanwhile, while the engine works."""
        import mlflow

        stage = transform.stage
        run_id, parent_id = active_run()
        has_output = stage.hasParam("outputCol") and stage.isDefined("outputCol")
        label = stage.getOrDefault("outputCol") if has_output else type(stage).__name__
        params = description.params(stage)
        tracked = Tracked(mlflow.get_tracking_uri(), run_id, parent_id, params, label, own=run_id is None)
        self._tracked[transform.id] = tracked
        if self.log_system_metrics and not switched_off(run_id):
            tracked.system = SystemMetrics(lambda: self.courier.send(tracked.uri, lambda: _log_system(tracked)))
        self.courier.send(tracked.uri, lambda: self._open(tracked, transform))

    def ended(self, transform: Transform) -> None:
        """Log the transform; waits a second at most, and not at all where the server is late already."""
        tracked = self._tracked.pop(transform.id, None)
        if tracked is None:  # `began` failed, and was warned of
            return
        if tracked.system is not None:
            tracked.system.stop()
        self.courier.send(tracked.uri, lambda: self._log(tracked, transform), wait_s=WAIT_S)

    def _open(self, tracked: Tracked, transform: Transform) -> None:
        client = connect(tracked.uri)
        if tracked.run_id is None:
            tracked.run_id = self._run(client, tracked, transform)
        _warm()

    def _run(self, client: MlflowClient, tracked: Tracked, transform: Transform) -> str:
        name = f"{type(transform.stage).__name__} {tracked.label}"
        return create_run(client, name, transform.began_s, tracked.parent_id)

    def _log(self, tracked: Tracked, transform: Transform) -> None:
        from mlflow.entities import Metric, Param, RunTag

        client = connect(tracked.uri)
        if tracked.run_id is None:
            tracked.run_id = self._run(client, tracked, transform)
        run_id, now_ms = tracked.run_id, int(time.time() * 1000)
        place = self._place(client, run_id, tracked)
        step = place.steps
        place.steps += 1
        values = description.metrics(transform.report) if transform.report is not None else {}
        tags = {"platform_plugin.stage": transform.stage.uid}
        if transform.error is not None:
            # The message of an error may hold rows.
            told = f": {transform.error}" if self.log_samples else ""
            tags["platform_plugin.error"] = (type(transform.error).__name__ + told)[:5000]
        try:
            client.log_batch(
                run_id,
                metrics=[Metric(place.prefix + name, value, now_ms, step) for name, value in values.items()],
                params=[Param(place.prefix + name, value) for name, value in tracked.params.items()]
                if not step
                else [],
                tags=[RunTag(name, value) for name, value in tags.items()],
            )
            _log_system(tracked)
            if transform.report is not None:
                self._log_files(client, tracked, transform, place, step)
        finally:
            if tracked.own:
                end_run(client, run_id, _status(transform.error))
                self._places.pop(run_id, None)
        if self.log_models and transform.error is None and not step:
            self._log_model(tracked, transform)

    def _log_files(self, client: MlflowClient, tracked: Tracked, transform: Transform, place: Place, step: int) -> None:
        run_id, report = tracked.run_id, transform.report
        assert run_id is not None
        assert report is not None
        folder = "" if tracked.own else f"{_file_name(place.prefix.rstrip('.') or tracked.label)}/"
        folder += f"step_{step}/" if step else ""
        client.log_dict(run_id, report.to_dict(), f"{folder}report.json")
        if transform.sample is not None:
            client.log_table(run_id, self._table(transform), f"{folder}sample.json")
        try:
            pictures = {"latency.png": plots.latency(report), "timeline.png": plots.timeline(report, transform.points)}
        except ImportError:  # mlflow-skinny comes without matplotlib
            return
        for name, figure in pictures.items():
            if figure is not None:
                client.log_figure(run_id, figure, f"{folder}{name}")

    def _table(self, transform: Transform) -> dict[str, list[Any]]:
        sample = transform.sample
        assert sample is not None
        rows = sample.to_pylist()
        errors = [row["error"] or {} for row in rows]
        table: dict[str, list[Any]] = {"key": [row["key"].hex() for row in rows]}
        if self.log_samples:
            table["prompt"] = [row.get("prompt") for row in rows]
            table["output"] = [_shown(row["output"]) for row in rows]
        table["error"] = [error.get("type") for error in errors]
        if self.log_samples:
            table["error_message"] = [error.get("message") for error in errors]
        return table | {name: [row[name] for row in rows] for name in FIGURES}

    def _log_model(self, tracked: Tracked, transform: Transform) -> None:
        from platform_plugin.tracking.models import log_stage

        try:
            log_stage(transform.stage, transform.columns, tracked.label, str(tracked.run_id))
        except Exception as exc:  # the rest of the run is logged
            own = isinstance(exc, PlatformPluginError)
            logger.warning("the model of %s is not logged: %s", transform.stage, exc, exc_info=not own)

    def _place(self, client: MlflowClient, run_id: str, tracked: Tracked) -> Place:
        """Find names that are free: a run takes one value a param, and may hold several stages."""
        places = self._places.setdefault(run_id, [])
        for place in places:
            if place.params == tracked.params:
                return place
        logged = {} if tracked.own else client.get_run(run_id).data.params
        tries = ["", *(f"{_file_name(tracked.label)}{n}." for n in ("", *(f"_{i}" for i in range(2, 1000))))]
        taken = {place.prefix for place in places}
        prefix = next(
            p for p in tries if p not in taken and all(logged.get(p + k, v) == v for k, v in tracked.params.items())
        )
        # A run that another process began goes on where it was.
        known = [] if tracked.own else client.get_metric_history(run_id, f"{prefix}rows")
        places.append(Place(prefix, tracked.params, max((metric.step + 1 for metric in known), default=0)))
        return places[-1]


def _log_system(tracked: Tracked) -> None:
    from mlflow.entities import Metric

    if tracked.system is None or tracked.run_id is None:
        return
    now_ms = int(time.time() * 1000)
    # The step is the second: the transforms of one run make one line.
    found = [Metric(name, value, now_ms, now_ms // 1000) for name, value in tracked.system.take().items()]
    if found:
        connect(tracked.uri).log_batch(tracked.run_id, metrics=found)


def _warm() -> None:
    """Load what draws while the engine works, and not when the transform waits for its pictures."""
    try:
        import matplotlib.backends.backend_agg
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return


def _status(error: BaseException | None) -> str:
    if error is None:
        return "FINISHED"
    return "FAILED" if isinstance(error, Exception) else "KILLED"


def _shown(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, default=str)


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in label)
