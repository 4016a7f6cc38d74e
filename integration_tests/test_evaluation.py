"""Evaluation of models that must be asked: pipelines, judges, Spark's tuning; the echo engine, a real MLflow."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder, TrainValidationSplit
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from integration_tests.tracking_server import Server
from platform_plugin import evaluate, pool
from platform_plugin.cli import build_app
from platform_plugin.errors import ConfigError, GateError, RunError, SchemaError
from platform_plugin.stages import LLMJudge, LLMPredictor, PredictionEvaluator

pytestmark = pytest.mark.ray

ENGINE = {"engine": "echo", "engineArgs": {"max_model_len": 400, "fail_on": "unanswerable", "garble_on": "nonsense"}}
ROWS = 40


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> DataFrame:
    """Forty messages whose topic is their last word; every tenth cannot be answered."""
    rows = []
    for i in range(ROWS):
        topic = ("card", "cash", "fee")[i % 3]
        first = "unanswerable" if i % 10 == 9 else "message"
        rows.append((i, f"{first} {i} about {topic}", topic, ("Paris", "Rome")[i % 2], 1 + i % 5))
    return spark.createDataFrame(rows, "id int, message string, topic string, city string, human int")


def predictor(template: str, **params: Any) -> LLMPredictor:
    return LLMPredictor(promptTemplate=template, **{**ENGINE, **params})


def last_word(stage: LLMPredictor) -> PipelineModel:
    """Return a pipeline that predicts the last word of the answer."""
    from pyspark.ml.feature import SQLTransformer

    last = SQLTransformer(statement="SELECT *, element_at(split(prediction, ' '), -1) AS answer FROM __THIS__")
    return PipelineModel([stage, last])


def test_evaluation_of_pipelines_with_a_judge_is_logged(data: DataFrame, server: Server, tmp_path: Path) -> None:
    mlflow.set_experiment("evaluation")
    judge = LLMJudge(rubric="Names the topic.", inputCol="message", humanCol="human", **ENGINE)
    models = {"plain": last_word(predictor("{message}")), "wrong": last_word(predictor("{message} or so"))}
    with pytest.raises(GateError, match=r"wrong: accuracy = 0, wanted >= 0\.5") as caught:
        evaluate(
            models,
            data,
            "topic",
            ["accuracy", "macro_f1", "error_rate", "tokens", "latency", {"cost": {"model": "smollm2-135m"}}],
            judge,
            "plain",
            "city",
            key="id",
            prediction="answer",
            require={"accuracy": 0.5, "error_rate": "<=0.1"},
            name="topics",
            resamples=200,
            log_samples=True,
        )
    assert len(caught.value.failures) == 1
    runs = {run.info.run_name: run for run in mlflow.search_runs(experiment_names=["evaluation"], output_format="list")}
    parent = runs["topics"]
    assert {run.data.tags.get("mlflow.parentRunId") for run in runs.values()} == {None, parent.info.run_id}
    plain, wrong = runs["plain"].data, runs["wrong"].data
    assert plain.metrics["accuracy"] == 0.9
    assert (wrong.metrics["accuracy"], wrong.metrics["difference/accuracy"]) == (0, -0.9)
    assert wrong.metrics["difference/accuracy_low"] <= -0.9 <= wrong.metrics["difference/accuracy_high"] < 0
    assert wrong.metrics["p_holm/accuracy"] < 0.05
    assert plain.metrics["interval/accuracy_low"] < 0.9 < plain.metrics["interval/accuracy_high"]
    assert wrong.tags["evaluation.accuracy"] == "worse"
    assert plain.metrics["error_rate"] == 0.1
    assert plain.metrics["tokens"] > 0 < plain.metrics["cost"]
    assert 1 <= plain.metrics["judge_score"] <= 5
    assert "judge_kappa" in plain.metrics
    assert plain.params["promptTemplate"] == "{message}"
    assert (plain.params["model"], plain.params["engine"]) == ("smollm2-135m", "echo")
    assert parent.data.params["baseline"] == "plain"
    assert parent.data.params["models"] == "plain, wrong"
    assert parent.data.params["required"] == "accuracy >= 0.5; error_rate <= 0.1"
    assert "wrong: accuracy" in parent.data.tags["evaluation.unmet"]
    note = parent.data.tags["mlflow.note.content"]
    assert re.match(r"plain and wrong on 40 rows, label topic; \*\*\d warnings\*\*; \*\*report.html\*\* is under", note)
    assert "\n\n**Not met**\n\n- wrong: accuracy = 0, wanted >= 0.5" in note
    assert "\n| always 'card' | 35.0 % |" in note
    assert plain.tags["mlflow.note.content"].startswith("pipeline, the baseline, on 40 rows\n\n| metric | value |")
    assert (parent.data.metrics["accuracy/plain"], parent.data.metrics["accuracy/wrong"]) == (0.9, 0)
    assert "- **worse**: wrong is worse than plain in accuracy: -90.0 points (-" in note
    constant = (
        "wrong is no better than a constant: it is right in 0.0 % of rows; always answering 'card' would be right in "
    )
    assert f"- {constant}35.0 % (14 of 40)." in note
    folder = Path(mlflow.artifacts.download_artifacts(run_id=parent.info.run_id, dst_path=str(tmp_path)))
    page = (folder / "report.html").read_text()
    assert "<dt>prompt of one row</dt><dd>message " in page
    assert "USD 0.01 for a million prompt tokens" in page
    assert "<dt>cluster</dt><dd>Ray, 1 node: " in page
    assert re.search(r"<dt>tokens a row</dt><dd>[\d.]+ of the prompt, of which 0.0 from the prefix cache; [\d.]+", page)
    assert parent.data.tags["evaluation.required"] == "not met"
    assert {path.name for path in (folder / "plots").iterdir()} >= {"metrics.png", "confusion.png", "latency.png"}
    told = json.loads((folder / "evaluation.json").read_text())
    assert told["models"][0]["errors"] == {"EchoFailure": 4}
    assert [path.suffix for path in (folder / "results").iterdir()] == [".parquet"]
    rows = data.sparkSession.read.parquet(str(folder / "results"))
    assert rows.where("plain.failed").count() == 4
    assert rows.select("data.message").distinct().count() == ROWS
    table = json.loads((folder / "sample.json").read_text())
    assert len(table["data"]) == ROWS
    assert "data.message" in table["columns"]
    with pytest.raises(ConfigError, match="has a run of this name already"):
        evaluate(models, data, "topic", name="topics")
    assert mlflow.active_run() is None


def test_texts_are_logged_only_where_asked_for(data: DataFrame, server: Server, tmp_path: Path) -> None:
    mlflow.set_experiment("evaluation-keys")
    result = evaluate({"old": "topic"}, data, "topic", ["accuracy"], resamples=0)
    folder = Path(mlflow.artifacts.download_artifacts(run_id=result.run_id, dst_path=str(tmp_path)))
    assert "evaluation.unmet" not in mlflow.get_run(result.run_id).data.tags
    for path in folder.rglob("*"):
        if path.suffix in (".html", ".json"):
            assert "about card" not in path.read_text(), path
    assert "label" not in data.sparkSession.read.parquet(str(folder / "results")).columns


def test_model_that_fails_is_told_and_the_rest_stays_logged(data: DataFrame, server: Server) -> None:
    mlflow.set_experiment("evaluation-failing")
    strict = predictor("{message}", handleInvalid="error")
    with pytest.raises(RunError, match=r"(?s)strict: InvalidRowsError.*What was computed is kept"):
        evaluate({"strict": strict, "fine": predictor("{message}")}, data, "topic", ["error_rate"], resamples=0)
    runs = {run.info.run_name: run for run in mlflow.search_runs(output_format="list")}
    assert runs["strict"].info.status == "FAILED"
    assert "EchoFailure" in runs["strict"].data.tags["evaluation.failure"]
    assert runs["fine"].data.metrics["error_rate"] == 0.1


def test_server_that_answers_500_is_a_warning(data: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(500)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    broken = HTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=broken.serve_forever, daemon=True).start()
    before = mlflow.get_tracking_uri()
    try:
        mlflow.set_tracking_uri(f"http://127.0.0.1:{broken.server_port}")
        result = evaluate({"same": "topic"}, data, "topic", ["accuracy"], resamples=0)
    finally:
        mlflow.set_tracking_uri(before)
        broken.shutdown()
    assert result.metrics["same"]["accuracy"] == 1
    assert result.run_id is None
    assert any("MLflow does not take the evaluation" in text for text in result.warnings)
    assert Path(str(result.report)).exists()


def test_judge_scores_by_a_rubric(data: DataFrame) -> None:
    judge = LLMJudge(inputCol="message", predictionCol="topic", rubric="Is {it} right?", detailsCol="details", **ENGINE)
    frame = data.withColumn("topic", F.when(F.col("id") == 0, None).when(F.col("id") == 1, "nonsense").otherwise("x"))
    rows = {row["id"]: row for row in judge.transform(frame).collect()}
    assert len(rows) == ROWS
    assert rows[0]["judgement_error"]["type"] == "NullPrompt"
    assert rows[1]["judgement_error"]["type"] == "OutputUnparsable"
    assert rows[9]["judgement_error"]["type"] == "EchoFailure"
    good = [row for row in rows.values() if row["judgement_error"] is None]
    assert len(good) == ROWS - 6
    assert {row["judgement"]["score"] for row in good} <= {1, 2, 3, 4, 5}
    assert all(row["judgement"]["reason"] and row["details"]["output_tokens"] for row in good)
    one = judge.scoreInstance({"message": good[0]["message"], "topic": "x"})
    assert one["judgement"] == good[0]["judgement"].asDict()


def test_judge_of_pairs_swaps_positions(data: DataFrame) -> None:
    judge = LLMJudge(
        mode="pairwise", inputCol="message", predictionCol="a", otherCol="b", detailsCol="details", **ENGINE
    )
    frame = data.where("id < 30").selectExpr("id", "message", "'one ' || id AS a", "'two ' || id AS b")
    rows = {row["id"]: row for row in judge.transform(frame).collect()}
    assert set(rows[0].asDict()) == {"id", "message", "a", "b", "judgement", "judgement_error", "details"}
    swapped = judge.copy({judge.predictionCol: "b", judge.otherCol: "a"})
    back = {row["id"]: row for row in swapped.transform(frame).collect()}
    mirror = {"prediction": "other", "other": "prediction", "tie": "tie"}
    good = [i for i, row in rows.items() if row["judgement_error"] is None]
    assert len(good) == 27
    for i in good:
        one, two = rows[i]["judgement"], back[i]["judgement"]
        assert one["winner"] == mirror[two["winner"]], "a verdict depends on which answer is shown first"
        assert one["consistent"] or one["winner"] == "tie"
    assert {rows[i]["judgement"]["winner"] for i in good} == {"prediction", "other", "tie"}
    assert not all(rows[i]["judgement"]["consistent"] for i in good)
    report = judge.lastReport
    assert report is not None
    assert report.distinct == 60
    one = judge.scoreInstance({"message": rows[0]["message"], "a": "one 0", "b": "two 0"})
    assert one["judgement"] == rows[0]["judgement"].asDict()


def test_judge_is_saved_and_compared_with_people(data: DataFrame, tmp_path: Path) -> None:
    judge = LLMJudge(rubric="Right?", inputCol="message", humanCol="human", **ENGINE)
    PipelineModel([judge]).write().overwrite().save(str(tmp_path / "judge"))
    (loaded,) = PipelineModel.load(str(tmp_path / "judge")).stages
    result = evaluate({"m": "topic"}, data, "topic", ["accuracy"], loaded, resamples=0, track=False)
    scored = judge.copy({judge.predictionCol: "topic"}).transform(data).where("judgement IS NOT NULL").collect()
    people, said = [row["human"] for row in scored], [row["judgement"]["score"] for row in scored]
    assert result.metrics["m"]["judge_kappa"] == pytest.approx(cohen_kappa_score(people, said, labels=[1, 2, 3, 4, 5]))
    assert result.metrics["m"]["judge_score"] == pytest.approx(sum(said) / len(said))
    assert any("The judge gave no score to 4 predictions of m" in text for text in result.warnings)


def test_pairwise_judge_in_an_evaluation(data: DataFrame) -> None:
    judge = LLMJudge(mode="pairwise", inputCol="message", **ENGINE)
    with pytest.raises(ConfigError, match="compares in pairs, and there is no baseline"):
        evaluate({"m": "topic"}, data, "topic", ["accuracy"], judge, track=False)
    result = evaluate(
        {"m": "topic", "other": "city"}, data, "topic", ["accuracy"], judge, "m", resamples=100, track=False
    )
    assert result.metrics["m"]["judge_score"] == 0.5
    won = {c.metric: c for c in result.comparisons}["judge_score"]
    assert won.wins is not None
    assert won.wins + won.ties + won.losses == ROWS - 4
    assert result.metrics["other"]["judge_score"] == pytest.approx((won.wins + won.ties / 2) / (ROWS - 4))


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"predictionCol": "anser"}, SchemaError, "predictionCol='anser' is not a column"),
        ({"mode": "pairs"}, ConfigError, "'pairs' is not one of score, pairwise"),
        ({"predictionCol": "topic", "rubric": " "}, ConfigError, "rubric is empty"),
        ({"predictionCol": "topic", "mode": "pairwise"}, SchemaError, "otherCol='other' is not a column"),
        ({"predictionCol": "topic", "samplingParams": {"n": 2, "temperature": 1}}, ConfigError, "one judgement a row"),
        ({"promptTemplate": "{topic}"}, ConfigError, "has no param 'promptTemplate'"),
    ],
)
def test_judge_with_bad_params(data: DataFrame, params: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LLMJudge(**{**ENGINE, **params}).transform(data)


@pytest.mark.parametrize("tuner", [CrossValidator, TrainValidationSplit])
def test_sparks_tuning_chooses_a_prompt_with_warm_engines(data: DataFrame, tuner: Callable[..., Any]) -> None:
    stage = LLMPredictor(promptTemplate="{message}", **ENGINE)
    stage.transform(data.limit(1))
    replica = _replica(stage)
    grid = (
        ParamGridBuilder()
        .addGrid(stage.promptTemplate, ["{topic}", "{message}"])
        .addGrid(stage.samplingParams, [{"max_tokens": 1}, {"max_tokens": 8}])
        .build()
    )
    evaluator = PredictionEvaluator(metricName="accuracy", labelCol="topic")
    folds = {"numFolds": 2} if tuner is CrossValidator else {"trainRatio": 0.5}
    tuned = tuner(estimator=Pipeline(stages=[stage]), estimatorParamMaps=grid, evaluator=evaluator, seed=3, **folds)
    fitted = tuned.fit(data)
    scores = fitted.avgMetrics if tuner is CrossValidator else fitted.validationMetrics
    assert scores[:2] == [1.0, 1.0]
    assert max(scores[2:]) < 1
    best = fitted.bestModel.stages[0]
    assert (best.getPromptTemplate(), best.getSamplingParams()) == ("{topic}", {"max_tokens": 1})
    assert fitted.transform(data.limit(3)).where("prediction = topic").count() == 3
    assert _replica(stage) == replica, "an engine was started again"


def _replica(stage: LLMPredictor) -> str:
    return str(pool.handle(pool.app_name(stage.spec())).ready.remote().result(timeout_s=60))


def test_example_of_the_readme_runs(data: DataFrame, capsys: pytest.CaptureFixture[str], server: Server) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (example,) = re.findall(r"```py\n(from platform_plugin import LLMJudge, evaluate.*?)```", readme, re.DOTALL)
    echoing = example.replace("rubric=", 'engine="echo", rubric=')
    assert echoing != example
    frame = data.withColumn("old_topic", F.lit("card"))
    exec(echoing, {"short": predictor("{topic}"), "long": predictor("{message}"), "df": frame})
    assert "short against before: accuracy +" in capsys.readouterr().out


def test_command_line(data: DataFrame, tmp_path: Path) -> None:
    data.selectExpr("message", "topic", "if(id < 30, topic, 'x') AS old").coalesce(1).write.json(str(tmp_path / "rows"))
    (tmp_path / "eval.yaml").write_text(
        f"""
        data: {{path: rows, format: json, query: "SELECT *, upper(topic) AS loud FROM data"}}
        label: topic
        models:
          old: {{column: old}}
          asked: {{predictor: {json.dumps({"promptTemplate": "{topic}", **ENGINE})}}}
        metrics: [accuracy, {{exact_match: {{ignore_case: true}}}}]
        baseline: old
        require: {{accuracy: 0.7}}
        resamples: 100
        output: out
        track: false
        """
    )
    config = ["evaluate", "--config", str(tmp_path / "eval.yaml")]
    done = CliRunner().invoke(build_app(), config)
    assert done.exit_code == 0, done.output
    assert "asked against old: accuracy +25.0 points (+" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("evaluate ok models=2 rows=40 unmet=0 ")
    text = (tmp_path / "eval.yaml").read_text().replace("0.7", "0.8").replace("output: out", "output: out2")
    (tmp_path / "eval.yaml").write_text(text)
    done = CliRunner().invoke(build_app(), [*config, "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["status"], told["unmet"]) == ("unmet", ["old: accuracy = 0.75, wanted >= 0.8"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {path: rows}\nmodels: {a: {column: x}}\nmetric: [x]", "no field 'metric'.*Did you mean 'metrics'"),
        ("data: {path: rows}\nmodels: {a: {}}", "models.a.*exactly one of column, pipeline and predictor"),
        ("models: {a: {column: x}}", "data.*required"),
        ("[1, 2]", "holds list"),
        ("data: {path: nowhere, format: json}\nmodels: {a: {column: x}}\ntrack: false", "nowhere' cannot be read"),
        ("data: {path: x, format: xls}\nmodels: {a: {column: x}}", "format='xls' is not one of csv"),
        (
            "data: {path: x}\nmodels: {a: {predictor: {promtTemplate: x}}}\ntrack: false",
            "models.a.predictor.*Did you mean 'promptTemplate'",
        ),
    ],
)
def test_file_of_the_command_line_that_is_wrong(spark: SparkSession, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "eval.yaml").write_text(text)
    done = CliRunner().invoke(build_app(), ["evaluate", "--config", str(tmp_path / "eval.yaml")])
    assert isinstance(done.exception, ConfigError), done.output
    assert done.stdout.splitlines()[-1] == "evaluate failed error=ConfigError"
    with pytest.raises(ConfigError, match=f"(?s){message}"):
        raise done.exception
