"""What the processes of vLLM say when they fail.

vLLM's exception reads "See root cause above": the cause is in the log of a child process. vLLM hands one logging
configuration to all its processes, so it can be told to write errors where the parent finds them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from pathlib import Path

from pydantic import ValidationError

_RECORD = "\x1e"
_POINTER = re.compile(r"See (root cause above|stack trace( \(above\))? for (the )?root cause)\.")
_SILENT = "That process said nothing: it was killed, ran out of memory, or crashed in native code."
_MOST = 600
"""Characters of a foreign message that are shown."""


class FailureLog:
    """A folder with vLLM's logging configuration and the errors that its processes write."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="platform-plugin-vllm-")
        self._errors = Path(self._folder.name, "errors.log")
        self.config = Path(self._folder.name, "logging.json")
        self.config.write_text(json.dumps(_logging(self._errors)))

    def words(self, exc: Exception | None = None) -> str:
        """Return the root cause: a child's own words, else those of `exc`, else an empty text."""
        text = self._errors.read_text(errors="replace") if self._errors.exists() else ""
        # A worker fails before the engine core that waits for it: the first one is the root.
        for record in text.split(_RECORD)[1:]:
            if record.startswith(("EngineCore", "WorkerProc")) and "Traceback" in record:
                return _shorten(_last_error(record))
        return _shorten(_said(exc)) if exc else ""

    def close(self) -> None:
        """Remove the folder, and this process' handler that would write into it."""
        logger = logging.getLogger("vllm")
        for handler in list(logger.handlers):
            if isinstance(handler, logging.FileHandler) and Path(handler.baseFilename) == self._errors:
                logger.removeHandler(handler)
                handler.close()
        self._folder.cleanup()


def _last_error(record: str) -> str:
    """Return the exception at the end of the record's last traceback, without the frames."""
    lines = record.rsplit("Traceback (most recent call last):", 1)[1].strip("\n").splitlines()
    first = next((i for i, line in enumerate(lines) if not line.startswith(" ")), 0)
    return "\n".join(lines[first:])


def _said(exc: Exception) -> str:
    if isinstance(exc, ValidationError):
        return "; ".join(f"{'.'.join(map(str, e['loc']))} {e['msg']}".strip() for e in exc.errors())
    return f"{type(exc).__name__}: {exc}"


def _shorten(text: str) -> str:
    text = _POINTER.sub(_SILENT, re.sub(r"\s*\n\s*", " ", text.strip()))
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."


def _logging(errors: Path) -> dict[str, object]:
    level = os.environ.get("VLLM_LOGGING_LEVEL", "ERROR").upper()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {"format": "%(levelname)s vllm %(process)d %(message)s"},
            "record": {"format": f"{_RECORD}%(message)s"},
        },
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "stream": "ext://sys.stderr",
            },
            "errors": {
                "class": "logging.FileHandler",
                "filename": str(errors),
                "delay": True,
                "level": "ERROR",
                "formatter": "record",
            },
        },
        "loggers": {"vllm": {"handlers": ["console", "errors"], "level": level, "propagate": False}},
    }
