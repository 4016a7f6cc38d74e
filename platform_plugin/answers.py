"""How long answers live, in Ray's object store, Spark's cache or files: until their frame is released, or the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from platform_plugin import inline
from platform_plugin.bridges import find_bridges, load_bridge
from platform_plugin.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def release_answers(frame: DataFrame) -> None:
    """Drop the answers behind a frame that a stage returned, or one derived from it. Runs on: driver.

    Evaluating the frame afterwards fails; write or cache it before. All answers behind the frame go: of a transform of
    what another transform returned, also those of the other. A frame without answers is left as it is.
    """
    if not hasattr(frame, "sparkSession"):
        raise ConfigError(f"release_answers takes the DataFrame that a stage returned; a {type(frame).__name__} came.")
    for name in find_bridges():
        load_bridge(name, "/").release(frame)
    inline.release(frame)
