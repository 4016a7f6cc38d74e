"""Batches of another size than Spark sends, for a UDF that was set ``batch_rows``."""

from __future__ import annotations

import math

import pyarrow as pa


def rebatched(load: pa.Buffer, rows: int) -> pa.Buffer:
    """Return the Arrow stream `load` in batches of one size, at most `rows` rows each. Runs on: Ray actor."""
    reader = pa.ipc.open_stream(pa.BufferReader(load))
    table = reader.read_all().combine_chunks()
    size = math.ceil(table.num_rows / max(math.ceil(table.num_rows / rows), 1))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in table.to_batches(max_chunksize=max(size, 1)):
            writer.write_batch(batch)
    return out.getvalue()
