"""How long answers live, in Ray's object store, Spark's cache or files: until their frame is released, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from platform_plugin import inline
from platform_plugin.bridges import find_bridges, load_bridge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def release_answers(frame: DataFrame) -> None:
    """Drop the answers behind a frame that a stage returned, or one derived from it. Runs on: driver.

    Evaluating the frame afterwards fails; write or cache it before. A frame without answers is left as it is.
    """
    for name in find_bridges():
        load_bridge(name, "/").release(frame)
    inline.release(frame)
