"""Where a UDF runs: checked when it is set, frozen, and part of the pool's identity."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from platform_plugin.config import Frozen


class UdfOptions(Frozen):
    """How many actors a UDF has, what each takes of the cluster, and how rows reach them.

    Args:
        replicas: least and most actors; they grow with the Spark tasks that use the UDF at once.
        num_cpus, num_gpus: of the cluster's, for each actor.
        batch_rows: rows a call of the function at most, and about so many; unset, as many as Spark sends in one batch
            (``spark.sql.execution.arrow.maxRecordsPerBatch``). Not for groups and plain UDFs.
        in_flight: loads that a Spark task has under way at once.
        idle_timeout: seconds until unused actors stop.
        start_timeout: seconds that the first actor may take to find its place and start.
        shared_prologue: run what stands before an iterator function's loop once an actor, not once a partition.
        pool: UDFs with the same name here, and else the same options, share actors; unset, each has its own.
    """

    replicas: tuple[int, int] = (1, 2)
    num_cpus: float = Field(default=1.0, ge=0)
    num_gpus: float = Field(default=0.0, ge=0)
    batch_rows: int | None = Field(default=None, ge=1)
    in_flight: int = Field(default=4, ge=1)
    idle_timeout: float = Field(default=300.0, gt=0)
    start_timeout: float = Field(default=600.0, gt=0)
    shared_prologue: bool = False
    pool: str | None = None

    @model_validator(mode="after")
    def _range(self) -> Self:
        low, high = self.replicas
        if not 0 <= low <= high or high < 1:
            raise ValueError(f"replicas=({low}, {high}): wanted (least, most) with 0 <= least <= most and most >= 1")
        return self

    def together(self, other: UdfOptions) -> UdfOptions:
        """Return what an actor needs that runs both UDFs, because Spark evaluates them as one."""
        rows = [o.batch_rows for o in (self, other) if o.batch_rows is not None]
        return UdfOptions(
            replicas=(max(self.replicas[0], other.replicas[0]), max(self.replicas[1], other.replicas[1])),
            num_cpus=max(self.num_cpus, other.num_cpus),
            num_gpus=max(self.num_gpus, other.num_gpus),
            batch_rows=max(rows) if rows else None,
            in_flight=max(self.in_flight, other.in_flight),
            idle_timeout=max(self.idle_timeout, other.idle_timeout),
            start_timeout=max(self.start_timeout, other.start_timeout),
        )
