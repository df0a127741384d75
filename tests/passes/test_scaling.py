"""No stage's work grows faster than a program, counted in calls of functions: `benchmarks/scaling.py` measures time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import tilewright as tw
from tilewright.benchmarks.scaling import AXES, Case
from tilewright.passes.npu.check import check

SIZES = {
    "layers": 40,
    "kernels": 6,
    "arguments": 100,
    "heads": 64,
    "sequence": 1024,
    "trips": 16,
}
"""The smaller of two sizes on each axis, large enough that what every program takes does not hide the rest, and that
cores end at several times: one after the other they leave the rest their bandwidth, which is simulated anew."""


def calls_of(run: Callable[[], Any]) -> int:
    """How many functions something calls, those written in C too."""
    total = 0

    def count(_: FrameType, event: str, __: Any) -> None:
        nonlocal total
        total += event in ("call", "c_call")

    gc.collect()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return total


def stages(case: Case) -> list[int]:
    """The calls of compilation, check, simulation and report."""
    fn, specs = case
    made: list[tw.Program] = []
    return [
        calls_of(lambda: made.append(tw.compile(fn, *specs, options=tw.Options(check=False)))),
        calls_of(lambda: check(made[0].module(), made[0].machine)),
        calls_of(lambda: made[0].simulation()),
        calls_of(lambda: made[0].report()),
    ]


@pytest.mark.parametrize("axis", sorted(SIZES))
def test_twice_the_program_takes_twice_the_calls(axis: str) -> None:
    few, many = (stages(AXES[axis].case(SIZES[axis] * factor)) for factor in (1, 2))
    assert all(more <= 2.4 * less for less, more in zip(few, many, strict=True)), (few, many)
