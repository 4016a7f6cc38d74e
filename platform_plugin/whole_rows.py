"""A batch of whole rows and its requests, in Arrow: equal prompts are one request, answers go back to their rows.

For streams, where Spark allows no join: the rows themselves pass through the task that asks. Runs on: Spark executor.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from platform_plugin.asker import Asker, Begun
from platform_plugin.budget import Budget
from platform_plugin.engines import ERROR_TYPE, answer_schema
from platform_plugin.errors import HandOffError, InvalidRowsError
from platform_plugin.monitor import Standing, Watch
from platform_plugin.schema import ANSWER, DETAILS_TYPE, ERROR, PREFIX, PROMPT, SAMPLING

POLL_S = 1.0
MESSAGES = 5


@dataclass(frozen=True)
class Spending:
    """What a stream may spend; see `Budget`."""

    max_error_rate: float
    request_timeout_s: float
    restart_s: float


@dataclass(frozen=True)
class WholeRows:
    """Answers batches of rows that end in PROMPT, SAMPLING where rows have it, and ERROR; pickles into a Spark task.

    Returns the rows without those columns, with ANSWER + "output", ANSWER + "error" and, if `details`, ANSWER +
    "details" after them.

    Args:
        output: type of the answer.
        deduplicate: ask equal prompts of a batch once.
        strict: raise InvalidRowsError for the first batch with a row that has no answer.
    """

    output: pa.DataType
    deduplicate: bool
    details: bool
    strict: bool
    spending: Spending

    def __call__(self, rows: pa.Table, asker: Asker) -> Begun:
        """Begin to ask; what is returned waits and returns the rows with their answers, in their order."""
        requests, places = split(rows, deduplicate=self.deduplicate)
        refused = pc.drop_null(pc.struct_field(rows[ERROR], "type"))
        asker.seen(rows.num_rows, {e["values"]: e["counts"] for e in refused.value_counts().to_pylist()})
        asked = requests
        if self.deduplicate:
            found, known = asker.known.find(requests)
            asked = requests.filter(pc.is_null(found))
        future = asker.ask(asked) if asked.num_rows else None

        def wait() -> pa.Table:
            answers = answer_schema(self.output).empty_table()
            if future is not None:
                answers = _wait(future, asker.watch, self.spending)
                if not answers["key"].combine_chunks().equals(asked["key"].combine_chunks()):
                    raise HandOffError(f"{asked.num_rows} requests were sent, and answers of others came back.")
            if self.deduplicate:
                asker.known.keep(asked, answers)
                answers = completed(answers, found, known)
            made = joined(rows, places, answers, details=self.details)
            if self.strict:
                _check(made)
            return made

        return Begun(future, wait)


def split(rows: pa.Table, *, deduplicate: bool) -> tuple[pa.Table, pa.Array]:
    """Return the requests of a batch of rows, and each row's place among them; null for a row that is not asked."""
    good = pc.is_null(rows[ERROR]).combine_chunks()
    names = [PROMPT, *([SAMPLING] if SAMPLING in rows.column_names else [])]
    content = rows.select(names).filter(good)
    if deduplicate:
        codes = _codes(content)
        _, first, place = np.unique(codes, return_index=True, return_inverse=True)
        # In the order of their first row.
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        content, place = content.take(pa.array(first[order])), rank[place]
    else:
        place = np.arange(content.num_rows)
    requests = content.rename_columns([name.removeprefix(PREFIX) for name in names])
    keys = pa.array([str(i).encode() for i in range(requests.num_rows)], pa.binary())
    places = np.zeros(rows.num_rows, np.int64)
    asked = good.to_numpy(zero_copy_only=False)
    places[asked] = place
    return requests.add_column(0, "key", keys), pa.array(places, mask=~asked)


def _codes(content: pa.Table) -> Any:
    """Return a number a row, equal for equal rows."""
    codes = np.zeros(content.num_rows, np.int64)
    for column in content.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
    return codes


def joined(rows: pa.Table, places: pa.Array, answers: pa.Table, *, details: bool) -> pa.Table:
    """Return the rows with the answers, one at each place, or with the errors that they came with."""
    found = answers.take(places).combine_chunks()
    error = rows[ERROR].combine_chunks().cast(ERROR_TYPE)
    made = rows.select([name for name in rows.column_names if not name.startswith(PREFIX)])
    made = made.append_column(ANSWER + "output", found["output"])
    made = made.append_column(ANSWER + "error", pc.coalesce(error, found["error"].combine_chunks()))
    if details:
        names = DETAILS_TYPE.names
        columns = [found[name].combine_chunks() for name in names]
        parts = pa.StructArray.from_arrays(columns, names, mask=pc.is_null(places))
        made = made.append_column(ANSWER + "details", parts)
    return made


def completed(answers: pa.Table, found: pa.Array, known: pa.Table | None) -> pa.Table:
    """Return the answers of all requests of a batch, in their order.

    Args:
        answers: of those that were asked, in their order.
        found: each request's place in `known`; null for one that was asked.
    """
    if known is None or found.null_count == len(found):
        return answers
    asked = np.asarray(pc.is_null(found))
    places = pc.fill_null(found, 0).to_numpy().astype(np.int64)
    places[asked] = known.num_rows + np.arange(asked.sum())
    return pa.concat_tables([known, answers]).take(pa.array(places))


def _wait(future: Future[pa.Table], watch: Watch, spending: Spending) -> pa.Table:
    """Return what comes, or raise ErrorRateError or StalledError where it is not worth waiting for."""
    import ray

    budget = Budget(
        asked=0,
        max_error_rate=spending.max_error_rate,
        # A stream has no end: its rate is of what was answered so far, and the first row that fails must not end it.
        strict=False,
        request_timeout_s=spending.request_timeout_s,
        restart_s=spending.restart_s,
    )

    def check(running: bool) -> None:
        standing: Standing = ray.get(watch.tell("standing"))
        budget.asked = standing.tally.done + running
        budget.check(standing)

    while True:
        try:
            answers = future.result(POLL_S)
        except TimeoutError:
            if future.done():
                raise
            check(running=True)
            continue
        # Without an error there is nothing to be spent.
        if answers["error"].null_count < answers.num_rows:
            check(running=False)
        return answers


def _check(rows: pa.Table) -> None:
    errors = rows[ANSWER + "error"].drop_null().to_pylist()
    if errors:
        raise InvalidRowsError(Counter(e["type"] for e in errors), [e["message"] for e in errors[:MESSAGES]])
