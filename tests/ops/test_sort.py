"""Sort, argsort, lexicographic sort and top_k on the vector cores, bit for bit as JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DTYPES, FLOATS, INTEGERS, check, data, host_ops, shapes, targets
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from tiering import examples, sampled

import tilewright as tw

TARGETS = targets()
KINDS = (*DTYPES, *INTEGERS)


def awkward(dtype: str, shape: tuple[int, ...], seed: int = 0) -> jax.Array:
    """Data with equal elements, and zeros, infinities and NaNs of both signs among floats."""
    x = data(dtype, shape, seed)
    if dtype not in FLOATS:
        return x // 16 if dtype != "i1" else x
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan], np.float32)
    rng = np.random.default_rng(seed)
    chosen = jnp.asarray(special[rng.integers(0, len(special), shape)]).astype(x.dtype)
    return jnp.where(jnp.asarray(rng.random(shape) < 0.3), chosen, jnp.round(x))


def bits(x: Any) -> Any:
    """Floats as integers: the comparison of the harness is exact for those, and NaNs have places."""
    x = jnp.asarray(x)
    return (
        lax.bitcast_convert_type(x, f"u{x.dtype.itemsize * 8}".replace("u", "uint"))
        if x.dtype.kind in "fV"
        else x
    )


@examples(8)
@given(
    shape=shapes(1, 3, largest=3000),
    dtype=st.sampled_from(KINDS),
    draw=st.data(),
    target=TARGETS,
)
def test_sort_and_argsort(shape, dtype: str, draw: st.DataObject, target: str) -> None:
    axis = draw.draw(st.integers(0, len(shape) - 1))
    down = draw.draw(st.booleans())

    def fn(x: Any) -> list[Any]:
        return [bits(jnp.sort(x, axis, descending=down)), jnp.argsort(x, axis, descending=down)]

    check(fn, awkward(dtype, shape), target=target)


@examples(5)
@given(
    shape=shapes(1, 2, largest=1500),
    kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=4),
    draw=st.data(),
)
def test_lexicographic(shape, kinds: list[str], draw: st.DataObject) -> None:
    """Several operands, the first of them keys."""
    keys = draw.draw(st.integers(1, len(kinds)))
    axis = draw.draw(st.integers(0, len(shape) - 1))
    xs = [awkward(k, shape, i) for i, k in enumerate(kinds)]
    check(lambda *xs: [bits(y) for y in lax.sort(xs, dimension=axis, num_keys=keys)], *xs)


@examples(6)
@given(
    shape=shapes(1, 3, largest=3000),
    dtype=st.sampled_from(KINDS[:-1]),
    draw=st.data(),
    target=TARGETS,
)
def test_top_k(shape, dtype: str, draw: st.DataObject, target: str) -> None:
    k = draw.draw(st.integers(0, shape[-1]))

    def fn(x: Any) -> list[Any]:
        values, places = lax.top_k(x, k)
        return [bits(values), places]

    x = awkward(dtype, shape)
    if dtype == "i1":
        x = x.astype(jnp.int8)
    check(fn, x, target=target)


LONG: dict[str, tuple[Callable[..., Any], jax.Array]] = {
    "the first of a vocabulary": (lambda x: lax.top_k(x, 5), data("f32", (2, 50_257))),
    "the first of a prime number of integers": (lambda x: lax.top_k(x, 3), data("ui32", (1, 100_003))),
    "equals keep the lower place": (lambda x: lax.top_k(x, 40), jnp.zeros((30_011,), jnp.float16)),
    "median": (lambda x: jnp.median(x, 1), data("f32", (31, 65))),
    "unique ranks": (lambda x: jnp.argsort(jnp.argsort(x)), data("i32", (257,))),
    "nucleus sampling": (
        lambda x: jnp.where(jnp.cumsum(jnp.sort(jax.nn.softmax(x), descending=True)) < 0.9, 1, 0),
        data("f32", (130,)),
    ),
}


@sampled(3)
@pytest.mark.parametrize("name", LONG)
def test_programs(name: str) -> None:
    fn, x = LONG[name]
    check(fn, x, length=64)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "ui16"])
def test_long_rows_are_sorted_on_the_host(dtype: str) -> None:
    x = awkward(dtype, (2, 60_000))

    def fn(x: Any) -> list[Any]:
        return [bits(y) for y in lax.sort((x, lax.broadcasted_iota(jnp.int32, x.shape, 1)), num_keys=2)]

    assert host_ops(check(fn, x, host=True)) == ["stablehlo.sort"]


def test_other_comparators() -> None:
    """By functions of the elements, one after the other; what is no such order stays on the host."""
    text = """func.func @main(%x: tensor<5xi32>) -> tensor<5xi32> {
      %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
        ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %c = stablehlo.constant dense<3> : tensor<i32>
          %p = stablehlo.remainder %a, %c : tensor<i32>
          %q = stablehlo.remainder %b, %c : tensor<i32>
          %r = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %r : tensor<i1>
      }) : (tensor<5xi32>) -> tensor<5xi32>
      return %0 : tensor<5xi32>
    }"""
    less = "%r = stablehlo.compare LT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    two_keys = """%l = stablehlo.compare GT, %p, %q : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %e = stablehlo.compare EQ, %q, %p : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %m = stablehlo.compare GT, %b, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
          %n = stablehlo.and %e, %m : tensor<i1>
          %r = stablehlo.or %l, %n : tensor<i1>"""
    assert less in text
    x = np.array([4, 1, 0, 3, 2], np.int32)
    for module, hosted, want in (
        (text, False, [0, 3, 4, 1, 2]),
        (text.replace(less, two_keys), False, [2, 1, 4, 0, 3]),
        (text.replace("%p, %q :", "%p, %b :"), True, None),
    ):
        program = tw.compile(module)
        assert bool(host_ops(program)) == hosted
        if want is not None:
            np.testing.assert_array_equal(np.asarray(program(x)), want)


@pytest.mark.parametrize("n", [1, 7, 40])
def test_reversed_before_and_behind_is_the_other_order(n: int) -> None:
    """Zeros and NaNs of both signs are equal, and equals keep their order; the few that are wanted are kept."""

    def largest(x: jax.Array) -> list[jax.Array]:
        places = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        found = lax.sort((x[:, ::-1], places[:, ::-1]), dimension=1, is_stable=True, num_keys=1)
        return [v[:, ::-1][:, :3] for v in found]

    rng = np.random.default_rng(n)
    x = rng.choice(np.float32([0.0, -0.0, np.nan, -np.nan, np.inf, 1.5, -2.0]), (3, n))
    program = tw.compile(largest, x)
    assert "descending = [1]" in program.ir("graph") or n == 1
    assert f"keep = {min(n, 3)}" in program.ir("graph") or n <= 3
    for got, want in zip(program(x, mode="step"), largest(jnp.asarray(x)), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()
