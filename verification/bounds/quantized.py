"""Bounds of ops on quantized numbers, in units of what is stored: rounding makes an error one step larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jax import Array
from jax import numpy as jnp

from ...backends.interpreter import quantized as values
from ...dialects import graph as ops
from ...dialects.dtypes import is_float
from ...dialects.quantized import QuantizedFacts, quantized
from ..tolerance import Mode, roundoff
from .base import Bound, as_bound, both, displaced, or_zeros, reach, rounding, scaled, wide, within

Rule = Callable[..., list[Bound]]


def _stored(
    x: Array, factor: Array, e: Bound, y: Array, zeros: Array | None, facts: QuantizedFacts, mode: Mode
) -> Bound:
    """How far what is stored for x times a factor, which is y, may be off where x is off by `e`: by that and one step,
    within the range, and by nothing unless a number between two that can be stored is within reach."""
    if e is None:
        return None
    apart = or_zeros(scaled(wide(factor), e), e)
    centre, moved = as_bound(x) * factor, reach(apart, mode)
    ends = [values.stored(centre + s * moved, zeros, facts) for s in (-1, 1)]
    if is_float(facts.storage):
        return displaced(ends, y)
    return jnp.where(apart > 0, within(ends, y, apart + 1), 0)


def quantize(
    op: ops.QuantizeOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """Of x, and of scales that are operands, by what they move x / scale."""
    x, *given = xs
    factor = values.quantizing(op, x, *given)
    scale, zero = values.given_of(op, [or_zeros(e, v) for e, v in zip(es[1:], given, strict=True)])
    e = es[0]
    if scale is not None and any(e is not None for e in es[1:]):
        far = values.spread(scale, op.kind.data, x.shape)
        room = 1 / wide(factor) - reach(far, mode)  # to a scale of 0, where nothing is known
        share = jnp.where(room > 0, wide(x) * far / jnp.where(room > 0, room, 1), jnp.inf)
        e = both(or_zeros(e, x), jnp.where(far > 0, share, 0), mode)
    zeros = values.zeros_of(op.kind.data, values.given_of(op, given)[1], x.shape, values.F32)
    found = _stored(x, factor, e, ys[0], zeros, op.kind.data, mode)
    return [found if zero is None else both(found, values.spread(zero, op.kind.data, x.shape), mode)]


def dequantize(
    op: ops.DequantizeOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    """One rounding of the product; errors of what is stored, and of scales that are operands."""
    x, *given = xs
    facts, y = op.kind.data, ys[0]
    scale, zero = values.given_of(op, given)
    size = values.known(facts.scales or (), facts, x.shape, values.F32) if scale is None else None
    if size is None:
        assert scale is not None
        size = values.spread(wide(scale), facts, x.shape)
    found = both(rounding(y, 2 * roundoff(np.dtype(y.dtype)), mode), scaled(size, es[0]), mode)
    errors = values.given_of(op, [or_zeros(e, v) for e, v in zip(es[1:], given, strict=True)])
    if errors[0] is not None and any(e is not None for e in es[1:]):
        found = both(found, wide(y) / size * values.spread(errors[0], facts, x.shape), mode)
    if zero is not None and errors[1] is not None:
        found = both(found, size * values.spread(errors[1], facts, x.shape), mode)
    return [found]


def requantize(
    op: ops.RequantizeOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    source, target = op.type_of(op.x).data, op.type_of(op.result).data
    factor = values.requantizing(xs[0].shape, source, target)
    zeros = values.zeros_of(target, None, xs[0].shape, values.F32)
    return [_stored(values.shifted(xs[0], source), factor, es[0], ys[0], zeros, target, mode)]


def storage(
    op: ops.StorageOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
) -> list[Bound]:
    return [es[0]]


def of_integers(rule: Rule) -> Rule:
    """The bound of a product, by `rule` for plain numbers, that knows quantized ones: their sums are exact."""

    def product(
        op: ops.ContractOp | ops.ConvOp, xs: Sequence[Array], es: Sequence[Bound], ys: Sequence[Array], mode: Mode
    ) -> list[Bound]:
        left, right, made = (quantized(v.type) for v in (op.lhs, op.rhs, op.result))
        if left is None or right is None:
            return rule(op, xs, es, ys, mode)
        facts = op.sum_kind().data
        if all(e is None for e in es):
            own = rounding(ys[0], 2 * roundoff(np.dtype(ys[0].dtype)), mode)
            return [own if made is None else None]
        plain = [values.shifted(x, kind.data) for x, kind in zip(xs, (left, right), strict=True)]
        (e,) = rule(op, plain, es, [jnp.zeros(ys[0].shape, np.int32)], mode)
        assert facts.scales is not None
        if made is None:
            scales = values.known(facts.scales, facts, ys[0].shape, values.F32)
            own = rounding(ys[0], 2 * roundoff(np.dtype(ys[0].dtype)), mode)
            return [both(own, scaled(scales, e), mode)]
        if facts == made.data:
            return [e]
        # where a sum is from the next step, what is stored does not say: one step for each that it may be off by
        moved = scaled(values.requantizing(ys[0].shape, facts, made.data), e)
        return [None if moved is None else jnp.where(moved > 0, moved + 1, 0)]

    return product


RULES: dict[type, Rule] = {
    ops.QuantizeOp: quantize,
    ops.DequantizeOp: dequantize,
    ops.RequantizeOp: requantize,
    ops.StorageOp: storage,
}
