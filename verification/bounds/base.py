"""What a bound is, and the arithmetic of bounds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from jax import Array

from ...backends.stepper import numbers
from ..tolerance import LIKELY, Mode, smallest
from .arrays import bitcast, jnp

Bound = Array | None


def wide(x: Array) -> Array:
    """|x| in the type bounds have: f64 for 64-bit values, f32 otherwise."""
    if x.dtype == np.bool_:
        return x.astype(np.float32)
    dtype = np.float64 if x.dtype.itemsize >= 8 and x.dtype != np.complex64 else np.float32
    return jnp.abs(x) if x.dtype.kind == "c" else jnp.abs(x.astype(dtype))


def as_bound(x: Array) -> Array:
    """x in the type bounds have."""
    return x if x.dtype.kind == "c" else x.astype(wide(x).dtype)


def distance(x: Array, y: Array) -> Array:
    """|x - y| for each element: 0 where both are the same infinity or NaN, infinite where one is."""
    if x.dtype == y.dtype and is_whole(x):  # more digits than bounds have
        raws = [unsigned(v) for v in (x, y)]
        return jnp.where(x > y, raws[0] - raws[1], raws[1] - raws[0]).astype(wide(y).dtype)
    gap = jnp.where((x == y) | ((x != x) & (y != y)), 0, wide(as_bound(x) - as_bound(y)))
    return jnp.where(jnp.isnan(gap), jnp.inf, gap)


def zeros(x: Array) -> Array:
    return jnp.zeros(x.shape, wide(x).dtype)


def or_zeros(e: Bound, x: Array) -> Array:
    return zeros(x) if e is None else e


def both(first: Bound, second: Bound, mode: Mode) -> Bound:
    """The bound of a sum of two errors."""
    if first is None or second is None:
        return second if first is None else first
    return first + second if mode == "worst" else jnp.hypot(first, second)


def scaled(factor: Array, e: Bound) -> Bound:
    """`factor * e`, 0 where either is, even if the other is infinite."""
    return None if e is None else jnp.where((e == 0) | (factor == 0), 0, factor * e)


def reach(e: Array, mode: Mode) -> Array:
    """How far apart two computations of a value may be where that decides something: over a whole program, as many
    standard deviations as are allowed there."""
    return e if mode == "worst" else 2 * LIKELY * e


def is_known_type(dtype: np.dtype) -> bool:
    """Whether rules compute with a type in NumPy as for XLA: not with parts of bytes, pairs of numbers, nor with floats
    of 8 bits."""
    return dtype in (*numbers.WORK, *numbers.INTEGERS, numbers.BOOL)


def is_whole(x: Array) -> bool:
    """Whether x is of integers that have whole bytes; smaller ones are of no kind that numpy knows."""
    return x.dtype.kind in "iu"


def unsigned(x: Array) -> Array:
    """The bits of integers or floats."""
    dtype = np.dtype(f"uint{8 * x.dtype.itemsize}")
    return x if x.dtype == dtype else bitcast(x, dtype)


def top_bit(x: Array) -> Array:
    """The highest bit of x's type, in unsigned numbers of its width."""
    width = 8 * x.dtype.itemsize
    return jnp.full(x.shape, 1 << (width - 1), np.dtype(f"uint{width}"))


def raw_ends(x: Array, e: Array, mode: Mode) -> tuple[Array, Array]:
    """The bits of the least and of the largest integer of x's type within reach of x, where that is off by `e`."""
    raw = unsigned(x)
    flip = top_bit(x) if x.dtype.kind == "i" else jnp.zeros_like(raw)
    place, last = raw ^ flip, ~jnp.zeros_like(raw)
    far = jnp.ceil(reach(e, mode))
    inside = far < float(2 ** (8 * x.dtype.itemsize))
    steps = jnp.where(inside, jnp.where(inside, far, 0).astype(place.dtype), last)
    low, high = place - jnp.minimum(steps, place), place + jnp.minimum(steps, last - place)
    return low ^ flip, high ^ flip


def about(x: Array, e: Array, mode: Mode) -> list[Array]:
    """The least and the largest number within reach of x, which is off by `e`: integers of its own type, which has more
    digits than bounds have, otherwise numbers of the type of bounds."""
    if is_whole(x):
        return [bitcast(end, x.dtype) for end in raw_ends(x, e, mode)]
    return [as_bound(x) + s * reach(e, mode) for s in (-1, 1)]


def displaced(ends: Sequence[Array], y: Array) -> Array:
    """How far y may be from what it may be, given the ends of that."""
    return functools.reduce(jnp.maximum, [distance(end, y) for end in ends])


def within(ends: Sequence[Array], y: Array, e: Array) -> Array:
    """The bound of a function that keeps the order of its operand: `e`, which follows from the operand's, and no more
    than the results `ends` at both ends of what is within reach are from y, so that nothing is added where these are
    the same. A number that is off by no more than R is within deviations of R (Hoeffding, J. Amer. Statist. Assoc.
    58, 1963, lemma 1)."""
    return jnp.minimum(displaced(ends, y), e)


def rounding(y: Array, relative: float, mode: Mode) -> Bound:
    """The bound of a rounding of y."""
    if relative == 0:
        return None
    u = wide(y)
    return jnp.where(jnp.isfinite(u), relative * u + smallest(np.dtype(y.dtype)), 0)


def additions(sizes: Array, relative: float, dtype: np.dtype) -> Array:
    """The bound of a sum in `dtype` whose terms have magnitudes that add up to `sizes`: exact where all are 0."""
    return jnp.where(sizes == 0, 0, relative * sizes + smallest(dtype))
