"""A replica's gate and the run's monitor together: a death is blamed on the batch that ran alone, and on no other."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from platform_plugin import credentials, replica
from platform_plugin.errors import EngineDiedError
from platform_plugin.monitor import Monitor


class Engine:
    """Answers with what it was asked, and dies of the key "killer"."""

    async def infer(self, batch: pa.Table, ask: Any) -> pa.Table:
        if b"killer" in batch["key"].to_pylist():
            raise EngineDiedError("dead")
        return batch

    def counters(self) -> dict[str, float]:
        return {}


class Spec:
    def build(self) -> Engine:
        return Engine()


@dataclass
class Watch:
    """The run's side of a monitor in this process."""

    monitor: Monitor

    async def tell(self, method: str, *args: Any) -> Any:
        return await getattr(self.monitor, method)("run", *args)


def test_answered_row_whose_answer_is_lost_by_the_next_ones_death_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(credentials, "fetch", lambda: None)

    def ended(_: int) -> None:
        raise SystemExit

    monkeypatch.setattr(replica.os, "_exit", ended)

    async def run() -> list[bool]:
        monitor = Monitor()
        watch = Watch(monitor)
        one = replica.Replica(Spec())  # type: ignore[arg-type]
        for key in (b"innocent", b"killer"):
            batch = pa.table({"key": pa.array([key], pa.binary())})
            try:
                await one.infer(batch, None, watch)  # type: ignore[arg-type]
            except SystemExit:
                break
        # The process is gone, and with it the reply to the first, which was on its way.
        return [await monitor.lost("run", key) for key in (b"innocent", b"killer")]

    assert asyncio.run(run()) == [False, True]
