"""What travels with a UDF to Spark's tasks, and tells them where its actors are."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from platform_plugin.connection import Connection
from platform_plugin.udf.options import UdfOptions
from platform_plugin.udf.packing import digest


@dataclass(frozen=True)
class Ticket:
    """All that a Spark task needs to find a UDF's actors; pickles with the UDF."""

    name: str
    packed: bytes
    options: UdfOptions
    connection: Connection
    manager: str

    @property
    def key(self) -> str:
        """What the UDF's pool is known by: the same code with the same options has the same actors."""
        options = self.options
        if options.pool is not None:
            return digest(repr(options.model_copy(update={"shared_prologue": False})).encode())
        return digest(self.packed + repr(options).encode())


def new_name() -> str:
    """Return a name that no other task or partition has."""
    return uuid.uuid4().hex
