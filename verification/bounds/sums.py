"""Bounds of reductions, windows, running totals and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array, lax
from jax import numpy as jnp

from ...backends.interpreter import values
from ...backends.interpreter.graph import convolve, over_windows
from ...dialects import graph as ops
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import CumulateOp
from ..tolerance import Mode, roundoff, sum_error
from .base import Bound, both, reach, rounding, scaled, signed, wide


def _reduced(e: Array, dims: Sequence[int], mode: Mode) -> Array:
    if mode == "worst":
        return jnp.sum(e, axis=tuple(dims))
    return jnp.sqrt(jnp.sum(jnp.square(e), axis=tuple(dims)))


def _extreme(x: Array, e: Array, y: Array, choose: Callable[[Array], Array]) -> Array:
    """How far the largest (or smallest) element may move: those that cannot be it do not count."""
    return jnp.maximum(*(jnp.abs(choose(signed(x) + s * e) - signed(y)) for s in (1, -1)))


def reduce(
    op: ops.ReduceOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    kind, dims = text(op.kind), to_ints(op.dims)
    n = size([x.shape[d] for d in dims])
    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: values.reduce(v, kind, dims))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.max(jnp.where(e > 0, jnp.inf, 0), axis=dims, initial=0)]
    # other dimensions are walked tile by tile, a few rows at a time
    own = sum_error(n, _accumulator(x, mode), np.dtype(x.dtype), mode, halves=dims == (x.ndim - 1,))
    if kind == "prod":
        share = None if e is None else _reduced(jnp.where(e == 0, 0, e / wide(x)), dims, mode)
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    moved = None if e is None else _reduced(e, dims, mode)
    return [both(moved, own * jnp.sum(wide(x), axis=dims), mode) if own else moved]


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
    worst = _extreme(x, e, ys[0], lambda v: values.reduce(v, text(op.kind), [dim]))
    best = jnp.expand_dims(signed(ys[0]), dim)
    near = reach(e + jnp.expand_dims(worst, dim), mode)
    rivals = jnp.sum(jnp.abs(signed(x) - best) <= near, axis=dim)
    unsure = (rivals > 1) & (jnp.max(e, axis=dim) > 0)
    return [worst, jnp.where(unsure, jnp.inf, 0).astype(wide(ys[1]).dtype)]


def _windows(op: ops.ReduceWindowOp, x: Array, kind: str = "sum") -> Array:
    return over_windows(op, x, kind)


def reduce_window(
    op: ops.ReduceWindowOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    (x,), (e,), (y,) = xs, es, ys
    kind, n = text(op.kind), size(to_ints(op.window))
    # the vector unit combines the window's elements one by one, in the element type
    own = sum_error(n, np.dtype(x.dtype), np.dtype(x.dtype), mode)
    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: _windows(op, v, kind))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.where(_windows(op, e) > 0, jnp.inf, 0)]
    if kind == "prod":
        share = None if e is None else _windows(op, jnp.where(e == 0, 0, e / wide(x)))
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    if e is None:
        moved = None
    else:
        moved = _windows(op, e) if mode == "worst" else jnp.sqrt(_windows(op, jnp.square(e)))
    return [both(moved, own * _windows(op, wide(x)) if own else None, mode)]


def cumulate(
    op: CumulateOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """As a reduction of all that each element is combined with."""
    (x,), (e,), (y,) = xs, es, ys
    kind, dim, reverse = text(op.kind), integer(op.dim), bool(integer(op.reverse))

    def total(v: Array, way: str = "sum") -> Array:
        return values.cumulate(v, way, dim, reverse)

    if kind in ("max", "min"):
        return [None if e is None else _extreme(x, e, y, lambda v: total(v, kind))]
    if kind in ("and", "or"):
        return [None if e is None else jnp.where(total(e) > 0, jnp.inf, 0)]
    # pieces of a row are combined in the type the unit computes in
    own = sum_error(x.shape[dim], _accumulator(x, mode), np.dtype(x.dtype), mode)
    if kind == "prod":
        share = None if e is None else total(jnp.where(e == 0, 0, e / wide(x)))
        return [both(scaled(wide(y), share), rounding(y, own, mode), mode)]
    moved = None if e is None else total(e) if mode == "worst" else jnp.sqrt(total(jnp.square(e)))
    return [both(moved, own * total(wide(x)) if own else None, mode)]


def _product(
    multiply: Callable[[Array, Array], Array],
    n: int,
    xs: Sequence[Array],
    es: Sequence[Bound],
    y: Array,
    mode: Mode,
) -> Bound:
    """Bound of a bilinear op that adds n products for each result."""
    a, b = (wide(x) for x in xs)
    acc = values.accumulator(np.dtype(xs[0].dtype), np.dtype(y.dtype))
    own = sum_error(n + 1, acc, acc, mode)
    if acc.kind == "c":  # of each part: twice as many terms, of no larger magnitude together
        own = 2**0.5 * sum_error(2 * n + 1, acc, acc, mode)
    total: Bound = own * multiply(a, b) if own else None
    if np.dtype(y.dtype) != acc:
        total = both(total, rounding(y, roundoff(np.dtype(y.dtype)), mode), mode)
    for e, other, flip in ((es[0], b, False), (es[1], a, True)):
        if e is None:
            continue
        if mode == "worst":
            part = multiply(other, e) if flip else multiply(e, other)
        else:
            squares = jnp.square(e), jnp.square(other)
            part = jnp.sqrt(multiply(*reversed(squares)) if flip else multiply(*squares))
        total = both(total, part, mode)
    return total


def contract(
    op: ops.ContractOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    numbers = (
        (to_ints(op.lhs_contract), to_ints(op.rhs_contract)),
        (to_ints(op.lhs_batch), to_ints(op.rhs_batch)),
    )
    n = size([xs[0].shape[d] for d in to_ints(op.lhs_contract)])
    return [_product(lambda a, b: lax.dot_general(a, b, numbers), n, xs, es, ys[0], mode)]


def conv(
    op: ops.ConvOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    lb = to_ints(op.rhs_layout)
    n = size([xs[1].shape[d] for d in (lb[0], *lb[2:])])
    return [_product(lambda a, b: convolve(op, a, b, np.dtype(a.dtype)), n, xs, es, ys[0], mode)]
