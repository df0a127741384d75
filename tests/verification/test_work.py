"""Programs that are too large to be verified are refused before anything of them runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw

X = np.ones((2, 3), np.float32)


def large(x: jax.Array) -> jax.Array:
    return x + jnp.max(jnp.cos(jnp.arange(1 << 30, dtype=jnp.float32)))


def long(x: jax.Array) -> jax.Array:
    def inner(_: int, v: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 10_000, lambda _, u: u * 1.5, v)

    return jax.lax.fori_loop(0, 10_000, inner, x)


def test_a_value_that_is_too_large() -> None:
    with pytest.raises(tw.CompileError, match=r"large is not verified: it has a value of 1,073,741,824 elements"):
        tw.verify(large, X)


def test_loops_that_run_too_long() -> None:
    with pytest.raises(tw.CompileError, match=r"long is not verified: its ops compute some [\d,]+ elements, loops"):
        tw.verify(long, X)


def test_a_short_loop_is_verified() -> None:
    assert tw.verify(lambda x: jax.lax.fori_loop(0, 3, lambda _, v: v * 1.5, x), X, quick=True).ok
