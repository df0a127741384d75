"""Tolerances: the formulas, that rounding stays within them, and that they are not idle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from models import MODELS, data

from tilewright.frontends import lower_function
from tilewright.verification.compare import compare, same_bits
from tilewright.verification.functions import evaluate
from tilewright.verification.structure import Cache
from tilewright.verification.tolerance import LIKELY, function_error, gamma, roundoff, sum_error
from tilewright.verification.trace import Trace
from tilewright.verification.walk import GraphWalk, Settings

F16, F32, I32 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.int32)


def test_formulas() -> None:
    u = 2.0**-24
    assert roundoff(F32) == u
    assert roundoff(F16) == 2.0**-11
    assert roundoff(np.dtype(jnp.bfloat16)) == 2.0**-8
    assert roundoff(I32) == 0
    assert gamma(100, u, "worst") == pytest.approx(100 * u / (1 - 100 * u))
    assert gamma(100, u, "likely") == pytest.approx(10 * u)
    assert gamma(0, u, "worst") == 0
    assert gamma(2**24, u, "worst") == math.inf
    assert function_error("add", F32) == u
    assert function_error("max", F32) == 0
    assert function_error("exp", F32) == 6 * u
    assert function_error("exp", F16) == 6 * u + 2.0**-11
    assert sum_error(1025, F32, F32, "worst") == pytest.approx(gamma(1024, u, "worst"))
    assert sum_error(1024, F32, F32, "worst", halves=True) == pytest.approx(gamma(11, u, "worst"))
    assert sum_error(8, I32, I32, "worst") == 0


def likely(fn: Callable[..., Any], *args: Any) -> Trace:
    return GraphWalk(lower_function(fn, args).module, Cache(), Settings(likely=True)).run(args)


def exact(fn: Callable[..., Any], *args: Any) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(fn(*(jnp.asarray(np.asarray(x), jnp.float64) for x in args)))


@pytest.mark.parametrize("model", ["mlp", "softmax", "norm", "deep", "chain", "square"])
def test_programs_stay_within_their_bounds(model: str) -> None:
    """And the bounds are small: no more than 2000 times what was lost."""
    fn, args = MODELS[model]
    trace = likely(fn, *args)
    bound = LIKELY * np.asarray(trace.result_bounds[0], np.float64)
    lost = np.abs(np.asarray(trace.results[0], np.float64) - exact(fn, *args))
    assert (lost <= bound).all()
    assert bound.max() <= 2000 * lost.max()


@given(st.integers(1, 400), st.sampled_from([jnp.float32, jnp.float16]), st.integers(0, 5))
def test_products_stay_within_the_worst_case(k: int, dtype: Any, seed: int) -> None:
    a, b = data(7, k, seed=seed).astype(dtype), data(k, 5, seed=seed + 1).astype(dtype)
    module = lower_function(jnp.matmul, (a, b)).module
    (op,) = [o for o in module.walk() if o.name == "graph.contract"]
    (y,), (bound,) = evaluate(op, [a, b], [None, None], "worst")
    want = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    assert (np.abs(np.asarray(y, np.float64) - want) <= np.asarray(bound, np.float64)).all()


@pytest.mark.parametrize(
    "name", ["exp", "log", "tanh", "sqrt", "sin", "logistic", "log1p", "expm1", "rsqrt", "erf", "erfc"]
)
def test_functions_stay_within_their_ulps(name: str) -> None:
    fn = jax.lax.logistic if name == "logistic" else getattr(jax.lax, name)
    x = jnp.asarray(np.linspace(0.01, 8, 5000), jnp.float32)
    got, want = np.asarray(fn(x), np.float64), exact(fn, x)
    assert (np.abs(got - want) <= function_error(name, F32) * np.abs(want)).all()


def test_an_operands_error_moves_on() -> None:
    """Errors of x reach the result with the slope of each function on the way."""

    def fn(x: jax.Array) -> jax.Array:
        return jnp.exp(x * 3)

    x = data(50)
    module = lower_function(fn, (x,)).module
    ops = [o for o in module.walk() if o.name in ("graph.mul", "graph.exp")]
    e = jnp.full(x.shape, 1e-3, jnp.float32)
    three = jnp.full(x.shape, 3, jnp.float32)
    (y,), (bound,) = evaluate(ops[0], [x, three], [e, None], "worst")
    (z,), (bound,) = evaluate(ops[1], [y], [bound], "worst")
    moved = np.abs(np.asarray(fn(x + 1e-3)) - np.asarray(z))
    assert np.allclose(np.asarray(bound), 3e-3 * np.asarray(z), rtol=0.01)
    assert (moved <= 1.01 * np.asarray(bound)).all()


def test_a_comparison_that_rounding_decides_is_left_open() -> None:
    def fn(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.where(x * 3 > y, 100.0, -100.0)

    x = jnp.asarray([0.1, 1.0], jnp.float32)
    y = jnp.asarray([np.float32(0.1) * np.float32(3), 0], jnp.float32)
    bound = np.asarray(likely(fn, x, y).result_bounds[0])
    assert bound[0] >= 200
    assert bound[1] == 0


def test_the_edge_of_a_domain() -> None:
    """An operand that may lie on either side of it leaves the result open; what is NaN for sure must be NaN."""
    x = jnp.asarray([4, 1e-9, -1e-9, -1, jnp.nan, jnp.inf], jnp.float32)
    e = jnp.full(x.shape, 1e-6, jnp.float32)
    (op,) = [o for o in lower_function(jnp.sqrt, (x,)).module.walk() if o.name == "graph.sqrt"]
    (y,), (bound,) = evaluate(op, [x], [e], "worst")
    assert np.isfinite(bound).tolist() == [True, False, False, True, True, True]
    other = np.asarray([2, np.nan, 0.5, np.nan, np.nan, np.inf], np.float32)
    assert compare(other, y, bound).ratio < 1
    for i in (3, 4):
        wrong = other.copy()
        wrong[i] = 1
        assert compare(wrong, y, bound).element == (i,)


def test_about_a_pole() -> None:
    """The slope says too little there; an operand that may lie on either side leaves the result open."""
    x = jnp.asarray(math.pi / 2 + np.asarray([0.4, 1e-2, 3e-3, 1.2e-3, 5e-4, -5e-4]), jnp.float32)
    e = jnp.full(x.shape, 1e-3, jnp.float32)
    (op,) = [o for o in lower_function(jnp.tan, (x,)).module.walk() if o.name == "graph.tan"]
    (y,), (bound,) = evaluate(op, [x], [e], "worst")
    assert np.isfinite(bound).tolist() == [True] * 4 + [False] * 2
    for shift in (-1e-3, 1e-3):
        (moved,), _ = evaluate(op, [x + np.float32(shift)], [None], "worst")
        assert compare(np.asarray(moved), np.asarray(y), np.asarray(bound) * 1.01).ratio <= 1


@pytest.mark.parametrize("way", [lax.cumprod, jnp.prod])
def test_products_that_meet_a_limit_on_the_way(way: Callable[..., Any]) -> None:
    """What is infinite or lost in one order and not in another is open; what is so in every order, is not."""
    rows = [[2.0] * 200 + [0.5] * 200, [2.0] * 400, [2.0] * 50 + [0.5] * 100, [0.5] * 400, [2.0] * 400 + [0.0]]
    opens = []
    for row in rows:
        (bound,) = likely(lambda x: way(x, axis=0), jnp.asarray(row, jnp.float32)).result_bounds
        opens.append(bool(np.isinf(np.asarray(bound).reshape(-1)[-1])))
    assert opens == [True, False, False, False, True]
    small = jnp.asarray([2.0**-100, 2.0**-40] + [2.0] * 60, jnp.float32)
    (bound,) = likely(lambda x: way(x, axis=0), small).result_bounds
    assert 2.0**-66 <= np.asarray(bound).reshape(-1)[-1] < 2.0**-65


@pytest.mark.parametrize(("add", "small"), [(lambda x: x @ x.T, 1e-17), (lambda x: jnp.sum(x, axis=1), 1e-34)])
def test_sums_of_what_is_too_small_for_its_roundings(add: Callable[..., Any], small: float) -> None:
    """A rounding of 1e-34 in f32 is no normal number, and XLA has 0 for it: as much is allowed as may be flushed.
    A sum of zeros is exact."""
    x = jnp.asarray([[small, 3 * small], [0, 0]], jnp.float32)
    (bound,) = likely(add, x).result_bounds
    rows = np.asarray(bound).reshape(2, -1)
    assert rows[0, 0] >= np.finfo(np.float32).tiny and not rows[1].any()


def test_sums_that_meet_a_limit_on_the_way() -> None:
    x = np.asarray([[60000, 60000, -60000], [60000, 60000, 0], [600, 600, -600]], np.float16)
    (bound,) = likely(lambda x: lax.reduce(x, np.float16(0), lax.add, (1,)), jnp.asarray(x)).result_bounds
    assert np.isinf(np.asarray(bound)).tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_bounds_of_narrow_types_stay_narrow_among_wide_ones(dtype: Any) -> None:
    """With 64-bit types allowed, a constant alone would be one."""

    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        y = x * 3
        return y, jnp.any(y > 2, 0), jnp.prod(y, 0), jnp.cumsum(y, 0), jnp.argmax(y, 0), lax.sort(y)

    with jax.enable_x64(True):
        bounds = likely(fn, jnp.asarray(np.linspace(0, 1, 12).reshape(3, 4), dtype)).result_bounds
    assert {e.dtype for e in bounds[:4] if e is not None} == {F32}
    assert all(e is not None for e in bounds[:4])


def test_where_a_function_is_flat_its_curvature_counts() -> None:
    x = jnp.asarray(math.pi / 2 + np.asarray([0, 1e-3, -0.02, 0.5]), jnp.float32)
    e = jnp.full(x.shape, 0.1, jnp.float32)
    (op,) = [o for o in lower_function(jnp.sin, (x,)).module.walk() if o.name == "graph.sin"]
    (y,), (bound,) = evaluate(op, [x], [e], "worst")
    for shift in (-0.1, 0.1):
        (moved,), _ = evaluate(op, [x + np.float32(shift)], [None], "worst")
        assert compare(np.asarray(moved), np.asarray(y), np.asarray(bound) * 1.01).ratio <= 1
    assert np.asarray(bound).max() < 0.06


@pytest.mark.parametrize(
    "total",
    [
        lambda x: jnp.sum(x, 0),
        lambda x: jnp.cumsum(x, 0)[-1],
        lambda x: lax.reduce_window(x, np.float32(0), lax.add, (100, 1), (1, 1), "VALID")[0],
    ],
)
def test_errors_of_copies_do_not_even_out(total: Callable[..., jax.Array]) -> None:
    def uncertain(x: jax.Array) -> jax.Array:
        return jnp.sin(1000 * x)

    x = jnp.linspace(0.5, 1, 300, dtype=jnp.float32)
    (one,) = likely(uncertain, x).result_bounds
    (copies,) = likely(lambda x: total(jnp.broadcast_to(uncertain(x)[:3], (100, 3))), x).result_bounds
    (others,) = likely(lambda x: total(uncertain(x).reshape(100, 3)), x).result_bounds
    assert (np.asarray(copies) > 95 * np.asarray(one)[:3]).all()
    assert (np.asarray(others) < 15 * np.asarray(one).max()).all()


def test_the_sign_of_a_nan_is_open() -> None:
    x = jnp.asarray([[1, 2, 3, 4], [1, jnp.nan, 3, 4]], jnp.float32)
    (bound,) = likely(lambda x: jnp.copysign(jnp.float32(2), x), x).result_bounds
    assert np.asarray(bound).astype(bool).tolist() == [[False] * 4, [False, True, False, False]]
    module = lower_function(lambda x: jax.lax.top_k(x, 3), (x,)).module
    (sort,) = [op for op in module.walk() if op.name == "graph.sort"]
    operands = [x, jax.lax.broadcasted_iota(np.int32, x.shape, 1)]
    found = evaluate(sort, operands, [jnp.zeros(x.shape), None], "worst")[1]
    for bound in (*found, *likely(lambda x: tuple(jax.lax.top_k(x, 3)), x).result_bounds):
        assert bound is not None
        assert (np.asarray(bound) >= 2.0**31 - 1).tolist() == [[False] * 3, [True] * 3]


def test_errors_move_with_elements_in_rows_whose_keys_are_exact() -> None:
    keys = jnp.array([[2, 1], [4, 3]], jnp.float32)
    carried = jnp.arange(4, dtype=jnp.float32).reshape(2, 2)
    module = lower_function(lambda *xs: lax.sort(xs, num_keys=1), (keys, carried)).module
    (sort,) = [op for op in module.walk() if op.name == "graph.sort"]
    unsure = jnp.array([[0, 0], [0, 0.5]])
    found = evaluate(sort, [keys, carried], [unsure, carried / 8], "worst")[1]
    np.testing.assert_array_equal(np.asarray(found[0]), [[0, 0], [0.5, 0.5]])
    np.testing.assert_array_equal(np.asarray(found[1]), [[1 / 8, 0], [np.inf, np.inf]])


def test_bits() -> None:
    nan, zero = np.float32([np.nan, 1]), np.float32([0, 1])
    assert compare(nan, -nan * np.float32([1, -1]), bits=True).ratio == 0
    assert compare(zero, -zero * np.float32([1, -1]), bits=True).element == (0,)
    assert compare(nan, zero, bits=True).ratio == np.inf


def test_compare() -> None:
    a = np.asarray([1.0, np.nan, np.inf, -0.0], np.float32)
    assert compare(a, a.copy()).ratio == 0
    assert compare(a, np.asarray([1.0, np.nan, np.inf, 0.0], np.float32)).ratio == 0
    assert compare(a, np.asarray([1.0, np.nan, np.inf, 0.0], np.float32), bits=True).element == (3,)
    assert compare(a, np.asarray([1.0, 2.0, np.inf, 0.0], np.float32)).element == (1,)
    assert compare(a, np.asarray([1.0, np.nan, -np.inf, 0.0], np.float32)).element == (2,)
    found = compare(np.asarray([2, 5]), np.asarray([2, 6]))
    assert (found.element, found.got, found.want, found.count) == ((1,), 5, 6, 1)
    near = compare(np.float32([1, 2]), np.float32([1.5, 4]), np.float32([1, 1]))
    assert (near.ratio, near.count, near.element, near.error) == (2, 1, (1,), 0.5)
    assert compare(np.zeros(3), np.zeros(4)).ratio == np.inf
    assert compare(np.zeros((0, 2)), np.zeros((0, 2))).ratio == 0
    assert same_bits(np.arange(9, dtype=np.int8), np.arange(9, dtype=np.int8))
    assert not same_bits(np.arange(9, dtype=np.int8), np.arange(9, dtype=np.int8)[::-1])
