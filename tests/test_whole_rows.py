"""Rows of a stream and their requests, in Arrow alone."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.engines import ERROR_TYPE, answer_schema, error_row
from platform_plugin.errors import HandOffError, InvalidRowsError
from platform_plugin.whole_rows import Spending, WholeRows, joined, split

BAD = error_row("render", "NullPrompt", "it is null")
SPENDING = Spending(0.5, 10, 10)


class Told:
    """A watch that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def tell(self, *said: Any) -> None:
        self.seen.append(said)


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
    made = joined(given, requests, places, echoed(requests), details=True)
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
    made = joined(given, requests, places, answers, details=False)
    assert made["__pp_answer_error"].to_pylist() == [failed, None, failed]
    assert made["__pp_answer_output"].to_pylist() == [None, "B", None]


def test_answers_of_other_requests_are_refused() -> None:
    given = rows("a", "b")
    requests, places = split(given, deduplicate=True)
    with pytest.raises(HandOffError, match="2 requests were sent"):
        joined(given, requests, places, echoed(requests).slice(1), details=False)


def test_strict_rows_raise_with_counts_and_the_first_messages() -> None:
    told = Told()
    answer = WholeRows(pa.string(), deduplicate=True, details=False, strict=True, spending=SPENDING)

    def never(_: pa.Table) -> Future[pa.Table]:
        pytest.fail("a refused row was asked")

    with pytest.raises(InvalidRowsError, match="2 NullPrompt") as raised:
        answer(rows(None, None), never, told)()  # type: ignore[arg-type]
    assert raised.value.messages == ["it is null"] * 2
    assert told.seen == [("seen", 2, {"NullPrompt": 2})]
