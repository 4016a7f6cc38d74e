"""Who is told of transforms: the stages tell, and what tracks them subscribes, so that no stage knows of any tracker.

A listener that fails is left out with a warning; it never fails the transform that it listens to.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from platform_plugin.report import RunReport

logger = logging.getLogger(__name__)

POINTS = 400
"""A long run keeps so many points of its course at most; every other one is dropped when they are twice as many."""


@dataclass
class Transform:
    """One transform of one stage: the same object at its beginning and at its end.

    Attributes:
        stage: the stage (``pyspark.ml`` Params), as it was set; not a copy.
        columns: schema of the frame that came in.
        began_s: epoch seconds.
        sample_rows: how many requests a listener wants to see; `sample_prompts`, with their prompts.
        report: what it did; None if it failed before.
        error: what it raised, or None.
        sample: columns of ``engines.answer_schema``, and `prompt` if wanted; requests drawn by the hash of their keys.
        points: seconds since the beginning, requests done, output tokens; in order.
    """

    stage: Any
    columns: StructType
    began_s: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    sample_rows: int = 0
    sample_prompts: bool = False
    report: RunReport | None = None
    error: BaseException | None = None
    sample: pa.Table | None = None
    points: list[tuple[float, int, int]] = field(default_factory=list)

    def note(self, done: int, tokens: int) -> None:
        """Add a point to the course of the run."""
        self.points.append((time.time() - self.began_s, done, tokens))
        if len(self.points) >= 2 * POINTS:
            del self.points[::2]


class Listener(Protocol):
    """Is told of every transform in this process. Runs on: driver, in the thread of the transform."""

    @property
    def sample_rows(self) -> int:
        """How many requests it wants to see of each transform; 0 for none."""
        ...

    @property
    def sample_prompts(self) -> bool:
        """Whether it wants to see their prompts."""
        ...

    def began(self, transform: Transform) -> None:
        """Take note that a transform begins; the cluster has done nothing yet."""
        ...

    def ended(self, transform: Transform) -> None:
        """Take note of its report, or of its error."""
        ...


_listeners: list[Listener] = []
_lock = threading.Lock()


def subscribe(listener: Listener) -> None:
    """Tell `listener` of every transform from now on; once, however often it is subscribed."""
    with _lock:
        if listener not in _listeners:
            _listeners.append(listener)


def unsubscribe(listener: Listener) -> None:
    """Tell `listener` no more; one that was not subscribed is no error."""
    with _lock:
        if listener in _listeners:
            _listeners.remove(listener)


@contextmanager
def told(stage: Any, columns: StructType) -> Iterator[Transform]:
    """Tell the listeners of the transform that runs in this context, and of how it ended."""
    with _lock:
        audience = list(_listeners)
    transform = Transform(
        stage,
        columns,
        sample_rows=max((listener.sample_rows for listener in audience), default=0),
        sample_prompts=any(listener.sample_prompts for listener in audience),
    )
    _tell(audience, "began", transform)
    try:
        yield transform
    except BaseException as exc:
        transform.error = exc
        raise
    finally:
        _tell(audience, "ended", transform)


def _tell(audience: list[Listener], what: str, transform: Transform) -> None:
    for listener in audience:
        try:
            getattr(listener, what)(transform)
        except Exception:
            logger.warning("%s was told that a transform %s, and failed", type(listener).__name__, what, exc_info=True)
