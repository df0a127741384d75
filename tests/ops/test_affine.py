"""Affine loop nests: elementwise ops, layout ops, reductions, pooling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import DTYPES, FLOATS, JAX_DTYPE, assert_close, check, data, shapes, subset, targets
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax
from tiering import covering, examples, sampled, some

import tilewright as tw
from tilewright.api.compiling import lower
from tilewright.backends.interpreter import run_graph

TARGETS = targets()
Shape = tuple[int, ...]

FLOAT_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    lax.exp,
    lax.exp2,
    lax.expm1,
    lambda x: lax.log(lax.abs(x)),
    lambda x: lax.log1p(lax.abs(x)),
    lambda x: lax.sqrt(lax.abs(x)),
    lambda x: lax.rsqrt(lax.abs(x) + 1),
    lax.cbrt,
    lax.tanh,
    lax.logistic,
    lax.sin,
    lax.cos,
    lambda x: lax.tan(lax.tanh(x)),
    lax.erf,
    lax.floor,
    lax.ceil,
    lax.round,
    functools.partial(lax.round, rounding_method=lax.RoundingMethod.TO_NEAREST_EVEN),
    lax.is_finite,
)
NUMBER_FUNCTIONS = (lax.abs, lax.neg, lax.sign)
BIT_FUNCTIONS = (lax.bitwise_not, lax.population_count, lax.clz)
NUMBER_PAIRS = (lax.add, lax.sub, lax.mul, lax.max, lax.min)
BIT_PAIRS = (lax.bitwise_and, lax.bitwise_or, lax.bitwise_xor)
SHIFTS = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
COMPARISONS = (lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge)


def shared_out(functions: tuple[Callable[..., Any], ...], dtype: str) -> Sequence[Callable[..., Any]]:
    """In the first tier each function of floats in one type of floats, each of integers in one of integers.
    `test_domains.py` has each function of floats in all types."""
    kinds = next(k for k in (FLOATS, ("i8", "i32"), ("i1",)) if dtype in k)
    return some(functions, kinds.index(dtype), len(kinds))


def unary_functions(dtype: str) -> tuple[Callable[..., Any], ...]:
    if dtype == "i1":
        return (lax.bitwise_not,)
    return NUMBER_FUNCTIONS + (FLOAT_FUNCTIONS if dtype in FLOATS else BIT_FUNCTIONS)


def binary_functions(dtype: str) -> tuple[Callable[..., Any], ...]:
    if dtype == "i1":
        return (*COMPARISONS, *BIT_PAIRS)
    nonzero = (
        lambda x, y: lax.div(x, lax.select(y == 0, y + 1, y)),
        lambda x, y: lax.rem(x, lax.select(y == 0, y + 1, y)),
    )
    if dtype in FLOATS:
        return (
            *COMPARISONS,
            *NUMBER_PAIRS,
            lax.atan2,
            lambda x, y: lax.pow(lax.abs(x) + 1, y),
            lambda x, y: x / (y * y + 1),
        )
    return (*COMPARISONS, *NUMBER_PAIRS, *BIT_PAIRS, *nonzero)


@sampled(6)
@pytest.mark.parametrize("dtype", DTYPES)
@examples(2)
@given(shape=shapes(0, 5), target=TARGETS)
def test_unary(dtype: str, shape: Shape, target: str) -> None:
    functions = shared_out(unary_functions(dtype), dtype)
    check(lambda x: [f(x) for f in functions], data(dtype, shape), target=target)


@sampled(6)
@pytest.mark.parametrize("dtype", DTYPES)
@examples(2)
@given(shape=shapes(0, 5), target=TARGETS)
def test_binary(dtype: str, shape: Shape, target: str) -> None:
    functions = shared_out(binary_functions(dtype), dtype)
    x, y = data(dtype, shape, 1), data(dtype, shape, 2)
    check(lambda x, y: [f(x, y) for f in functions], x, y, target=target)


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@pytest.mark.parametrize("largest", [8, 100])
def test_shifts(dtype: str, largest: int) -> None:
    by = data(dtype, (5, 7), 2) % largest
    check(lambda x, y: [f(x, y) for f in SHIFTS], data(dtype, (5, 7)), jnp.abs(by))


@sampled(3)
@pytest.mark.parametrize("dtype", DTYPES)
@examples(2)
@given(shape=shapes(1, 4), scalar=st.booleans(), target=TARGETS)
def test_select_and_clamp(dtype: str, shape: Shape, scalar: bool, target: str) -> None:
    mask = data("i1", () if scalar else shape)
    x, y, z = (data(dtype, shape, s) for s in range(3))

    def fn(mask: Any, x: Any, y: Any, z: Any) -> list[Any]:
        both = (
            []
            if dtype == "i1"
            else [lax.clamp(lax.min(y, z), x, lax.max(y, z)), lax.clamp(y.min(), x, y.max())]
        )
        return [lax.select(mask, x, y), *both]

    check(fn, mask, x, y, z, target=target)


@sampled(3)
@pytest.mark.parametrize("source", DTYPES)
@examples(2)
@given(shape=shapes(0, 3), target=TARGETS)
def test_convert(source: str, shape: Shape, target: str) -> None:
    kinds = [JAX_DTYPE[d] for d in DTYPES]
    check(lambda x: [x.astype(k) for k in kinds], data(source, shape), target=target)


# -- layout


@examples(6)
@given(shape=shapes(0, 4, largest=2000), dtype=st.sampled_from(DTYPES), draw=st.data())
def test_broadcast(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    out, dims = [], []
    for s in shape:
        out += draw.draw(st.lists(st.sampled_from([1, 2, 3]), max_size=1))
        dims.append(len(out))
        out.append(draw.draw(st.sampled_from([1, 3, 17])) if s == 1 else s)
    check(lambda x: lax.broadcast_in_dim(x, out, dims), data(dtype, shape))


@examples(6)
@given(shape=shapes(0, 4, empty=True), dtype=st.sampled_from(DTYPES), draw=st.data())
def test_reshape(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    n = math.prod(shape)
    factors = [p for p in (2, 3, 5, 7, 13) if n and n % p == 0]
    p = draw.draw(st.sampled_from(factors or [1]))
    out = draw.draw(st.permutations([p, n // p, 1]))
    check(lambda x: [x.reshape(out), (x == x).reshape(-1)], data(dtype, shape))


@examples(6)
@given(shape=shapes(1, 5), dtype=st.sampled_from(DTYPES), draw=st.data(), target=TARGETS)
def test_transpose(shape: Shape, dtype: str, draw: st.DataObject, target: str) -> None:
    perm = draw.draw(st.permutations(range(len(shape))))
    check(lambda x: x.transpose(perm), data(dtype, shape), target=target)


@examples(6)
@given(shape=shapes(1, 4), dtype=st.sampled_from(DTYPES), draw=st.data())
def test_slice_and_reverse(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    starts = [draw.draw(st.integers(0, n)) for n in shape]
    limits = [draw.draw(st.integers(s, n)) for s, n in zip(starts, shape, strict=True)]
    strides = [draw.draw(st.integers(1, 4)) for _ in shape]
    dims = draw.draw(subset(len(shape)))
    check(
        lambda x: [lax.slice(x, starts, limits, strides), lax.rev(x, dims)],
        data(dtype, shape),
    )


@examples(6)
@given(shape=shapes(1, 3, largest=2000), dtype=st.sampled_from(DTYPES), draw=st.data())
def test_pad(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    edge = st.integers(-2, 3)
    spec = [(draw.draw(edge), draw.draw(edge), draw.draw(st.sampled_from([0, 0, 1, 2]))) for _ in shape]
    assume(all(n + (n - 1) * i + lo + hi >= 0 for n, (lo, hi, i) in zip(shape, spec, strict=True)))
    known = draw.draw(st.booleans())

    def fn(x: Any, value: Any) -> Any:
        return lax.pad(x, jnp.asarray(1, x.dtype) if known else value, spec)

    check(fn, data(dtype, shape), data(dtype, ()))


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((2,), [(0, -1, 1)]),
        ((2,), [(-1, 0, 1)]),
        ((3, 5), [(0, -4, 2), (0, 0, 0)]),
        ((4, 3), [(1, -1, 0), (-1, 1, 0)]),
        ((5, 2), [(-2, -2, 1), (1, -2, 1)]),
    ],
)
def test_pad_that_keeps_the_shape(shape: Shape, spec: Any) -> None:
    check(lambda x, v: lax.pad(x, v, spec), data("f32", shape), data("f32", ()))


@examples(6)
@given(shape=shapes(1, 4, largest=3000), dtype=st.sampled_from(DTYPES), draw=st.data())
def test_concatenate(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    dim = draw.draw(st.integers(0, len(shape) - 1))
    lengths = draw.draw(st.lists(st.sampled_from([0, 1, 3, 16]), min_size=1, max_size=3))
    parts = [
        data(dtype, (*shape[:dim], n, *shape[dim + 1 :]), i) for i, n in enumerate((shape[dim], *lengths))
    ]
    check(lambda *xs: lax.concatenate(xs, dim), *parts)


@examples(6)
@given(shape=shapes(1, 4), dtype=st.sampled_from(DTYPES[:-1]), draw=st.data())
def test_iota(shape: Shape, dtype: str, draw: st.DataObject) -> None:
    dim = draw.draw(st.integers(0, len(shape) - 1))

    def fn(x: Any) -> list[Any]:
        index = lax.broadcasted_iota(JAX_DTYPE[dtype], shape, dim)
        return [index, index.T, index + x, jnp.where(lax.broadcasted_iota(jnp.int32, shape, dim) < 5, x, 0)]

    check(fn, data(dtype, shape))


# -- reductions


def reductions(dtype: str) -> dict[str, Callable[..., Any]]:
    if dtype == "i1":
        return {"any": jnp.any, "all": jnp.all}
    bits = {"and": lax.reduce_and, "or": lax.reduce_or} if dtype in ("i8", "i32") else {}
    return {
        "sum": lax.reduce_sum,
        "max": lax.reduce_max,
        "min": lax.reduce_min,
        "prod": lax.reduce_prod,
        **bits,
    }


@sampled(6)
@pytest.mark.parametrize("dtype", DTYPES)
@examples(3)
@given(shape=shapes(1, 5), draw=st.data(), target=TARGETS)
def test_reduce(dtype: str, shape: Shape, draw: st.DataObject, target: str) -> None:
    axes = draw.draw(subset(len(shape), 1))
    functions = reductions(dtype).values()
    x = data(dtype, shape)
    if dtype in FLOATS:
        x = jnp.sign(x) * (1 + jnp.abs(x) / 64)
    length = math.prod(shape[a] for a in axes)
    check(
        lambda x: [f(x, axes) for f in functions], x, target=target, length=length * length
    )


@sampled(3)
@pytest.mark.parametrize("dtype", DTYPES[:-1])
@examples(2)
@given(shape=shapes(1, 4), draw=st.data(), target=TARGETS)
def test_arg_reduce(dtype: str, shape: Shape, draw: st.DataObject, target: str) -> None:
    axis = draw.draw(st.integers(0, len(shape) - 1))
    check(
        lambda x: [jnp.argmax(x, axis), jnp.argmin(x, axis)],
        data(dtype, shape),
        target=target,
    )


def test_arg_reduce_finds_nan_first() -> None:
    x = data("f32", (3, 50257)).at[1, 40000].set(jnp.nan).at[1, 50000].set(jnp.nan)
    check(lambda x: [x.argmax(1), x.argmin(1), x[:, :100].argmax(0)], x)


@covering(1)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 3000), 1), ((3, 50257), 1), ((50257, 3), 0), ((300, 257), None)]
)
def test_reduce_rows_beyond_ub(dtype: str, shape: Shape, axis: int | None) -> None:
    x = data(dtype, shape)
    kind = x.dtype

    def fn(x: Any) -> list[Any]:
        return [jnp.sum(x, axis, dtype=kind), (x + 1).max(axis), x.argmax(axis), x.argmin(axis)]

    check(fn, x, length=math.prod(shape))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6011, 40), (0,)),  # a prime number of rows: some are left over
        ((3, 7, 29, 31, 16), (1, 2, 3)),
        ((5, 4099, 33), (0, 1)),
        ((11, 300, 13, 20), (0, 2)),
        ((1, 4000, 1, 300), (0, 1, 2)),
    ],
)
@sampled(6)
def test_sums_of_columns_use_the_cores(shape: Shape, axes: tuple[int, ...]) -> None:
    """As in the gradient of a bias: results lie side by side, and each is made of many rows."""
    x = data("f32", shape)
    program = check(
        lambda x: (x.sum(axes), (x > 2).any(axes), x.max(axes)),
        x,
        length=math.prod(shape),
    )
    first = max(program.report().kernels, key=lambda k: k.bytes["read"])
    assert first.cores >= 4


def test_short_runs_are_shared_out() -> None:
    """Few bytes, each moved by itself, take long; as many in one piece are not worth a second core."""
    boxes, flat = jax.ShapeDtypeStruct((2000, 256), jnp.float32), jax.ShapeDtypeStruct((2000,), jnp.float32)
    (strided,) = tw.compile(lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]), boxes).report().kernels
    (dense,) = tw.compile(lambda a, b: a - b, flat, flat).report().kernels
    assert dense.cores == 1 < 8 <= strided.cores


def test_long_columns_are_shared_out() -> None:
    """Rows that do not fit, of so many columns that no second kernel is worth it, and what may not be split."""
    x = jax.ShapeDtypeStruct((3000, 6000), jnp.float32)
    for fn in (lambda x: x.sum(0), lambda x: x.argmax(0)):
        (kernel,) = tw.compile(fn, x).report().kernels
        assert kernel.cores >= 16
        pinned = tw.compile(fn, x, options=tw.Options(schedule=tw.Schedule(cores=3)))
        assert pinned.report().kernels[0].cores <= 3


@sampled(3)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i8", "i32"])
@examples(4)
@given(draw=st.data(), target=TARGETS)
def test_reduce_window(dtype: str, draw: st.DataObject, target: str) -> None:
    rank = draw.draw(st.integers(1, 4))
    each = [
        (
            draw.draw(st.sampled_from([1, 5, 7, 13] if rank > 2 else [5, 17, 64])),
            draw.draw(st.sampled_from([1, 2, 3])),
            draw.draw(st.integers(1, 3)),
            (draw.draw(st.integers(0, 2)), draw.draw(st.integers(0, 2))),
            draw.draw(st.sampled_from([1, 1, 2])),
        )
        for _ in range(rank)
    ]
    shape, window, strides, padding, dilation = (tuple(v) for v in zip(*each, strict=True))
    assume(all(n + sum(p) > (w - 1) * d for n, w, _, p, d in each))
    x = data(dtype, shape)

    def fn(x: Any) -> list[Any]:
        def pool(initial: Any, f: Any) -> Any:
            return lax.reduce_window(
                x, np.asarray(initial, x.dtype), f, window, strides, padding, window_dilation=dilation
            )

        low = -np.inf if dtype in FLOATS else jnp.iinfo(x.dtype).min
        average = [pool(0, lax.add) / math.prod(window)] if dtype in FLOATS else []
        return [pool(low, lax.max), pool(0, lax.add), *average]

    check(fn, x, target=target, length=math.prod(window))


@pytest.mark.parametrize(
    ("shape", "dtype", "window", "strides", "dilation", "padding"),
    [
        ((3, 20_000), "f32", (1, 19_000), (1, 1), (1, 1), ((0, 0), (0, 0))),
        ((2, 40_000), "bf16", (1, 30_001), (1, 7), (1, 1), ((0, 0), (20_000, 3))),
        ((300, 301), "i32", (200, 151), (2, 3), (1, 2), ((5, 0), (0, -1))),
        ((30_000, 20), "f16", (30_000, 3), (1, 2), (1, 1), ((0, 0), (1, 0))),
        ((5, 9000), "i1", (2, 8192), (1, 1), (1, 1), ((0, 0), (0, 0))),
    ],
)
@sampled(5)
def test_windows_that_do_not_fit(
    shape: Any, dtype: str, window: Any, strides: Any, dilation: Any, padding: Any
) -> None:
    def pool(x: Any, start: Any, f: Any) -> Any:
        start = np.asarray(start, x.dtype)
        return lax.reduce_window(x, start, f, window, strides, padding, window_dilation=dilation)

    x = data(dtype, shape)
    if dtype == "i1":
        check(lambda x: pool(x, False, lax.bitwise_or), x)
        return
    low = -math.inf if dtype in FLOATS else -(2**31)
    largest = check(lambda x: pool(x, low, lax.max), x)
    assert "npu.host_call" not in {op.name for op in largest.module().walk()}
    if dtype not in ("f16", "bf16"):
        check(lambda x: pool(x, 0, lax.add), x, length=math.prod(window))
        return
    program = tw.compile(lambda x: pool(x, 0, lax.add), x)
    exact = pool(x.astype(jnp.float32), 0, lax.add)  # XLA rounds narrow sums after every addition
    assert_close(program(x), exact.astype(x.dtype), float(jnp.finfo(x.dtype).eps), "sum")


def test_reduce_window_beyond_unrolled() -> None:
    def fn(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, 0.0, lax.add, (1, 5, 5, 1), (1, 2, 1, 1), "SAME")

    check(fn, data("f32", (2, 13, 17, 3)), length=25)


@sampled(2)
@pytest.mark.parametrize("dims", [(), (0,), (1,)])
def test_windows_over_a_broadcast(dims: tuple[int, ...]) -> None:
    """The window's own loads repeat the elements: a number, a column, a row."""
    x = data("i32", [(7, 9)[d] for d in dims])

    def fn(x: jax.Array) -> tuple[jax.Array, ...]:
        wide = lax.broadcast_in_dim(x, (7, 9), dims)
        pooled = lax.reduce_window(wide, 0, lax.add, (2, 3), (1, 2), "SAME")
        return pooled, lax.cumsum(wide, 1), lax.cumsum(jnp.full((5, 7), 3), 0) + x.sum()

    check(fn, x)


# -- programs that are odd

X, Y = data("f32", (3, 5)), data("f32", (5,))
ODD: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "the same result twice": (lambda x: (x + 1, x + 1), (X,)),
    "one value twice": (lambda x: [x * 2] * 2, (X,)),
    "an input as result": (lambda x, y: (x, y, x), (X, Y)),
    "an unused input": (lambda x, y: x + 1, (X, Y)),
    "a scalar": (lambda x: x * 2 + 1, (data("f32", ()),)),
    "scalars": (lambda x, y: (x * y, x > y), (data("f32", ()), data("f32", (), 1))),
    "a constant": (lambda x: (jnp.ones((3, 4)), np.arange(5, dtype=np.int32), jnp.float32(2)), (Y,)),
    "layouts of an input": (lambda x: (x.T, x.reshape(-1), x[None], jnp.broadcast_to(x, (2, 3, 5))), (X,)),
    "layouts of a value": (lambda x: ((x + 1).T, (x + 1).reshape(-1), x + 1), (X,)),
    "no elements": (lambda x: (x + 1, x.sum(0), x.sum(1), x.T), (jnp.zeros((0, 5)),)),
    "a maximum of nothing": (lambda x: x.max(1, initial=-1.0), (jnp.zeros((3, 0)),)),
    "an empty part": (lambda x, y: jnp.concatenate([x, y]), (jnp.zeros((0, 5)), X)),
    "nothing at all": (lambda: jnp.arange(7.0), ()),
    "a value and its transpose": (lambda x: jnp.exp(x) + jnp.exp(x).T, (data("f32", (17, 17)),)),
    "a value and its reverse": (lambda x: jnp.exp(x) + jnp.exp(x)[::-1], (X,)),
    "padding reversed": (lambda x: jnp.pad(x, ((2, 1), (1, 0)))[::-1, ::-1] * 2, (X,)),
    "padding reversed, by steps": (lambda x: jnp.pad(x, ((2, 1), (1, 3)))[::-2, ::-3] * 2, (X,)),
    "neighbours": (lambda x: jnp.exp(x)[1:] + jnp.exp(x)[:-1], (X,)),
    "a value in two shapes": (lambda x: jnp.exp(x).reshape(5, 3) + x.reshape(5, 3), (X,)),
    "a transpose larger than a tile": (lambda x: x.T, (data("f32", (300, 257)),)),
}


@sampled(3)
@pytest.mark.parametrize("name", ODD)
def test_odd(name: str) -> None:
    fn, args = ODD[name]
    check(fn, *args)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.prod(jnp.tanh(x) + 1, axis=1) - x[:, 0],
        lambda x: jnp.tanh(lax.fori_loop(0, 3, lambda i, c: c, jnp.arange(13.0))) + x[0, 0],
    ],
    ids=["added to a product", "a function of places"],
)
def test_roundings_do_not_depend_on_what_is_compiled_together(fn: Any) -> None:
    """XLA merges a product with what is added to it, and computes with other roundings what it knows in advance."""
    x = data("f32", (21, 5))
    program = tw.compile(fn, x)
    one, other = (program.executable(m)(x)[0] for m in ("typed", "bytes"))
    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_a_window_over_a_spread_input() -> None:
    """Against numpy: a library of XLA's gets this wrong in f16."""

    def fn(x: jax.Array) -> jax.Array:
        edge, ones = jnp.float16(jnp.inf), (1, 1, 1, 1, 1)
        return lax.reduce_window(
            x, edge, lax.min, (1, 1, 3, 1, 2), (3, 1, 3, 1, 2), "SAME", (1, 2, 1, 1, 1), ones
        )

    x = data("f16", (2, 64, 16, 2, 2))
    spread = np.full((127, 18, 2, 2), np.inf, np.float16)
    spread[::2, 1:17] = x[0]
    want = spread.reshape(127, 6, 3, 2, 2).min(axis=(2, 4))[None, ..., None]
    np.testing.assert_array_equal(np.asarray(tw.compile(fn, x)(x)), want)
    np.testing.assert_array_equal(np.asarray(run_graph(lower(fn, x)[0], x)[0]), want)
