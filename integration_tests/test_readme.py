"""What the README says works, to the letter: its commands. Its examples, and the demo, run where their engines are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


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
