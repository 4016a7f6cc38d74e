"""Which way a frame's requests go to the engine: ``handOff`` and the session decide."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from platform_plugin import local_ray, remote
from platform_plugin.bridges import Bridge, find_bridges, load_bridge
from platform_plugin.errors import ConfigError, UnknownPluginError, near
from platform_plugin.inline import inlined
from platform_plugin.passage import Passage, bridged
from platform_plugin.probe import check_reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AUTO, INLINE, RAYDP = "auto", "inline", "raydp"


@dataclass(frozen=True)
class HandOff:
    """One way: by a bridge, or inline where there is none. Runs on: driver."""

    bridge: Bridge | None

    @classmethod
    def of(cls, word: str, folder: str | None, frame: DataFrame) -> HandOff:
        """Return the way of a frame. Raises ConfigError where `word` is not one that it can go.

        A stream goes inline; so does a frame of a session that RayDP did not start, unless `word` says otherwise.
        """
        check_word(word, folder)
        if frame.isStreaming and word not in (AUTO, INLINE):
            raise ConfigError(
                f"handOff={word!r} takes no streaming frame: its answers are joined to the rows, and Spark does not "
                'join a stream with itself.\nLeave handOff at "auto", or set "inline".'
            )
        if word == AUTO:
            word = RAYDP if remote.runs_on_ray(frame.sparkSession) and not frame.isStreaming else INLINE
        return cls(None if word == INLINE else load_bridge(word, folder))

    def check_session(self, spark: SparkSession) -> None:
        """Connect to Ray where this way brings it along, and see that the session can go it.

        Raises:
            SessionError: the bridge cannot serve the session.
            ConfigError: Spark's workers do not reach Ray, or the bridge's folder.
        """
        if self.bridge is not None:
            self.bridge.check_session(spark)
            return
        local_ray.connect()
        check_reach(spark)

    def passage(self, requests: DataFrame) -> AbstractContextManager[Passage]:
        """Hand the requests over; leaving the context frees what that pinned."""
        return inlined(requests) if self.bridge is None else bridged(self.bridge, requests)


def check_word(word: str, folder: str | None) -> None:
    """Raise ConfigError for a hand-off that does not exist, or lacks its folder."""
    words = [AUTO, INLINE, *find_bridges()]
    if word not in words:
        raise UnknownPluginError(
            f"handOff={word!r} is not known; one of {', '.join(words)} is wanted.{near(word, words)}"
        )
    if word not in (AUTO, INLINE):
        load_bridge(word, folder)
