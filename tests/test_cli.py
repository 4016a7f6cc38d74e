from __future__ import annotations

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from platform_plugin import cli, doctor
from platform_plugin.doctor import Finding
from platform_plugin.errors import ConfigError, InvalidRowsError, PlatformPluginError

GOOD = Finding("Python", True, "3.11.7", "make it with 3.11")
BAD = Finding("Java", False, "none here", "set JAVA_HOME")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command line as its entry point does, and return the exit status."""
    monkeypatch.setattr(sys, "argv", ["platform-plugin", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def plugin(monkeypatch: pytest.MonkeyPatch, name: str, load: Any) -> None:
    """Let a package offer the command `name`."""
    entry = SimpleNamespace(name=name, value=f"package:{name}", load=load)
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry] if group == cli.GROUP else [])


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: [])
    monkeypatch.delenv("PLATFORM_PLUGIN_TRACEBACK", raising=False)


@pytest.mark.parametrize(("findings", "status"), [([GOOD], 0), ([GOOD, BAD], 1)])
def test_the_doctor_fails_if_anything_is_missing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    findings: list[Finding],
    status: int,
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert run(monkeypatch, "doctor") == status
    told = capsys.readouterr().out
    assert "ok    Python    3.11.7" in told
    assert "make it with 3.11" not in told, "what is ok needs no remedy"
    assert ("-> set JAVA_HOME" in told) == (status == 1)


def test_the_doctor_writes_a_json_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [GOOD, BAD])
    assert run(monkeypatch, "doctor", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert [(f["name"], f["ok"]) for f in told] == [("Python", True), ("Java", False)]
    assert told[1]["remedy"] == "set JAVA_HOME"


def demo_module(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[Any]:
    """Put a demo in place of the real one; the list gets what it is called with."""
    calls: list[Any] = []
    module = ModuleType("platform_plugin.demo")

    def demo(rows: int, *, as_json: bool) -> None:
        calls.append((rows, as_json))
        if error is not None:
            raise error

    module.run = demo  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "platform_plugin.demo", module)
    return calls


def test_the_demo_takes_rows_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = demo_module(monkeypatch)
    assert run(monkeypatch, "demo", "--rows", "7", "--json") == 0
    assert run(monkeypatch, "demo") == 0
    assert calls == [(7, True), (200, False)]
    assert run(monkeypatch, "demo", "--rows", "0") == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConfigError("model='x' is not known."), "ConfigError: model='x' is not known.\n"),
        (
            InvalidRowsError({"Timeout": 2}, ["600 s"]),
            "InvalidRowsError: 2 rows have no answer (2 Timeout); the first:\n  600 s\n",
        ),
    ],
)
def test_an_error_of_ours_is_one_message_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: PlatformPluginError,
    message: str,
) -> None:
    demo_module(monkeypatch, error)
    assert run(monkeypatch, "demo") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(message)
    assert "Traceback" not in told.err


def test_the_traceback_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    demo_module(monkeypatch, ConfigError("model='x' is not known."))
    monkeypatch.setenv("PLATFORM_PLUGIN_TRACEBACK", "1")
    monkeypatch.setattr(sys, "argv", ["platform-plugin", "demo"])
    with pytest.raises(ConfigError):
        cli.main()


def test_an_error_that_is_not_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    demo_module(monkeypatch, ZeroDivisionError("a bug"))
    monkeypatch.setattr(sys, "argv", ["platform-plugin", "demo"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_a_package_adds_a_function_as_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def migrate(path: str) -> None:
        typer.echo(f"migrated {path}")

    plugin(monkeypatch, "migrate", lambda: migrate)
    assert run(monkeypatch, "migrate", "job.py") == 0
    assert capsys.readouterr().out == "migrated job.py\n"


def test_a_package_adds_an_application_as_a_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    group = typer.Typer()

    @group.command()
    def scan() -> None:
        typer.echo("scanned")

    @group.command()
    def mend() -> None:
        typer.echo("mended")

    plugin(monkeypatch, "udf", lambda: group)
    assert run(monkeypatch, "udf", "scan") == 0
    assert capsys.readouterr().out == "scanned\n"


def test_a_broken_package_leaves_the_other_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> None:
        raise ImportError("no module named 'gone'")

    plugin(monkeypatch, "migrate", load)
    monkeypatch.setattr(doctor, "examine", lambda: [GOOD])
    assert run(monkeypatch, "doctor") == 0
    assert "command 'migrate' of package:migrate left out: no module named 'gone'" in (capsys.readouterr().err)
