from __future__ import annotations

import pytest

from platform_plugin import meter
from platform_plugin.meter import Meter


def test_busy_time_counts_overlapping_requests_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(meter.time, "monotonic", lambda: now[0])
    counted = Meter()
    with counted.flight():
        now[0] += 1
        with counted.flight():
            now[0] += 2
            assert counted.read()["busy_s"] == 3
            assert counted.read()["in_flight"] == 2
        now[0] += 4
    now[0] += 50
    with counted.flight():
        now[0] += 8
    assert counted.read()["busy_s"] == 15
    assert counted.read()["in_flight"] == 0


def test_request_that_raises_lands_all_the_same() -> None:
    counted = Meter()
    with pytest.raises(ValueError, match="lost"), counted.flight():
        raise ValueError("lost")
    assert counted.read()["in_flight"] == 0


def test_bad_row_counts_as_request_and_failure() -> None:
    counted = Meter()
    counted.count({"output": "a", "prompt_tokens": 3, "cached_tokens": 2, "output_tokens": 1})
    counted.count({"error": {"type": "PromptTooLong"}})
    sums = {"requests": 2, "failed": 1, "prompt_tokens": 3, "cached_tokens": 2, "output_tokens": 1}
    assert counted.read() == {**sums, "busy_s": 0, "in_flight": 0}
