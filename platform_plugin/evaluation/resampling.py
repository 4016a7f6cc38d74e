"""Poisson weights of rows in resamples: each from the row's key alone, so that no executor asks another, and a row
weighs the same however the frame is partitioned.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Weights = npt.NDArray[np.uint8]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEPS = 2**16


def _table() -> Weights:
    """Return the Poisson(1) weight of each 16-bit number: as many of each as the distribution has of it."""
    below = np.cumsum([math.exp(-1) / math.factorial(k) for k in range(12)])
    return np.searchsorted(np.round(below * _STEPS), np.arange(_STEPS), side="right").astype(np.uint8)


_POISSON = _table()


def weights(seeds: npt.NDArray[np.int64], times: npt.NDArray[np.int64], resamples: int) -> npt.NDArray[np.float64]:
    """Return the weight of each row in each resample, float64 (rows, resamples).

    Args:
        seeds: hash of each row's key.
        times: how often the row occurs; together they weigh what so many rows with keys of their own would.
    """
    words = -(-resamples // 4)
    with np.errstate(over="ignore"):
        # splitmix64, whose n-th number is had without those before it; four weights a number.
        state = seeds.astype(np.uint64)[:, None] + _GOLDEN * np.arange(1, words + 1, dtype=np.uint64)
        state = (state ^ (state >> np.uint64(30))) * _MIX[0]
        state = (state ^ (state >> np.uint64(27))) * _MIX[1]
        state ^= state >> np.uint64(31)
    made: npt.NDArray[np.float64] = _POISSON[state.view(np.uint16)[:, :resamples]].astype(np.float64)
    for row in np.flatnonzero(times > 1):
        chance = np.random.Generator(np.random.Philox(int(seeds[row]) & 2**64 - 1))
        made[row] = chance.poisson(float(times[row]), resamples)
    return made
