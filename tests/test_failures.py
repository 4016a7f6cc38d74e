from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from platform_plugin.failures import FailureLog

# What a process of vLLM does: it applies the configuration, and logs what it dies of.
CHILD = """
import json, logging.config, sys
logging.config.dictConfig(json.load(open(sys.argv[1])))
try:
    raise {raised}
except Exception:
    logging.getLogger("vllm.core").exception({says!r})
"""


def fail(log: FailureLog, says: str, raised: str) -> None:
    program = CHILD.format(says=says, raised=raised)
    subprocess.run([sys.executable, "-c", program, str(log.config)], check=True, capture_output=True, timeout=60)


def test_words_are_those_of_the_child_that_failed_first() -> None:
    log = FailureLog()
    fail(log, "WorkerProc failed to start.", "ValueError('no room\\n  for the KV cache')")
    fail(log, "EngineCore failed to start.", "RuntimeError('a worker failed')")
    assert log.words(RuntimeError("See root cause above.")) == "ValueError: no room for the KV cache"
    log.close()


def test_error_that_ended_nothing_is_not_the_cause() -> None:
    log = FailureLog()
    fail(log, "Could not fetch a thing; going on.", "OSError('offline')")
    assert log.words() == ""
    assert log.words(TypeError("bad argument")) == "TypeError: bad argument"
    log.close()


@pytest.mark.parametrize(
    "text",
    [
        "Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': -9}",
        "WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
    ],
)
def test_silent_death_is_said_to_be_one(text: str) -> None:
    log = FailureLog()
    said = log.words(RuntimeError(text))
    assert "See " not in said
    assert "killed, ran out of memory, or crashed" in said
    log.close()


def test_pydantics_complaint_is_one_line_without_a_link() -> None:
    class Model(BaseModel):
        size: int

    log = FailureLog()
    with pytest.raises(ValidationError) as error:
        Model(size="big")  # type: ignore[arg-type]
    said = log.words(error.value)
    assert said == "size Input should be a valid integer, unable to parse string as an integer"
    log.close()


def test_long_words_are_cut() -> None:
    log = FailureLog()
    assert len(log.words(ValueError("x" * 10_000))) < 700
    log.close()


def test_close_leaves_no_folder_and_no_handler() -> None:
    log = FailureLog()
    config = json.loads(log.config.read_text())
    handler = logging.FileHandler(config["handlers"]["errors"]["filename"], delay=True)
    logging.getLogger("vllm").addHandler(handler)
    log.close()
    assert handler not in logging.getLogger("vllm").handlers
    assert not Path(log.config).parent.exists()
