"""Bounds of reductions, windows, running totals and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax

from ...backends.functions import values
from ...backends.functions.products import accumulator, both_of
from ...backends.interpreter.graph import convolve, over_windows
from ...dialects import graph as ops
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import numbers_in, size
from ...dialects.graph import CumulateOp
from ...dialects.graph.interface import element_of
from ..tolerance import Mode, roundoff, sum_error
from .arrays import jnp
from .arrays import reduce as reduce_array
from .base import Bound, about, additions, as_bound, both, reach, rounding, scaled, wide, within


def _extreme(
    x: Array, e: Array, y: Array, choose: Callable[[Array, str], Array], kind: str, mode: Mode
) -> Array:
    """How far the largest (or smallest) element may move: by no more than any of them, and those that cannot be it do
    not count. choose: combines by a kind."""
    return within([choose(end, kind) for end in about(x, e, mode)], y, choose(e, "max"))


Total = Callable[[Array, str], Array]
"""Combines elements of a tensor as an op does, by a kind: (shape of x) -> shape of the result."""


def _combined(
    kind: str,
    x: Array,
    e: Bound,
    y: Array,
    total: Total,
    own: float,
    dtype: np.dtype,
    mode: Mode,
    copies: Callable[[], Array] | None = None,
) -> Bound:
    """The bound of a result that combines several elements. own: of its additions or multiplications, relative to the
    sum of magnitudes or to the product; dtype: what they are done in; copies: how often each number of a result is
    among its elements, 1 or as often as there are elements where they are all alike by default. Copies are off by the
    same, which does not even out: asked for over whole programs, where there are errors."""
    if kind in ("max", "min"):
        return None if e is None else _extreme(x, e, y, total, kind, mode)
    if kind in ("and", "or"):
        return None if e is None else jnp.where(total(e, "sum") > 0, jnp.inf, 0)

    def spread(v: Array) -> Array:
        if mode == "worst":
            return total(v, "sum")
        if copies is not None:
            often = copies()
        else:
            alike = total(as_bound(x), "max") == total(as_bound(x), "min") if x.dtype.kind != "c" else False
            often = jnp.where(alike, total(jnp.ones_like(v), "sum"), 1)
        squares = jnp.square(v.astype(np.float64))  # those of f32 leave its range
        return jnp.sqrt(total(squares, "sum") * often).astype(v.dtype)

    if kind == "prod":
        share = None if e is None else spread(jnp.where(e == 0, 0, e / wide(x)))
        rounded = both(scaled(wide(y), share), rounding(y, own, mode), mode)
        return both(rounded, _partial_products(x, total, dtype) if own else None, mode)
    moved = None if e is None else spread(e)
    if not own:
        return moved
    sizes = total(wide(x), "sum")
    return both(moved, jnp.where(sizes > float(jnp.finfo(dtype).max), jnp.inf, additions(sizes, own, dtype)), mode)


def _partial_products(x: Array, total: Total, dtype: np.dtype) -> Array:
    """How far products in different orders are apart that meet a limit of their type on the way: one that is too large
    is infinite whatever follows, and what one loses that is too small, the others make larger again."""
    logs, info = jnp.log2(wide(x)), jnp.finfo(dtype)
    up, down = total(jnp.maximum(logs, 0), "sum"), total(jnp.minimum(logs, 0), "sum")
    lost = jnp.where((down < info.minexp) & (down > -jnp.inf), float(info.tiny) * 2**up, 0)
    return jnp.where((up >= info.maxexp) & (down < 0), jnp.inf, lost)


def reduce(
    op: ops.ReduceOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    dims, acc = to_ints(op.dims), _accumulator(x, mode)
    n = size([x.shape[d] for d in dims])
    # other dimensions are walked tile by tile, a few rows at a time
    own = sum_error(n, acc, np.dtype(x.dtype), mode, halves=dims == (x.ndim - 1,))

    def total(v: Array, kind: str) -> Array:
        return reduce_array(v, kind, dims)

    def copies() -> Array:
        found = jnp.ones(y.shape, wide(y).dtype)
        for d in dims if x.size else ():
            alike = jnp.all(x == x[(*(slice(None),) * d, slice(0, 1))], axis=dims)
            found = jnp.where(alike, found * x.shape[d], found)
        return found

    return [_combined(text(op.kind), x, e, y, total, own, acc, mode, copies)]


def _accumulator(x: Array, mode: Mode) -> np.dtype:
    """The type that x is added up in: f32 for narrower ones. Over a whole program, against JAX, their own: XLA rounds a
    reduction in f16 after each addition."""
    dtype = np.dtype(x.dtype)
    if mode == "likely":
        return dtype
    return np.dtype(np.float32) if roundoff(dtype) > roundoff(np.dtype(np.float32)) else dtype


def arg_reduce(
    op: ops.ArgReduceOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), dim = xs, es, integer(op.dim)
    if e is None:
        return [None, None]
    worst = _extreme(x, e, ys[0], lambda v, kind: values.reduce(v, kind, [dim]), text(op.kind), mode)
    best = jnp.expand_dims(as_bound(ys[0]), dim)
    near = reach(e + jnp.expand_dims(worst, dim), mode)
    rivals = jnp.sum(jnp.abs(as_bound(x) - best) <= near, axis=dim)
    unsure = (rivals > 1) & (jnp.max(e, axis=dim) > 0)
    return [worst, jnp.where(unsure, jnp.inf, 0).astype(wide(ys[1]).dtype)]


def reduce_window(
    op: ops.ReduceWindowOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    # the vector unit combines the window's elements one by one, in the element type
    dtype = np.dtype(x.dtype)
    own = sum_error(size(to_ints(op.window)), dtype, dtype, mode)
    return [_combined(text(op.kind), x, e, y, lambda v, kind: over_windows(op, v, kind), own, dtype, mode)]


def cumulate(
    op: CumulateOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """As a reduction of all that each element is combined with."""
    (x,), (e,), (y,) = xs, es, ys
    dim, reverse, acc = integer(op.dim), bool(integer(op.reverse)), _accumulator(x, mode)

    def total(v: Array, kind: str) -> Array:
        return values.cumulate(v, kind, dim, reverse)

    # pieces of a row are combined in the type the unit computes in
    own = sum_error(x.shape[dim], acc, np.dtype(x.dtype), mode)
    return [_combined(text(op.kind), x, e, y, total, own, acc, mode)]


Scale = Callable[[Array], Array]
"""The largest elements of an operand of a product, of those that are in one result: as large as it or broadcast."""


def _product(
    multiply: Callable[[Array, Array], Array],
    n: int,
    xs: Sequence[Array],
    es: Sequence[Bound],
    y: Array,
    mode: Mode,
    scales: tuple[Scale, Scale],
    combine: Callable[[Array, Array], Array],
) -> Bound:
    """Bound of a bilinear op that adds n products for each result. combine: products of scales, as large as y or
    broadcast: squares are taken relative to these, since those of f32 leave its range."""
    a, b = (wide(x) for x in xs)
    acc = accumulator(np.dtype(xs[0].dtype), np.dtype(y.dtype))
    own = sum_error(n + 1, acc, acc, mode)
    if acc.kind == "c":  # of each part: twice as many terms, of no larger magnitude together
        own = 2**0.5 * sum_error(2 * n + 1, acc, acc, mode)
    total: Bound = additions(multiply(a, b), own, acc) if own else None
    if np.dtype(y.dtype) != acc:
        total = both(total, rounding(y, roundoff(np.dtype(y.dtype)), mode), mode)
    for e, other, flip in ((es[0], b, False), (es[1], a, True)):
        if e is None:
            continue
        if mode == "worst":
            part = multiply(other, e) if flip else multiply(e, other)
        else:
            operands = (other, e) if flip else (e, other)
            most = [_nonzero(scale(v)) for scale, v in zip(scales, operands, strict=True)]
            squares = [jnp.square(v / m) for v, m in zip(operands, most, strict=True)]
            part = jnp.sqrt(multiply(*squares)) * combine(*most)
        total = both(total, part, mode)
    return total


def _nonzero(x: Array) -> Array:
    """x, and 1 where it is 0 or not finite."""
    return jnp.where((x == 0) | ~jnp.isfinite(x), 1, x)


def contract(
    op: ops.ContractOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    numbers = (
        (to_ints(op.lhs_contract), to_ints(op.rhs_contract)),
        (to_ints(op.lhs_batch), to_ints(op.rhs_batch)),
    )
    if numbers_in(element_of(op.lhs)) == 2:
        dims = [d[0] for d in numbers[0]]
        xs = [both_of(x, d) for x, d in zip(xs, dims, strict=True)]
        es = [None if e is None else _of_numbers(e, d) for e, d in zip(es, dims, strict=True)]
    n = size([xs[0].shape[d] for d in to_ints(op.lhs_contract)])

    def multiply(a: Array, b: Array) -> Array:
        return lax.dot_general(a, b, numbers)

    def largest(dims: tuple[int, ...]) -> Scale:
        return lambda v: jnp.max(v, dims, keepdims=True, initial=0)

    scales = largest(numbers[0][0]), largest(numbers[0][1])
    return [_product(multiply, n, xs, es, ys[0], mode, scales, multiply)]


def _of_numbers(e: Array, dim: int) -> Array:
    """The bound of both numbers of pairs whose bytes may be off by `e`: any of 4 bits, where that is not 0."""
    each = jnp.where(e > 0, 15, 0).astype(e.dtype)
    return jnp.concatenate([each, each], dim)


def unpack(op: ops.UnpackOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode) -> list[Bound]:
    """Numbers of 4 bits are exact; those of a byte that is not may be any."""
    (e,) = es
    return [None if e is None else jnp.repeat(jnp.where(e > 0, 15, 0).astype(wide(ys[0]).dtype), 2, -1)]


def conv(
    op: ops.ConvOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    lb, lo = to_ints(op.rhs_layout), to_ints(op.out_layout)
    n = size([xs[1].shape[d] for d in (lb[0], *lb[2:])])

    def largest(dim: int) -> Scale:
        return lambda v: jnp.max(v, [d for d in range(v.ndim) if d != dim], keepdims=True, initial=0)

    def combine(images: Array, features: Array) -> Array:
        """Of the scales of each image and of each feature of the result."""
        shapes = [[-1 if d == lo[i] else 1 for d in range(ys[0].ndim)] for i in range(2)]
        return images.reshape(shapes[0]) * features.reshape(shapes[1])

    scales = largest(to_ints(op.lhs_layout)[0]), largest(lb[1])
    return [
        _product(lambda a, b: convolve(op, a, b, np.dtype(a.dtype)), n, xs, es, ys[0], mode, scales, combine)
    ]
