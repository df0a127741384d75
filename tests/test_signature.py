"""What a compiled function accepts and gives: random keys, Python scalars, dtypes that JAX would narrow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright as tw


def words(tree: Any) -> list[np.ndarray]:
    """The flat arrays of a pytree, keys as their words."""
    leaves = jax.tree.leaves(tree)
    keys = [jnp.issubdtype(v.dtype, jax.dtypes.prng_key) for v in leaves]
    return [np.asarray(jax.random.key_data(v) if k else v) for v, k in zip(leaves, keys, strict=True)]


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg"])
def test_keys_go_in_and_out(generator: str) -> None:
    def draw(key: jax.Array, x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        first, second = jax.random.split(key)
        return x + jax.random.uniform(first, (5,)), {"next": second, "seen": jnp.stack([key, first])}

    key = jax.random.key(7, impl=generator)
    x = np.ones(5, np.float32)
    program = tw.compile(draw, key, x)
    got, want = program(key, x), jax.jit(draw)(key, x)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    assert got[1]["next"].dtype == key.dtype
    for a, b in zip(words(got), words(want), strict=True):
        np.testing.assert_array_equal(a, b)
    assert tw.verify(draw, key, x, program=program, quick=True).ok


def test_wide_integers_are_narrowed_as_jax_does() -> None:
    x = np.arange(6, dtype=np.int64)
    got = tw.compile(lambda x: x * 3, x)(x)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, x * 3)


def test_python_scalars_are_weak() -> None:
    x = np.ones(3, np.float16)
    program = tw.compile(lambda x, s: x * s, x, 2.0)
    assert program(x, 3.0).dtype == np.float16
    np.testing.assert_array_equal(program(x, 3.0), np.full(3, 3, np.float16))


def test_a_fraction_is_no_integer() -> None:
    x = np.ones(3, np.float32)
    program = tw.compile(lambda x, n: x + n, x, 2)
    with pytest.raises(tw.CompileError, match=r"input 1 of <lambda> must be i32\[\], got float64\[\]"):
        program(x, 2.5)
