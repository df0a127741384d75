"""A budget of processor time holds for the greedy plans, too."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tilewright.packing import Budget, Buffer, PackingProblem, solve


@pytest.mark.parametrize("alignment", [1, 64])
@pytest.mark.parametrize("seconds", [0.0, 0.05, 0.5])
def test_plans_end_with_the_budget(seconds: float, alignment: int) -> None:
    rng = np.random.default_rng(0)
    begins = rng.integers(0, 8000, 8000)
    buffers = tuple(
        Buffer(f"b{i}", int(begin), int(begin + rng.integers(1, 2000)), int(rng.integers(1, 4096)), alignment)
        for i, begin in enumerate(begins)
    )
    problem = PackingProblem(buffers)
    began = time.process_time()
    found = solve(problem, Budget(seconds=seconds))
    assert time.process_time() - began < seconds + 1
    problem.check(found.offsets)
