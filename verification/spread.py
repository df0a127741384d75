"""How far rounding errors move the results of a whole program, measured by runs in which they are drawn at random.

The bounds of a whole program take errors as independent. Where a value is used again and again they are not: its error
is the same at each use. Monte Carlo arithmetic (Parker, Pierce and Eggert, Computing in Science and Engineering 2(4),
2000) moves each result at random by as much as its own rounding may, and has all that reads it see the same. Of the
tile and the npu level, of which there are no bounds, only the order of sums of products is open, and only those move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .bounds import distance
from .tolerance import roundoff

RUNS = 4
"""How often a program is run. The root mean square of 4 normal numbers is below a quarter of a deviation with a chance
of 0.3 %; more than 16 deviations are allowed, so that the result would have to be off by 4 of them as well."""


def deviations(run: Callable[[np.random.Generator | None], Sequence[Any]]) -> list[np.ndarray]:
    """One standard deviation of each number of a program's results, infinite where one is NaN. run: gives the results
    with errors that are drawn, and without any for None."""
    plain = run(None)
    squares = [np.zeros(np.shape(x)) for x in plain]
    for seed in range(RUNS):
        results = run(np.random.default_rng(seed))
        gaps = [np.asarray(distance(x, y), np.float64) for x, y in zip(plain, results, strict=True)]
        squares = [s + np.square(gap) / RUNS for s, gap in zip(squares, gaps, strict=True)]
    return [np.sqrt(s) for s in squares]


def evened(spread: np.ndarray, result: np.ndarray) -> np.ndarray:
    """The deviations of a result where only few of its numbers are moved in a run, as those are that a rounding to a
    narrow type takes the other way: each may be moved as far as they are on average, and by its own rounding."""
    if not spread.any():
        return spread
    own = roundoff(result.dtype) * np.abs(result).astype(spread.dtype)
    return np.sqrt(np.square(spread) + np.mean(np.square(spread)) + np.square(own))
