from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from platform_plugin import listeners, sample
from platform_plugin.listeners import Transform


class Ear:
    def __init__(self, rows: int = 0, prompts: bool = False, broken: bool = False) -> None:
        self.sample_rows, self.sample_prompts, self.broken = rows, prompts, broken
        self.heard: list[tuple[str, BaseException | None]] = []

    def began(self, transform: Transform) -> None:
        self.heard.append(("began", transform.error))
        if self.broken:
            raise OSError("no ear")

    def ended(self, transform: Transform) -> None:
        self.heard.append(("ended", transform.error))
        if self.broken:
            raise OSError("no ear")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "_listeners", [])


def test_a_listener_hears_each_transform_once_and_its_error() -> None:
    ear = Ear()
    listeners.subscribe(ear)
    listeners.subscribe(ear)
    with listeners.told("stage", StructType()):
        pass
    error = ValueError("bad")
    with pytest.raises(ValueError, match="bad"), listeners.told("stage", StructType()):
        raise error
    assert ear.heard == [("began", None), ("ended", None), ("began", None), ("ended", error)]
    listeners.unsubscribe(ear)
    listeners.unsubscribe(ear)
    with listeners.told("stage", StructType()):
        pass
    assert len(ear.heard) == 4


def test_a_listener_that_fails_fails_nothing_and_takes_nobody_with_it(caplog: pytest.LogCaptureFixture) -> None:
    broken, sound = Ear(broken=True), Ear()
    listeners.subscribe(broken)
    listeners.subscribe(sound)
    with caplog.at_level(logging.WARNING), listeners.told("stage", StructType()):
        pass
    assert [what for what, _ in sound.heard] == ["began", "ended"]
    assert len(caplog.records) == 2


def test_the_sample_is_the_largest_that_anyone_wants() -> None:
    with listeners.told("stage", StructType()) as told:
        assert (told.sample_rows, told.sample_prompts) == (0, False)
    listeners.subscribe(Ear(rows=5))
    listeners.subscribe(Ear(rows=2, prompts=True))
    with listeners.told("stage", StructType()) as told:
        assert (told.sample_rows, told.sample_prompts) == (5, True)


def test_the_course_of_a_long_run_stays_short_and_keeps_its_end() -> None:
    told = Transform("stage", StructType())
    for done in range(10 * listeners.POINTS):
        told.note(done, 2 * done)
    assert len(told.points) < 2 * listeners.POINTS
    assert told.points[-1][1:] == (10 * listeners.POINTS - 1, 20 * listeners.POINTS - 2)
    assert [p[1] for p in told.points] == sorted(p[1] for p in told.points)


def test_the_same_requests_are_drawn_on_either_side() -> None:
    keys = [bytes([(37 * i) % 251]) for i in range(200)]
    requests = pa.table({"key": keys, "prompt": [f"p{k[0]}" for k in keys]})
    answers = pa.table({"key": keys[::-1], "output": [f"o{k[0]}" for k in keys[::-1]]})
    joined = sample.joined(sample.smallest(answers, 5), sample.smallest(requests, 5))
    assert joined is not None
    assert joined.to_pylist() == [
        {"key": key, "output": f"o{key[0]}", "prompt": f"p{key[0]}"} for key in sorted(keys)[:5]
    ]
    assert sample.smallest(requests, 1000).num_rows == 200
    assert sample.smallest(requests.slice(0, 0), 5).num_rows == 0
    assert sample.joined(None, requests) is None
