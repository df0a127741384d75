"""What a bound is, and the arithmetic of bounds."""

from __future__ import annotations

import numpy as np
from jax import Array
from jax import numpy as jnp

from ..tolerance import LIKELY, Mode, smallest

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


def rounding(y: Array, relative: float, mode: Mode) -> Bound:
    """The bound of a rounding of y."""
    if relative == 0:
        return None
    u = wide(y)
    return jnp.where(jnp.isfinite(u), relative * u + smallest(np.dtype(y.dtype)), 0)
