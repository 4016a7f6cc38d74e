"""A few requests of a run and their answers, for people to look at: the same few, on either side of the engine.

Those with the smallest keys are taken. Keys are hashes, so they are as good as drawn by lot, and the same each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import ray.data

KEY = "key"


def draw(dataset: ray.data.Dataset, rows: int) -> list[Any]:
    """Have each block of a materialized dataset choose its rows, where it lies; return what `collect` waits for."""
    import ray

    chosen = ray.remote(num_cpus=0)(smallest)
    return [chosen.remote(ref, rows) for ref in dataset.to_arrow_refs()]


def collect(drawn: list[Any], rows: int) -> pa.Table | None:
    """Return the `rows` with the smallest keys of all blocks, in the order of their keys; None of none."""
    import ray

    # A block without rows may come without a schema.
    parts = [part for part in ray.get(drawn) if part.num_rows]
    return smallest(pa.concat_tables(parts, promote_options="default"), rows) if parts else None


def smallest(table: pa.Table, rows: int) -> pa.Table:
    """Return the rows with the smallest keys; all of them where there are no more."""
    if not table.num_rows:
        return table
    return table.take(pc.select_k_unstable(table, rows, [(KEY, "ascending")]))


def joined(answers: pa.Table | None, requests: pa.Table | None) -> pa.Table | None:
    """Return the answers with their prompts, where the requests were drawn too."""
    if answers is None or requests is None:
        return answers
    prompts = dict(zip(requests[KEY].to_pylist(), requests["prompt"].to_pylist(), strict=True))
    found = pa.array([prompts.get(key) for key in answers[KEY].to_pylist()], pa.string())
    return answers.append_column("prompt", found)
