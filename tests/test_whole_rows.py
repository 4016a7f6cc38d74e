"""Rows of a stream and their requests, in Arrow alone."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.engines import ERROR_TYPE, answer_schema, error_row
from platform_plugin.errors import HandOffError, InvalidRowsError
from platform_plugin.known import Known
from platform_plugin.whole_rows import Spending, WholeRows, joined, split

BAD = error_row("render", "NullPrompt", "it is null")
SPENDING = Spending(0.5, 10, 10)


def rows(*prompts: str | None, sampling: list[str | None] | None = None) -> pa.Table:
    columns: dict[str, Any] = {"id": list(range(len(prompts))), "__pp_prompt": pa.array(prompts, pa.string())}
    if sampling is not None:
        columns["__pp_sampling"] = pa.array(sampling, pa.string())
    columns["__pp_error"] = pa.array([BAD if p is None else None for p in prompts], ERROR_TYPE)
    return pa.table(columns)


def echoed(requests: pa.Table) -> pa.Table:
    answers = [
        {"key": r["key"], "output": r["prompt"].upper(), "prompt_tokens": 1, "truncated": False}
        for r in requests.to_pylist()
    ]
    return pa.Table.from_pylist(answers, schema=answer_schema(pa.string()))


def test_equal_prompts_are_one_request_and_keep_the_order_of_their_first_row() -> None:
    requests, places = split(rows("b", None, "a", "b", "c", None, "a"), deduplicate=True)
    assert requests["prompt"].to_pylist() == ["b", "a", "c"]
    assert places.to_pylist() == [0, None, 1, 0, 2, None, 1]
    assert len(set(requests["key"].to_pylist())) == 3


def test_requests_are_apart_where_they_must_not_be_shared() -> None:
    requests, places = split(rows("b", None, "b"), deduplicate=False)
    assert requests["prompt"].to_pylist() == ["b", "b"]
    assert places.to_pylist() == [0, None, 1]


def test_rows_with_other_sampling_are_other_requests() -> None:
    requests, places = split(rows("a", "a", "a", "b", sampling=["{}", None, "{}", "{}"]), deduplicate=True)
    assert list(zip(requests["prompt"].to_pylist(), requests["sampling"].to_pylist(), strict=True)) == [
        ("a", "{}"),
        ("a", None),
        ("b", "{}"),
    ]
    assert places.to_pylist() == [0, 1, 0, 2]


@pytest.mark.parametrize("prompts", [("a", None, "b", "a"), (None, None), ()])
def test_every_row_gets_its_answer_or_its_error(prompts: tuple[str | None, ...]) -> None:
    given = rows(*prompts)
    requests, places = split(given, deduplicate=True)
    made = joined(given, places, echoed(requests), details=True)
    assert made.column_names == ["id", "__pp_answer_output", "__pp_answer_error", "__pp_answer_details"]
    assert made["__pp_answer_output"].to_pylist() == [p and p.upper() for p in prompts]
    assert made["__pp_answer_error"].to_pylist() == [None if p else BAD for p in prompts]
    details = made["__pp_answer_details"].to_pylist()
    assert [d and d["prompt_tokens"] for d in details] == [1 if p else None for p in prompts]
    assert made.schema.field("__pp_answer_output").type == pa.string()


def test_error_of_the_engine_is_the_error_of_all_its_rows() -> None:
    given = rows("a", "b", "a")
    requests, places = split(given, deduplicate=True)
    failed = error_row("engine", "Timeout", "too late", True)
    answers = pa.Table.from_pylist(
        [{"key": requests["key"][0].as_py(), "error": failed}, {"key": requests["key"][1].as_py(), "output": "B"}],
        schema=answer_schema(pa.string()),
    )
    made = joined(given, places, answers, details=False)
    assert made["__pp_answer_error"].to_pylist() == [failed, None, failed]
    assert made["__pp_answer_output"].to_pylist() == [None, "B", None]


class Task:
    """What a batch of rows asks: keeps what it was asked, and answers at once."""

    def __init__(self, answer: Callable[[pa.Table], pa.Table] = echoed) -> None:
        self.known = Known()
        self.asked: list[list[str]] = []
        self.counted: list[Any] = []
        self.watch = None
        self._answer = answer

    def ask(self, requests: pa.Table) -> Future[pa.Table]:
        self.asked.append(requests["prompt"].to_pylist())
        future: Future[pa.Table] = Future()
        future.set_result(self._answer(requests))
        return future

    def seen(self, *counts: Any) -> None:
        self.counted.append(counts)


def stage(**given: Any) -> Any:
    usual = {"output": pa.string(), "deduplicate": True, "details": False, "strict": False, "spending": SPENDING}
    return WholeRows(**{**usual, **given})


def test_answers_of_other_requests_are_refused() -> None:
    task = Task(lambda requests: echoed(requests).slice(1))
    with pytest.raises(HandOffError, match="2 requests were sent"):
        stage()(rows("a", "b"), task).wait()


def test_strict_rows_raise_with_counts_and_the_first_messages() -> None:
    task = Task()
    with pytest.raises(InvalidRowsError, match="2 NullPrompt") as raised:
        stage(strict=True)(rows(None, None), task).wait()
    assert raised.value.messages == ["it is null"] * 2
    assert task.counted == [(2, {"NullPrompt": 2})]
    assert task.asked == []


def test_prompt_that_comes_again_in_another_batch_is_not_asked_again() -> None:
    task, answer = Task(), stage()
    # The second batch begins before the first one's answers are there, as in a Spark task.
    first, second = answer(rows("a", "b", None), task), answer(rows("b", "c"), task)
    assert [made.wait()["__pp_answer_output"].to_pylist() for made in (first, second)] == [["A", "B", None], ["B", "C"]]
    third = answer(rows("d", "a", "c", None, "d", "b"), task)
    assert third.wait()["__pp_answer_output"].to_pylist() == ["D", "A", "C", None, "D", "B"]
    assert answer(rows("c", "c"), task).wait()["__pp_answer_output"].to_pylist() == ["C", "C"]
    assert task.asked == [["a", "b"], ["b", "c"], ["d"]]
    assert stage(deduplicate=False)(rows("a"), task).wait()["__pp_answer_output"].to_pylist() == ["A"]
    assert task.asked[-1] == ["a"], "where equal prompts may have different answers, each is asked"


def test_what_failed_is_asked_again() -> None:
    failed = error_row("engine", "Timeout", "too late", True)

    def answers(requests: pa.Table) -> pa.Table:
        made = echoed(requests).to_pylist()
        told = [{**row, "output": None, "error": failed} if row["output"] == "B" else row for row in made]
        return pa.Table.from_pylist(told, schema=answer_schema(pa.string()))

    task = Task(answers)
    error = "__pp_answer_error"
    for _ in range(2):
        # An error is the budget's business, which asks the driver; not here.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("platform_plugin.whole_rows._wait", lambda future, *_: future.result())
            assert stage()(rows("a", "b"), task).wait()[error].to_pylist() == [None, failed]
    assert task.asked == [["a", "b"], ["b"]]


def test_known_answers_are_the_last_ones_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known()

    def keep(*prompts: str) -> None:
        requests, _ = split(rows(*prompts), deduplicate=True)
        known.keep(requests, echoed(requests))

    def found(*prompts: str) -> list[str | None]:
        places, answers = known.find(split(rows(*prompts), deduplicate=True)[0])
        return [answers["output"][p].as_py() if p is not None and answers else None for p in places.to_pylist()]

    assert found("a") == [None]
    monkeypatch.setattr("platform_plugin.known.ROWS", 3)
    keep("a", "b")
    keep("b", "c", "d")
    assert found("a", "b", "c", "d") == ["A", None, "C", "D"]
    monkeypatch.setattr("platform_plugin.known.BYTES", 1000)
    keep("x" * 600, "y")
    assert found("x" * 600, "y") == [None, None]


def test_rows_with_other_sampling_do_not_share_what_is_known() -> None:
    task, answer = Task(), stage()
    for sampling in ('{"seed": 1}', None, '{"seed": 1}'):
        answer(rows("a", sampling=[sampling]), task).wait()
    assert task.asked == [["a"], ["a"]]
    # Null is no empty text, and no character parts the two.
    pairs = [(None, "b"), ("", "b"), (None, "\0b"), ("\0", "b"), ("\0\0", "b"), ("0\0", "b"), ("0", "\0b")]
    for sampling, prompt in pairs:
        answer(rows(prompt, sampling=[sampling]), task).wait()
    assert len(task.asked) == 2 + len(pairs)
