"""How far rounding errors move the results of a whole program, measured by runs in which they are drawn at random.

The bounds of a whole program take errors as independent. Where a value is used again and again they are not: its error
is the same at each use. Monte Carlo arithmetic (Parker, Pierce and Eggert, Computing in Science and Engineering 2(4),
2000) moves each result at random by as much as its own rounding may, and has all that reads it see the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from .bounds import distance
from .structure import Cache
from .walk import GraphWalk, Settings

RUNS = 4
"""How often a program is run. The root mean square of 4 normal numbers is below a quarter of a deviation with a chance
of 0.3 %; more than 16 deviations are allowed, so that the result would have to be off by 4 of them as well."""


def deviations(module: ModuleOp, inputs: Sequence[Any], cache: Cache) -> list[np.ndarray]:
    """One standard deviation of each number of the results of a graph-level module; infinite where one is NaN."""
    plain = GraphWalk(module, cache, Settings(record=False)).run(inputs).results
    squares = [np.zeros(x.shape) for x in plain]
    for seed in range(RUNS):
        settings = Settings(record=False, noise=np.random.default_rng(seed))
        results = GraphWalk(module, cache, settings).run(inputs).results
        gaps = [np.asarray(distance(x, y), np.float64) for x, y in zip(plain, results, strict=True)]
        squares = [s + np.square(gap) / RUNS for s, gap in zip(squares, gaps, strict=True)]
    return [np.sqrt(s) for s in squares]
