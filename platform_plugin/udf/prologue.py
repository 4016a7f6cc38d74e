"""A prologue that runs once an actor: what stands before an iterator function's loop, as the loading of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from platform_plugin.errors import UdfContractError


class SharedPrologue:
    """An iterator function that is begun once and fed the batches of every partition. Runs on: Ray actor.

    It must yield one batch for each batch it takes, in order, and its state must not depend on the partition. What it
    does after its loop is never run.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._running: Iterator[Any] | None = None
        self._next: list[Any] = []

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Answer the batches of one partition."""
        for batch in batches:
            self._next.append(batch)
            try:
                if self._running is None:
                    self._running = iter(self._function(self._feed()))
                answer = next(self._running)
            except StopIteration:
                self._running = None
                raise UdfContractError(
                    "an iterator UDF with shared_prologue ended before its batches did; it must yield one batch for "
                    "each one it takes. Leave shared_prologue off."
                ) from None
            except BaseException:
                self._running = None
                raise
            finally:
                self._next.clear()
            yield answer

    def _feed(self) -> Iterator[Any]:
        while True:
            if not self._next:
                raise UdfContractError(
                    "an iterator UDF with shared_prologue asked for a second batch before it yielded the answer to "
                    "the first; it must yield one batch for each one it takes. Leave shared_prologue off."
                )
            yield self._next.pop()
