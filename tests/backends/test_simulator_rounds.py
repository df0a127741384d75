"""Rounds of a block that are left out: to the cycle what an event simulation has, whatever instructions cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from event_simulation import run
from hypothesis import given
from hypothesis import strategies as st
from tiering import examples

import tilewright as tw
from tilewright.backends.simulator import TimedKernel
from tilewright.backends.simulator.block import Block
from tilewright.dialects.npu.structure import KernelOp

KEYS = 40
"""Pieces of the keys, or tiles, in the loops of the kernels."""


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("qd,kd->qk", q, k, preferred_element_type=jnp.float32)
    return jax.nn.softmax(scores).astype(v.dtype) @ v


def chained(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.sigmoid(q @ k.T) @ v


def epilogue(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


KERNELS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], tw.Schedule]] = {
    "attention": (
        attention,
        [(70, 16), (32 * KEYS, 16), (32 * KEYS, 16)],
        tw.Schedule(rows=16, keys=32, cores=2),
    ),
    "attention with a last piece in part": (
        attention,
        [(33, 16), (32 * KEYS - 7, 16), (32 * KEYS - 7, 32)],
        tw.Schedule(rows=32, keys=32, places=1, cores=1),
    ),
    "an epilogue": (
        epilogue,
        [(16 * KEYS, 64), (64, 96)],
        tw.Schedule(base_m=16, base_n=48, base_k=32, cores=1),
    ),
}


@cache
def kernel(name: str) -> TimedKernel:
    fn, shapes, schedule = KERNELS[name]
    args = [jax.ShapeDtypeStruct(s, np.float16) for s in shapes]
    program = tw.compile(fn, *args, options=tw.Options(schedule=schedule))
    (found,) = [op for op in program.module().ops if isinstance(op, KernelOp)]
    return TimedKernel(found, program.machine)


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The trips that are left out."""
    found: list[int] = []
    from tilewright.backends.simulator import block

    whole = block._Rounds._leave_out

    def counted(self: Any, places: Any, *rest: Any) -> None:
        before = [place.trip for place in places]
        whole(self, places, *rest)
        found.append(sum(place.trip - n for place, n in zip(places, before, strict=True)))

    monkeypatch.setattr(block._Rounds, "_leave_out", counted)
    return found


@pytest.mark.parametrize("name", KERNELS)
def test_most_trips_are_left_out(name: str, left_out: list[int]) -> None:
    found = kernel(name)
    for alike in found._classes.values():
        prices = found._prices((0.0,) * found.operands)
        ends = [core.end for core in found._block(alike.point, prices)]
        assert ends == run(found, alike.point, prices)
    assert sum(left_out) > KEYS


@examples(60)
@given(st.sampled_from(sorted(KERNELS)), st.data())
def test_any_costs(name: str, data: st.DataObject) -> None:
    """Any pipe may be the slowest one, and the scalar unit: instructions of a few cycles and of thousands."""
    found = kernel(name)
    prices = found._prices((0.0,) * found.operands)
    scales = st.sampled_from([0.01, 0.1, 0.5, 1.0, 1.0, 2.0, 10.0])
    for price in prices:
        price.busy = [[max(1, round(n * data.draw(scales))) for n in each] for each in price.busy]
        price.matrices.clear()
    for alike in found._classes.values():
        ends = [core.end for core in found._block(alike.point, prices)]
        assert ends == run(found, alike.point, prices)


def test_long_loops_take_no_longer() -> None:
    """131,072 keys: a hundred times as many rounds as are looked at."""
    args = [jax.ShapeDtypeStruct((131_072, 128), np.float16)] * 3
    program = tw.compile(attention, *args)
    begun = time.process_time()
    report = program.report()
    assert time.process_time() - begun < 5
    assert report.microseconds > 50_000


def test_a_block_of_one_core_looks_for_nothing() -> None:
    assert Block([])._rounds is None
