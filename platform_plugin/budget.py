"""When a run is not worth going on with: too many requests fail, or none comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from platform_plugin.errors import ErrorRateError, StalledError
from platform_plugin.monitor import Standing

FIRST = 100
"""So many answers, all failed with one type, are enough to stop; below so many requests a rate says little."""
GRACE_S = 10.0


@dataclass
class Budget:
    """What a run may spend. Runs on: driver.

    Args:
        asked: requests in all.
        max_error_rate: share of them that may fail.
        strict: whether the user set that share; the default one leaves runs of fewer than `FIRST` requests alone.
        request_timeout_s: seconds in which an answer has to come back.
        restart_s: further seconds that a lost engine has for its return.
    """

    asked: int
    max_error_rate: float
    strict: bool
    request_timeout_s: float
    restart_s: float
    clock: Callable[[], float] = time.monotonic
    _done: int = field(default=-1, init=False)
    _lost: int = field(default=0, init=False)
    _moved: float = field(default=0.0, init=False)

    def check(self, standing: Standing) -> None:
        """Raise ErrorRateError or StalledError where the run should end."""
        tally = standing.tally
        failed = sum(tally.failed.values())
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(tally.failed.items()))
        said = "\n  ".join(dict.fromkeys(tally.messages))
        if tally.answered == 0 and failed >= FIRST and len(tally.failed) == 1 and self.max_error_rate < 1:
            raise ErrorRateError(
                f"the first {failed} requests all failed ({kinds}), so the run was stopped:\n  {said}\n"
                "Mend what they have in common, or set maxErrorRate=1 to go on."
            )
        if failed > self.max_error_rate * self.asked and (self.strict or self.asked >= FIRST):
            raise ErrorRateError(
                f"{failed} of {self.asked} requests failed ({kinds}), more than maxErrorRate={self.max_error_rate:g} "
                f"allows, so the run was stopped:\n  {said}\nMend the rows, or raise maxErrorRate."
            )
        self._check_stall(standing)

    def _check_stall(self, standing: Standing) -> None:
        now = self.clock()
        if standing.tally.done != self._done:
            self._done, self._lost, self._moved = standing.tally.done, standing.lost, now
        restarting = standing.lost > self._lost
        allowed = self.request_timeout_s + GRACE_S + (self.restart_s if restarting else 0.0)
        if now - self._moved > allowed and self._done < self.asked:
            step = "engine (it died, and none came in its place)" if restarting else "infer"
            raise StalledError(
                f"step {step} stalls: {self._done} of {self.asked} requests have come back, and none in the last "
                f"{now - self._moved:.0f} s; requestTimeout={self.request_timeout_s:g} s is over.\n"
                "Look at the cluster's engines (serve status), or raise requestTimeout if answers take that long."
            )
