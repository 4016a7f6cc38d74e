"""An evaluation in MLflow: one parent run, one child a model. Trouble with the server is a warning, never an error."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from platform_plugin.errors import ConfigError, MissingDependencyError
from platform_plugin.evaluation.result import EvaluationResult, ModelResult
from platform_plugin.evaluation.summary import description, model_description
from platform_plugin.tracking.description import metric_name, storable

logger = logging.getLogger(__name__)

_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""MLflow's own patience is minutes, for each call."""
_MOST_TEXT = 5000


class Runs:
    """The runs of one evaluation. Runs on: driver, in one thread.

    Attributes:
        run_id: of the parent; None where nothing is logged.
        trouble: what went wrong with the server, once.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.run_id: str | None = None
        self.trouble: str | None = None
        self._children: dict[str, str] = {}
        self._on = False

    @contextmanager
    def open(self, experiment: str | None, given: bool) -> Iterator[None]:
        """Keep the parent run open in this context; its end says whether the evaluation failed.

        Args:
            experiment: name of an experiment; None for the one that is set.
            given: whether the caller chose the run's name, which must then be new.

        Raises:
            ConfigError: the experiment has a run of this name.
            MissingDependencyError: MLflow is not installed.
        """
        try:
            import mlflow
        except ImportError as exc:
            raise MissingDependencyError(
                'evaluate() logs to MLflow: pip install "platform-plugin[evaluation]", or pass track=False.'
            ) from exc
        changed = {name: value for name, value in _PATIENCE.items() if name not in os.environ}
        os.environ.update(changed)
        self._on = True
        failed = True
        try:
            self._try(lambda: self._start(experiment, given))
            yield
            failed = False
        finally:
            if self.run_id is not None:
                self._try(lambda: mlflow.end_run("FAILED" if failed else "FINISHED"))
                while (active := mlflow.active_run()) is not None and active.info.run_id == self.run_id:
                    mlflow.end_run()  # the server is gone; the run must not stay the active one
            for name in changed:
                os.environ.pop(name, None)

    @contextmanager
    def child(self, model: str) -> Iterator[None]:
        """Keep a model's run active in this context: what tracks its transforms finds it."""
        import mlflow

        def start() -> None:
            run = mlflow.start_run(run_name=model, nested=True, tags={"evaluation.model": model})
            self._children[model] = run.info.run_id

        self._try(start)
        failed = True
        try:
            yield
            failed = False
        finally:
            if model in self._children:
                self._try(lambda: mlflow.end_run("FAILED" if failed else "FINISHED"))

    def log(self, result: EvaluationResult, files: dict[str, Path], sample: list[dict[str, Any]]) -> None:
        """Log params, metrics and files.

        Args:
            files: folder of the run's artefacts ("" for the top) -> local file or folder.
            sample: rows as flat dicts.
        """
        import mlflow

        for model in result.models:
            self._try(partial(self._log_model, result, model))
        names = ", ".join(model.name for model in result.models)
        told = {"models": names, **result.facts, "required": "; ".join(result.required)}
        self._try(lambda: mlflow.log_params(_short(told)))
        self._try(lambda: mlflow.log_metrics(side_by_side(result)))
        if result.data:
            self._try(lambda: self._log_data(result))
        tags = {"mlflow.note.content": description(result), "evaluation.unmet": "; ".join(result.unmet)}
        tags["evaluation.required"] = ("not met" if result.unmet else "met") if result.required else ""
        self._try(lambda: mlflow.set_tags(_short(tags)))
        for folder, path in files.items():
            # What Hadoop leaves beside the parquet files (.crc, _SUCCESS) is nothing to look at.
            for file in sorted(path.glob("[!._]*")) if path.is_dir() else [path]:
                self._try(partial(mlflow.log_artifact, str(file), folder or None))
        if sample:
            columns = list(dict.fromkeys(name for row in sample for name in row))
            table = {name: [row.get(name) for row in sample] for name in columns}
            self._try(lambda: mlflow.log_table(table, "sample.json"))

    def log_json(self, result: EvaluationResult) -> None:
        """Log the whole result, for programs."""
        import mlflow

        self._try(lambda: mlflow.log_text(result.to_json(), "evaluation.json"))

    def _start(self, experiment: str | None, given: bool) -> None:
        import mlflow

        from platform_plugin.tracking.server import probe

        probe(mlflow.get_tracking_uri())
        if experiment is not None:
            mlflow.set_experiment(experiment)
        nested = mlflow.active_run() is not None
        if given and not nested:
            self._check_name()
        self.run_id = mlflow.start_run(run_name=self.name, nested=nested).info.run_id

    def _check_name(self) -> None:
        import mlflow
        from mlflow.tracking.fluent import _get_experiment_id

        client = mlflow.MlflowClient()
        ids = [str(_get_experiment_id())]
        quoted = self.name.replace("'", "\\'")
        found = client.search_runs(ids, f"attributes.run_name = '{quoted}'", max_results=1)
        if found:
            raise ConfigError(
                f"name={self.name!r}: the experiment has a run of this name already ({found[0].info.run_id}).\n"
                "Choose another name, or leave name out: a new one is made of the time."
            )

    def _log_model(self, result: EvaluationResult, model: ModelResult) -> None:
        import mlflow
        from mlflow.entities import Metric, Param, RunTag

        if model.name not in self._children:
            with self.child(model.name):
                pass
        client, run_id = mlflow.MlflowClient(), self._children.get(model.name)
        if run_id is None:
            return
        now = int(time.time() * 1000)
        logged = client.get_run(run_id).data.params
        params = _short({"source": model.source, **model.params})
        tags = {f"evaluation.{c.metric}": c.verdict for c in result.comparisons if c.model == model.name}
        tags |= {"mlflow.note.content": model_description(result, model), "evaluation.failure": model.failure or ""}
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, now, 0) for name, value in numbers(result, model).items()],
            params=[Param(name, text) for name, text in params.items() if name not in logged],
            tags=[RunTag(name, text) for name, text in _short(tags).items()],
        )
        if model.failure:
            client.set_terminated(run_id, "FAILED")

    def _log_data(self, result: EvaluationResult) -> None:
        """Name the data in the parent and in its children: MLflow lists runs with it, and finds them by it."""
        import mlflow
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.data.spark_dataset_source import SparkDatasetSource
        from mlflow.entities import DatasetInput, InputTag

        named = MetaDataset(SparkDatasetSource(path=result.facts["data"]), name=result.data)  # type: ignore[abstract]
        tags = [InputTag("mlflow.data.context", "evaluation")]
        for run_id in (self.run_id, *self._children.values()):
            mlflow.MlflowClient().log_inputs(str(run_id), [DatasetInput(named._to_mlflow_entity(), tags)])

    def _try(self, call: Callable[[], Any]) -> None:
        if not self._on:
            return
        try:
            call()
        except ConfigError:
            raise
        except Exception as exc:  # whatever a server, a store or a network does
            self._on = False
            self.trouble = (
                f"MLflow does not take the evaluation: {type(exc).__name__}: {str(exc).splitlines()[0][:300]}"
            )
            logger.warning("%s; the rest is not logged there", self.trouble)


def side_by_side(result: EvaluationResult) -> dict[str, float]:
    """Return the metrics of the parent run: each metric a section of MLflow's page, with a value a model."""
    return _known(
        {
            f"{metric}/{metric_name(model.name)}": found.value
            for model in result.models
            for metric, found in model.values.items()
        }
    )


def numbers(result: EvaluationResult, model: ModelResult) -> dict[str, float]:
    """Return a model's metrics by their names in MLflow, whose pages make a section of what is before a "/"."""
    made: dict[str, float] = {"engine_start_s": model.engine_s} if model.engine_s else {}
    for metric, found in model.values.items():
        made[metric] = found.value
        made |= {f"interval/{metric}_low": found.low, f"interval/{metric}_high": found.high}
    for c in result.comparisons:
        if c.model == model.name:
            d = c.difference
            made |= {f"difference/{c.metric}": d.value, f"p_holm/{c.metric}": c.p_holm}
            made |= {f"difference/{c.metric}_low": d.low, f"difference/{c.metric}_high": d.high}
    return _known(made)


def _known(values: dict[str, float]) -> dict[str, float]:
    """Return values without NaN, which some stores refuse."""
    return {name: value for name, value in values.items() if not math.isnan(value)}


def _short(values: dict[str, Any]) -> dict[str, str]:
    """Return values as texts that every store takes; empty ones are left out."""
    return {name: storable(str(value))[:_MOST_TEXT] for name, value in values.items() if value != ""}
