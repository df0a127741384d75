"""Cumulative sums, products and extremes, forwards and backwards, along any dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from harness import DTYPES, INTEGERS, check, data, shapes, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled

TARGETS = targets()


@examples(8)
@given(
    shape=shapes(1, 4, largest=4000),
    dtype=st.sampled_from((*DTYPES[:-1], *INTEGERS)),
    draw=st.data(),
    target=TARGETS,
)
def test_cumulate(shape, dtype: str, draw: st.DataObject, target: str) -> None:
    axis, reverse = draw.draw(st.integers(0, len(shape) - 1)), draw.draw(st.booleans())

    def fn(x: Any) -> list[Any]:
        near_one = x if x.dtype.kind in "iu" else 1 + x / 64
        return [
            lax.cumsum(x, axis, reverse),
            lax.cumprod(near_one, axis, reverse),
            lax.cummax(x, axis, reverse),
            lax.cummin(x, axis, reverse),
        ]

    check(fn, data(dtype, shape), target=target, length=shape[axis])


LONG: dict[str, tuple[Callable[..., Any], jax.Array]] = {
    "a row that does not fit": (lambda x: jnp.cumsum(x), data("f32", (100_003,))),
    "backwards": (lambda x: lax.cumsum(x, 1, reverse=True), data("f32", (2, 60_001))),
    "along the outer dimension": (lambda x: lax.cummax(x, 0), data("f32", (7_001, 3))),
    "integers": (lambda x: jnp.cumsum(x, 1), data("i32", (3, 50_000))),
    "bfloat16": (lambda x: jnp.cumsum(x), data("bf16", (40_009,))),
    "a gradient": (jax.grad(lambda x: jnp.sum(jnp.cumsum(x) ** 2)), data("f32", (257,))),
}


@sampled(8)
@pytest.mark.parametrize("name", LONG)
def test_long_rows(name: str) -> None:
    fn, x = LONG[name]
    program = check(fn, x, length=x.size)
    assert len(program.report().kernels) <= 4


def test_memory_modes_agree_on_pieces() -> None:
    check(
        lambda x: lax.cumsum(x, 1, reverse=True),
        data("f32", (2, 20_011)),
        length=200,
    )
