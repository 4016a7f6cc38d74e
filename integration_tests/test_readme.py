"""What the README says works, to the letter: its commands. Its examples run where their engines are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_demo_prints_the_report_of_its_first_transform(script: Callable[..., Any]) -> None:
    run = "from platform_plugin.cli import main; main()"
    report = script(run, arguments=["demo", "--json", "--rows", "9"]).found(500)
    assert report["rows"] == 9
    assert report["distinct"] + report["reused"] == 9
    assert report["failed"] == {}
    assert report["output_tokens"] > 0
    assert list(report["steps"]) == ["check", "hand over", "engine", "infer", "take back"]


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`platform-plugin (\w+)", README))))
def test_every_command_of_the_readme_exists(command: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "platform_plugin", command, "--help"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("verb", sorted(set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE))))
def test_every_verb_of_the_readme_is_in_the_makefile(verb: str) -> None:
    assert re.search(rf"^{verb}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_doctor_is_content_with_this_machine() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "platform_plugin", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    bad = [finding for finding in json.loads(ran.stdout) if not finding["ok"]]
    assert not bad
    assert ran.returncode == 0
