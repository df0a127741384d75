"""Bounds of access by position, of sorts and of scatters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import Array
from jax import numpy as jnp
from xdsl.ir import Operation

from ...backends.functions import scattering, selecting, sorting, values
from ...backends.interpreter.graph import RULES
from ...dialects import graph as ops
from ...dialects.base import integer, text, to_ints
from ...dialects.dtypes import size
from ...dialects.graph import ScatterOp, SelectAndScatterOp, SortOp
from ...dialects.graph.sparsity import INDEXED
from ..tolerance import Mode, roundoff, sum_error
from .base import Bound, as_bound, both, or_zeros, reach, wide


def indexed(
    op: Operation, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """The data's bounds move; where a position is unsure, so is everything."""
    data = 2 if isinstance(op, ops.DynamicUpdateSliceOp) else 1
    moved: Bound = None
    if any(e is not None for e in es[:data]):
        bounds = [or_zeros(e, x) for e, x in zip(es[:data], xs[:data], strict=True)]
        one = RULES[type(op)](op, *bounds, *xs[data:])
        assert not isinstance(one, Sequence)
        moved = one
    for e in es[data:]:
        if e is not None:
            lost = jnp.where(jnp.max(e, initial=0) > 0, jnp.inf, 0)
            moved = both(moved, jnp.broadcast_to(lost, ys[0].shape).astype(wide(ys[0]).dtype), "worst")
    return [moved]


def expand(
    op: ops.ExpandOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """The bounds of values move; where an index may be another, so may all that it is for."""
    values, index = es
    moved: Bound = None
    if values is not None:
        one = RULES[type(op)](op, values, xs[1])
        assert not isinstance(one, Sequence)
        moved = one
    if index is not None:
        lost = jnp.repeat(jnp.where(index > 0, jnp.inf, 0), INDEXED, integer(op.dim))
        moved = both(moved, lost.astype(wide(ys[0]).dtype), "worst")
    return [moved]


def sort(
    op: SortOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Bounds move with their elements in rows where all keys are exact. Elsewhere the n-th of one key is as near as the
    worst of its row, and what follows it may be anything. In a total order the sign of a NaN, which is open, decides
    where all else of its row goes."""
    keys, dim = op.order(), integer(op.dim)
    ordered = [
        xs[k]
        for k, total in zip(keys.operands, keys.total, strict=True)
        if total and values.is_floating(xs[k])
    ]
    found = _sorted(op, xs, es, ys)
    if not ordered:
        return found
    lost = jnp.any(jnp.stack([jnp.isnan(x).any(dim, keepdims=True) for x in ordered]), axis=0)
    return [
        both(e, jnp.broadcast_to(jnp.where(lost, jnp.inf, 0), y.shape).astype(wide(y).dtype), "worst")
        for e, y in zip(found, ys, strict=True)
    ]


def _sorted(op: SortOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array]) -> list[Bound]:
    keys, dim = op.order(), integer(op.dim)
    if all(e is None for e in es):
        return [None] * len(ys)
    moved = sorting.sort([*xs, *map(or_zeros, es, xs)], keys, dim, op.kept())[len(xs) :]
    unsure = [k for k in keys.operands if es[k] is not None]
    if not unsure:
        return [None if e is None else m for e, m in zip(es, moved, strict=True)]
    worst = [jnp.max(or_zeros(es[k], xs[k]), axis=dim, keepdims=True, initial=0) for k in unsure]
    lost = jnp.any(jnp.stack([w > 0 for w in worst]), axis=0)
    return [
        jnp.broadcast_to(worst[0], y.shape) if keys.operands == (i,) else jnp.where(lost, jnp.inf, moved[i])
        for i, y in enumerate(ys)
    ]


def scatter(
    op: ScatterOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Sums and products round once for each update that meets an element; where a place is unsure, so is everything."""
    (x, index, updates), (y,), kind = xs, ys, text(op.kind)
    moved: Bound = None
    if es[0] is not None or es[2] is not None:
        bounds = or_zeros(es[0], x), index, or_zeros(es[2], updates)
        # of a product nothing is known; a maximum is off by no more than what may win
        off = scattering.scatter(*bounds, kind if kind in ("set", "sum") else "max")
        moved = jnp.where(off > 0, jnp.inf, 0) if kind == "prod" else off
    u = roundoff(np.dtype(y.dtype))
    if kind in ("sum", "prod") and u:
        hits = scattering.hits(x.shape[0], index)[:, None].astype(wide(y).dtype)
        size_of = scattering.scatter(wide(x), index, wide(updates), "sum") if kind == "sum" else wide(y)
        rounded = jnp.where(hits * u < 0.5, hits * u / (1 - jnp.minimum(hits * u, 0.5)), jnp.inf)
        known = jnp.isfinite(size_of) & (hits > 0) & (size_of > 0)
        moved = both(moved, jnp.where(known, size_of * rounded, 0), mode)
    if es[1] is not None:
        lost = jnp.where(jnp.max(es[1], initial=0) > 0, jnp.inf, 0)
        moved = both(moved, jnp.broadcast_to(lost, y.shape).astype(wide(y).dtype), "worst")
    return [moved]


def select_and_scatter(
    op: SelectAndScatterOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """As the scatter of `source`; where errors could let another element be selected, anything may be there."""
    (x, source), (y,), kind = xs, ys, text(op.kind)
    window, strides, low = (to_ints(p) for p in (op.window, op.strides, op.low))
    place = selecting.selected(x, source.shape, text(op.select), window, strides, low)
    e, n = or_zeros(es[1], source), size([-(-w // s) for w, s in zip(window, strides, strict=True)])
    moved: Bound = selecting.scattered(place, e, x.shape, "sum" if kind == "sum" else "max")
    moved = jnp.where(jnp.isfinite(moved), moved, 0) if es[1] is None else moved
    if kind == "prod":
        moved = jnp.where(moved > 0, jnp.inf, 0)
    own = sum_error(n, np.dtype(y.dtype), np.dtype(y.dtype), mode)
    if kind in ("sum", "prod") and own:
        sizes = selecting.scattered(place, wide(source), x.shape, "sum") if kind == "sum" else wide(y)
        moved = both(moved, own * sizes, mode)
    if es[0] is not None:
        off = jnp.max(reach(2 * es[0], mode), initial=0)
        flat = jnp.concatenate([jnp.ravel(as_bound(x)), jnp.zeros(1, wide(x).dtype)])
        best = flat[jnp.where(place < 0, x.size, place)]
        nearest = selecting.rivals(as_bound(x), best, off, window, strides, low)
        unsure = jnp.where((nearest > 1) & (off > 0), jnp.inf, 0).astype(wide(y).dtype)
        moved = both(moved, selecting.covered(unsure, x.shape, window, strides, low), "worst")
    return [moved]
