"""Batches of another size than Spark sends, for a UDF that was set ``batch_rows``."""

from __future__ import annotations

import pyarrow as pa


def rebatched(load: pa.Buffer, rows: int) -> pa.Buffer:
    """Return the Arrow stream `load` with `rows` rows in each batch, fewer in the last. Runs on: Ray actor."""
    reader = pa.ipc.open_stream(pa.BufferReader(load))
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader.read_all().combine_chunks().to_batches(max_chunksize=rows):
            writer.write_batch(batch)
    return out.getvalue()
