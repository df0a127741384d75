"""Errors that depend on each other, and errors of tiny and of huge numbers, in the tolerance of a whole program."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tilewright as tw
from tilewright.frontends.jax import lower_function
from tilewright.verification.spread import deviations
from tilewright.verification.structure import Cache
from tilewright.verification.walk import GraphWalk, Settings

RNG = np.random.default_rng(0)


def doubled(x: jax.Array) -> jax.Array:
    """A sum, 2^16 times: its error is the same in each."""
    total = x.sum(-1)
    for _ in range(16):
        total = total + total
    return total


def bounds(fn: Callable[..., jax.Array], *args: np.ndarray) -> np.ndarray:
    module = lower_function(fn, args).module
    (bound,) = GraphWalk(module, Cache(), Settings(likely=True)).run(args).result_bounds
    return np.asarray(bound)


def measured(fn: Callable[..., jax.Array], *args: np.ndarray) -> np.ndarray:
    module = lower_function(fn, args).module
    (spread,) = deviations(
        lambda drawn: GraphWalk(module, Cache(), Settings(record=False, noise=drawn)).run(args).results
    )
    return spread


ROWS = RNG.uniform(0.5, 1, size=(8, 1000)).astype("f4")


def test_the_error_of_a_value_that_is_used_again_is_the_same_each_time() -> None:
    spread, once = measured(doubled, ROWS), measured(lambda x: x.sum(-1), ROWS)
    assert (spread > 2**15 * once).all() and (spread < 2**17 * once).all()
    assert (bounds(doubled, ROWS) < spread / 8).all()  # as if they evened out


@pytest.mark.parametrize(("factor", "verdict"), [(1 + 4e-6, "ok"), (1 + 1e-3, "FAILED")])
def test_verify_measures_them_before_it_complains(factor: float, verdict: str) -> None:
    found = tw.verify(doubled, ROWS, quick=True, against=lambda x: doubled(x) * factor)
    assert found.verdict == verdict, found


PRODUCTS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "matrices": lambda x: x @ x @ x[0],
    "sums": lambda x: (x @ x[0]).sum(1),
    "convolutions": lambda x: lax.conv(
        lax.conv(x[:, None], x[:1, None], (1, 1), "SAME"), x[1:2, None], (1, 1), "SAME"
    ),
}


@pytest.mark.parametrize("scale", [1e-9, 1e11], ids=["tiny", "huge"])
@pytest.mark.parametrize("case", list(PRODUCTS))
def test_bounds_are_relative_to_the_numbers(case: str, scale: float) -> None:
    """Squares of bounds are beyond the range of f32 long before the bounds are."""
    fn = PRODUCTS[case]
    x = RNG.normal(size=(3, 5, 5)).astype("f4")
    power = 2 if case == "sums" else 3
    one, other = bounds(fn, x), bounds(fn, x * np.float32(scale))
    np.testing.assert_allclose(other.astype("f8") / scale**power, one, rtol=0.2)


def test_bounds_of_large_and_small_rows_are_apart() -> None:
    """A tiny matrix beside a large one has bounds of its own size."""
    x = RNG.normal(size=(2, 4, 4)).astype("f4")
    fn = lambda x: x @ x @ x  # noqa: E731
    apart = bounds(fn, x * np.float32([1, 1e-10]).reshape(2, 1, 1))
    np.testing.assert_allclose(apart[1].astype("f8") / 1e-30, bounds(fn, x)[1], rtol=0.2)


def test_products_of_the_same_matrices_again_and_again() -> None:
    """The last matrices are tiny; each row is off by no more than its own size allows."""

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(4):
            x = lax.associative_scan(jnp.matmul, x) * 0.3
        return x

    x = np.random.default_rng(107).normal(size=(7, 3, 3)).astype("f4")
    bound, exact = bounds(chain, x), np.asarray(x, "f8")
    for _ in range(4):
        for i in range(1, 7):
            exact[i] = exact[i - 1] @ exact[i]
        exact = exact * np.float64(np.float32(0.3))
    size = np.abs(exact).max((1, 2))
    assert size[-1] < 1e-20
    relative = bound.max((1, 2)) / size
    assert (relative[3:] > 50 * relative[0]).all()
