"""A batch taken apart into rows that are answered side by side, and put together again: the same in every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from platform_plugin.ask import row_ask
from platform_plugin.chat import refused
from platform_plugin.config import Ask
from platform_plugin.engines import answer_schema
from platform_plugin.meter import Meter
from platform_plugin.output import output_type

AnswerRow = Callable[[str | None, Ask], Awaitable[dict[str, Any]]]
"""(prompt, the row's own ask) -> the row's fields without its key."""


async def answer_rows(batch: pa.Table, ask: Ask, meter: Meter, answer_row: AnswerRow) -> pa.Table:
    """Answer every row, all rows at once; the first exception of a row cancels the others and is raised as it is.

    Returns the answers in ``answer_schema``, in the order of the rows. Runs on: Ray actor.
    """

    async def one(prompt: str | None, sampling: str | None) -> dict[str, Any]:
        with meter.flight():
            asked = row_ask(ask, sampling)
            answer = {"error": asked} if refused(asked) else await answer_row(prompt, asked)
        meter.count(answer)
        return answer

    own = batch["sampling"].to_pylist() if "sampling" in batch.column_names else [None] * len(batch)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(p, o)) for p, o in zip(batch["prompt"].to_pylist(), own, strict=True)]
    except ExceptionGroup as lost:
        raise lost.exceptions[0] from lost.exceptions[0].__cause__
    keys = batch["key"].to_pylist()
    answers = [{"key": key, **task.result()} for key, task in zip(keys, tasks, strict=True)]
    return pa.Table.from_pylist(answers, schema=answer_schema(output_type(ask)))
