"""How the conformance suites ask an engine: batches, and the fixtures that build one engine a class."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin.config import Ask, EngineConfig
from platform_plugin.engines import REQUEST_SCHEMA, Engine, EngineSpec, answer_schema, load_spec

SHORT = Ask(sampling={"max_tokens": 4, "temperature": 0})


def batch_of(*prompts: str | None, sampling: Sequence[str | None] | None = None) -> pa.Table:
    """Return a batch of these prompts, with the rows' own `sampling` where given; the key is the row's number."""
    rows = [{"key": b"%d" % i, "prompt": prompt} for i, prompt in enumerate(prompts)]
    table = pa.Table.from_pylist(rows, schema=REQUEST_SCHEMA)
    return table if sampling is None else table.append_column("sampling", pa.array(sampling, pa.string()))


class EngineFixtures:
    """An engine of `config`, whose `max_model_len` is at most 512."""

    config: EngineConfig

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls) -> EngineSpec:
        return load_spec(cls.config)

    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls) -> Iterator[asyncio.Runner]:
        with asyncio.Runner() as runner:
            yield runner

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, spec: EngineSpec, runner: asyncio.Runner) -> Iterator[Engine]:
        engine = spec.build()
        yield engine
        runner.run(engine.close())

    @pytest.fixture
    def ask(self, spec: EngineSpec, engine: Engine, runner: asyncio.Runner) -> Any:
        """Ask the engine: ``ask(table, ask=SHORT) -> rows``, with the schema and the keys checked each time."""

        def run(batch: pa.Table, ask: Ask = SHORT) -> list[dict[str, Any]]:
            answers = runner.run(engine.infer(batch, ask))
            assert answers.schema == answer_schema(spec.output_type(ask))
            assert answers["key"].to_pylist() == batch["key"].to_pylist()
            rows: list[dict[str, Any]] = answers.to_pylist()
            for row in rows:
                assert (row["output"] is None) == (row["error"] is not None)
                no_answer = row["error"] is not None and row["error"]["stage"] == "output"
                assert (row["finish_reason"] is None) == (row["error"] is not None and not no_answer)
                assert (row["raw_text"] is not None) == no_answer
            return rows

        return run
