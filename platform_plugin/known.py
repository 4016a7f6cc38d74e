"""What a Spark worker knows already: a prompt that comes again in another batch of a stream is not asked again."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

ROWS = 1000
BYTES = 16 * 2**20


class Known:
    """The last requests that were answered, and their answers: 1,000 and 16 MB at most. Runs on: Spark executor.

    Only for requests of which equal ones have equal answers. What failed is not kept: it may be answered the next time.
    """

    def __init__(self) -> None:
        self._contents: pa.Array = pa.array([], pa.large_string())
        self._answers: pa.Table | None = None

    def find(self, requests: pa.Table) -> tuple[pa.Array, pa.Table | None]:
        """Return the place of each request's answer in the table beside it; null for one that is not known."""
        return pc.index_in(_contents(requests), value_set=self._contents), self._answers

    def keep(self, requests: pa.Table, answers: pa.Table) -> None:
        """Take up what was answered, a row each; what came first goes first."""
        good = pc.is_null(answers["error"]).combine_chunks()
        contents, answers = _contents(requests).filter(good), answers.filter(good)
        new = pc.is_null(pc.index_in(contents, value_set=self._contents))
        contents, answers = contents.filter(new)[:ROWS], answers.filter(new)[:ROWS]
        if not len(contents):
            return
        contents = pa.concat_arrays([contents, self._contents])[:ROWS]
        answers = pa.concat_tables([answers, *([self._answers] if self._answers is not None else [])])[:ROWS]
        while len(contents) and contents.nbytes + answers.nbytes > BYTES:
            contents, answers = contents[: len(contents) // 2], answers[: len(contents) // 2]
        # Copied: a slice would keep the whole batch that it is of.
        places = pa.array(range(len(contents)), pa.int64())
        self._contents, self._answers = contents.take(places), answers.take(places).combine_chunks()


def _contents(requests: pa.Table) -> pa.Array:
    """Return one text a request, equal exactly for requests that ask the same."""
    prompt = requests["prompt"].cast(pa.large_string())
    if "sampling" not in requests.column_names:
        return prompt.combine_chunks()
    sampling = requests["sampling"].cast(pa.large_string())
    # Its length says where it ends, and that it is null: any character may be in either text.
    length = pc.fill_null(pc.binary_length(sampling).cast(pa.int64()), -1).cast(pa.large_string())
    mark = pa.scalar("\0", pa.large_string())
    return pc.binary_join_element_wise(length, pc.fill_null(sampling, ""), prompt, mark).combine_chunks()
