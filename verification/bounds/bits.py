"""Bounds of functions of bits: which bits of a result are unsure where integers, or floats read as such, may be off.

A number that may be off by `e` lies in a range, and what all numbers of the range have in common in front is sure.
Where a function keeps the order of its operand, or copies all bits that are unsure, its result is off by less than
these bits are worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax import Array

from ...backends.functions import values
from ..tolerance import Mode
from .arrays import bitcast, jnp, scalar_function
from .base import as_bound, displaced, distance, raw_ends, reach, top_bit, unsigned, wide

SHIFTS = ("shl", "shr_logical", "shr_arithmetic")
JOINS = ("and", "or", "xor")


def bits(name: str, xs: Sequence[Array], es: Sequence[Array], y: Array, mode: Mode) -> Array:
    """The bound of function `name` of bits. es: bounds of all operands, zeros where they are exact."""
    unsure = jnp.any(jnp.stack([jnp.broadcast_to(e > 0, y.shape) for e in es]), axis=0)
    if y.dtype == np.bool_:
        return unsure.astype(np.float32)
    found = jnp.where(unsure, jnp.inf, 0).astype(wide(y).dtype)
    whole = all(x.dtype.kind in "iu" for x in (*xs, y))
    if name == "bitcast":
        return jnp.where(unsure, _read_as(xs[0], es[0], y, mode), 0)
    if name == "not" and whole:
        return es[0]
    if name in JOINS and whole:
        return jnp.where(unsure, _joined(name, xs, es, mode), 0)
    if name in SHIFTS and whole:
        return jnp.where(unsure, _shifted(name, xs, es, y, mode), 0)
    return found


def _unsure(low: Array, high: Array) -> Array:
    """The bits that are not the same in all numbers of a range: those from the first on in which its ends differ."""
    found, shift = low ^ high, 1
    while shift < 8 * found.dtype.itemsize:
        found |= found >> found.dtype.type(shift)
        shift *= 2
    return found


def _worth(pattern: Array, like: Array) -> Array:
    """How far apart numbers may be that differ in these bits only."""
    return pattern.astype(like.dtype)


def _low_ones(pattern: Array) -> Array:
    """Whether all ones of a number are at its end."""
    return pattern & (pattern + pattern.dtype.type(1)) == 0


def _joined(name: str, xs: Sequence[Array], es: Sequence[Array], mode: Mode) -> Array:
    raws = [unsigned(x) for x in xs]
    ends = [raw_ends(x, e, mode) for x, e in zip(xs, es, strict=True)]
    doubts = [_unsure(*end) for end in ends]
    either = doubts[0] | doubts[1]
    if name == "and":
        either &= (raws[0] | doubts[0]) & (raws[1] | doubts[1])
    elif name == "or":
        either &= ~(raws[0] & ~doubts[0]) & ~(raws[1] & ~doubts[1])
    total = jnp.maximum(*es)
    found = _worth(either, total)
    if name == "xor":
        return jnp.where(
            (doubts[0] & raws[1] | doubts[1] & raws[0]) == 0, jnp.minimum(found, es[0] + es[1]), found
        )
    # with a number that is exact: what keeps all that is unsure keeps its distance, and what cuts off its end keeps
    # its order, so that it adds no more than the end
    for (low, high), doubt, e, other, exact in zip(
        ends, doubts, es, reversed(raws), reversed(es), strict=True
    ):
        lost = ~other if name == "and" else other
        function = jnp.bitwise_and if name == "and" else jnp.bitwise_or
        gone = distance(*(bitcast(function(end, other), xs[0].dtype) for end in (low, high)))
        kept = jnp.where(_low_ones(lost), jnp.minimum(gone, e + _worth(lost, e)), found)
        kept = jnp.where(doubt & lost == 0, e, kept)
        found = jnp.where(exact == 0, jnp.minimum(found, kept), found)
    return found


def _shifted(name: str, xs: Sequence[Array], es: Sequence[Array], y: Array, mode: Mode) -> Array:
    """By an exact number of places: a division, or a product, where no unsure bit is a sign or lost on the left."""
    x, by = xs
    low, high = (bitcast(end, x.dtype) for end in raw_ends(x, es[0], mode))
    doubt = bitcast(_unsure(unsigned(low), unsigned(high)), x.dtype)
    ends = [scalar_function(name)(end, by) for end in (low, high)]
    worth = _worth(unsigned(scalar_function(name)(doubt, by)), es[0])
    width = 8 * x.dtype.itemsize
    scale = jnp.exp2(jnp.clip(as_bound(by), 0, width))
    if name == "shl":
        back = scalar_function("shr_arithmetic" if x.dtype.kind == "i" else "shr_logical")
        ordered = (back(ends[0], by) == low) & (back(ends[1], by) == high)
        kept = es[0] * scale
    else:
        keeps_sign = (name == "shr_arithmetic") == (x.dtype.kind == "i")
        ordered = ((unsigned(doubt) & top_bit(x)) == 0) | keeps_sign
        kept = es[0] / scale + 1
    kept = jnp.minimum(displaced(ends, y), kept)
    return jnp.where(es[1] > 0, jnp.inf, jnp.where(ordered, jnp.minimum(worth, kept), worth))


def _read_as(x: Array, e: Array, y: Array, mode: Mode) -> Array:
    """The bits of a number as one of another type. Those of floats of one sign are in their order, the nearer the
    closer to 0; nothing is known beside NaN, whose bits nobody says, and where the sign is unsure."""
    kinds = [values.is_floating(v) for v in (x, y)]
    if kinds == [False, False]:
        low, high = raw_ends(x, e, mode)
        return jnp.where((_unsure(low, high) & top_bit(x)) == 0, e, jnp.inf)
    if kinds == [True, True]:
        return jnp.full(y.shape, jnp.inf, wide(y).dtype)
    if kinds[0]:
        r = reach(e, mode)
        ends = [(as_bound(x) + s * r).astype(x.dtype) for s in (-1, 1)]
        patterns = [unsigned(end) for end in ends]
        nearest = unsigned(jnp.minimum(*(jnp.abs(end) for end in ends)))
        floats, off = x, displaced([bitcast(p, y.dtype) for p in patterns], y)
    else:
        patterns = list(raw_ends(x, e, mode))
        ends = [bitcast(p, y.dtype) for p in patterns]
        nearest = jnp.maximum(*((p & ~top_bit(x)) for p in patterns))
        floats, off = y, displaced(ends, y)
    step = as_bound(bitcast(nearest + nearest.dtype.type(1), floats.dtype)) - as_bound(
        bitcast(nearest, floats.dtype)
    )
    kept = jnp.where(step > 0, e / step, jnp.inf) if kinds[0] else e * step
    sure = ((patterns[0] ^ patterns[1]) & top_bit(x)) == 0
    for v in (floats, *ends):
        sure &= ~jnp.isnan(v)
    # a step that is lost among denormals, or beyond the largest number, says nothing
    found = jnp.where(jnp.isfinite(kept), jnp.minimum(off, kept), off)
    return jnp.where(sure, found, jnp.inf).astype(wide(y).dtype)
