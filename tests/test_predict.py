from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from platform_plugin import cli, predict
from platform_plugin.errors import SessionError

FIGURES = {"rows": 9, "no_answer": 0, "requests": 8, "output_tokens": 70, "reports": [{"rows": 9}]}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command with its work replaced: ``run(figures_or_error, *arguments)``; returns status and session."""
    monkeypatch.setattr(cli, "entry_points", lambda **_: [])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "rows").mkdir()
    asked: list[Any] = []

    def work(*args: Any, **options: Any) -> dict[str, Any]:
        asked.append((args, options))
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return dict(outcome[0])

    outcome: list[Any] = [FIGURES]
    monkeypatch.setattr(predict, "_run", work)
    monkeypatch.setattr(predict.signal, "signal", lambda *_: None)

    def call(result: Any, *arguments: str) -> tuple[int, list[Any]]:
        outcome[0] = result
        known = {"--pipeline": "pipeline", "--input": "rows", "--output": "out"}
        named = [part for name, value in known.items() if name not in arguments for part in (name, value)]
        monkeypatch.setattr(sys, "argv", ["platform-plugin", "predict", *named, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return int(ended.value.code or 0), asked

    return call


def test_the_last_line_says_how_it_ended(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    status, asked = run(FIGURES, "--format", "json", "--executors", "3", "--conf", "spark.a.b=c=d")
    assert status == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("predict ok rows=9 no_answer=0 requests=8 output_tokens=70 seconds=")
    assert last.endswith(" output=out")
    ((pipeline, source, output), options) = asked[0]
    assert (pipeline, source, output) == ("pipeline", ("rows", "json"), ("out", "json"))
    assert options["session"]["executors"] == 3
    assert options["session"]["conf"] == {"spark.a.b": "c=d"}


def test_as_json_there_is_one_object_with_the_reports(run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(FIGURES, "--json")[0] == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["rows"], told["output"]) == ("ok", 9, "out")
    assert told["reports"] == [{"rows": 9}]


@pytest.mark.parametrize(("strict", "bad", "status"), [(True, 2, 3), (True, 0, 0), (False, 2, 0)])
def test_rows_without_an_answer_are_a_status_of_their_own_where_asked_for(
    run: Any, strict: bool, bad: int, status: int
) -> None:
    assert run({**FIGURES, "no_answer": bad}, *(["--strict"] if strict else []))[0] == status


@pytest.mark.parametrize("as_json", [False, True])
def test_an_error_is_the_last_line_and_status_1(run: Any, as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(SessionError("no Java here"), *(["--json"] if as_json else []))[0] == 1
    told = capsys.readouterr()
    assert "SessionError: no Java here" in told.err
    if as_json:
        found = json.loads(told.out)
        assert (found["status"], found["error"], found["message"]) == ("failed", "SessionError", "no Java here")
    else:
        assert told.out.splitlines()[-1].startswith("predict failed error=SessionError seconds=")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pipeline", "none"], "--pipeline 'none' is not there"),
        (["--input", "none"], "--input 'none' is not there"),
        (["--output", "rows"], "--overwrite"),
        (["--output", "rows", "--overwrite"], "is the input"),
        (["--conf", "spark.a"], "has no value"),
    ],
)
def test_what_is_wrong_is_told_before_a_session_starts(
    run: Any, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, asked = run(FIGURES, *arguments)
    assert status == 1
    assert asked == []
    assert words in capsys.readouterr().err


def test_a_uri_and_a_pattern_are_looked_for_by_those_who_know_them(run: Any) -> None:
    assert run(FIGURES, "--pipeline", "models:/topics@prod", "--input", "s3a://bucket/rows")[0] == 0
    assert run(FIGURES, "--input", "rows/2026-*")[0] == 0


def test_a_format_that_there_is_not_is_wrong_usage(run: Any) -> None:
    assert run(FIGURES, "--format", "orc")[0] == 2
