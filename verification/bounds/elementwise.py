"""Bounds of elementwise functions."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np
from jax import Array

from ...backends.functions import values
from ...dialects import graph as ops
from ...dialects.dtypes import limits, name_of_numpy
from ...dialects.elementwise import function_named
from ..tolerance import Mode, function_error, roundoff
from .arrays import convert, jnp, scalar_function
from .base import (
    Bound,
    about,
    as_bound,
    both,
    displaced,
    distance,
    or_zeros,
    reach,
    rounding,
    scaled,
    wide,
    within,
)
from .bits import bits
from .settled import settles


def elementwise(
    op: ops.ElementwiseOp, xs: Sequence[Array], es: Sequence[Bound], y: Array, mode: Mode
) -> Bound:
    name = op.FUNCTION.name
    pairs = any(x.dtype.kind == "c" for x in (*xs, y))
    local = rounding(y, function_error(name, np.dtype(y.dtype), pairs), mode)
    if pairs:
        local = scaled(_cancelled(name, xs, y), local)
    if name == "convert" and roundoff(np.dtype(xs[0].dtype)) <= roundoff(np.dtype(y.dtype)):
        pass
    elif name == "convert" and np.dtype(xs[0].dtype).kind not in "iu":
        local = None  # to a wider type nothing is lost
    if name == "bitcast" and values.is_floating(xs[0]):
        local = jnp.where(jnp.isnan(xs[0]), jnp.inf, 0).astype(wide(y).dtype)  # which NaN it is, is open
    if all(e is None for e in es):
        return local
    full = [or_zeros(e, x) for e, x in zip(es, xs, strict=True)]
    settled = settles(op)
    if settled is not None:
        return full[settled]
    return both(_passed_on(name, xs, es, full, y, mode), local, mode)


def _cancelled(name: str, xs: Sequence[Array], y: Array) -> Array:
    """How many times its own error the result of a function of complex numbers may be off where the terms that XLA adds
    cancel: the sum of their magnitudes over the result's.

    tanh z = (e^2a - e^-2a + 2i sin 2b) / (e^2a + e^-2a + 2 cos 2b), whose divisor's terms are to it as |Re tanh z|
    + 1 to 1, and tan z likewise; expm1 z = e^z - 1; logistic z = 1 / (1 + e^-z). A power turns by an angle whose
    error grows with it, and so does that of the logarithm of its magnitude.
    """
    size = wide(y)
    match name:
        case "tanh" | "tan":
            times = 1 + size
        case "expm1":
            times = jnp.where(size > 0, (1 + jnp.abs(1 + y)) / size, 1)
        case "logistic":
            times = size + jnp.abs(1 - y)
        case "pow":
            times = 1 + jnp.abs(xs[1] * jnp.log(xs[0]))
        case _:
            times = jnp.ones_like(size)
    return jnp.where(jnp.isnan(times), 1, times).astype(size.dtype)


def _passed_on(
    name: str, xs: Sequence[Array], es: Sequence[Bound], full: Sequence[Array], y: Array, mode: Mode
) -> Bound:
    """What the operands' errors do to the result of a function."""
    passing = function_named(name).passing
    if passing == "order":
        near = wide(as_bound(xs[0]) - as_bound(xs[1])) <= reach(full[0] + full[1], mode)
        return (near & (full[0] + full[1] > 0)).astype(np.float32)
    if passing == "bits":
        return bits(name, xs, full, y, mode)
    if y.dtype == np.bool_:  # add, mul, max, min, select, convert on bools
        return jnp.any(jnp.stack([e > 0 for e in full]), axis=0).astype(np.float32)
    match name:
        case "real" | "imag":
            return full[0]
        case "complex":
            return jnp.hypot(*full)
        case "sign":
            if y.dtype.kind == "c":
                return jnp.where(full[0] == 0, 0, 2 * full[0] / wide(xs[0]))
            return displaced(_ends(name, xs, full, mode), y)
        case "add" | "sub":
            return both(es[0], es[1], mode)
        case "mul":
            first, second = scaled(wide(xs[1]), es[0]), scaled(wide(xs[0]), es[1])
            return both(both(first, second, mode), reach(full[0], mode) * full[1], mode)
        case "div" if y.dtype.kind in "fV":
            room = wide(xs[1]) - reach(full[1], mode)
            error = full[0] + jnp.where(full[1] == 0, 0, wide(y) * full[1])
            return jnp.where(error == 0, 0, jnp.where(room > 0, error / room, jnp.inf))
        case "max" | "min" | "clamp":
            return within(_ends(name, xs, full, mode), y, functools.reduce(jnp.maximum, full))
        case "neg" | "abs":
            return full[0]
        case "select":
            apart = wide(as_bound(xs[1]) - as_bound(xs[2]))
            chosen = jnp.where(xs[0], full[1], full[2])
            return jnp.where(full[0] > 0, apart + jnp.maximum(full[1], full[2]), chosen)
        case "convert":
            return _converted(xs[0], full[0], y, mode)
        case _ if passing == "steps":
            return within(_ends(name, xs, full, mode), y, full[0] + 1)
        case "rem":
            turns = as_bound(xs[0]) / as_bound(xs[1])
            slack = 1e-6 * jnp.abs(turns) + reach(full[0] + jnp.abs(turns) * full[1], mode) / wide(xs[1])
            crossed = jnp.trunc(turns + slack) != jnp.trunc(turns - slack)
            return full[0] + jnp.abs(jnp.trunc(turns)) * full[1] + jnp.where(crossed, wide(xs[1]), 0)
    if y.dtype.kind in "iu":
        return jnp.where(sum((e > 0).astype(np.float32) for e in full) > 0, jnp.inf, 0).astype(wide(y).dtype)
    return _by_slope(name, xs, es, y, mode)


def _ends(name: str, xs: Sequence[Array], es: Sequence[Array], mode: Mode) -> list[Array]:
    """The results of a function that keeps the order of its operands, at both ends of what is within reach."""
    at = [about(x, e, mode) for x, e in zip(xs, es, strict=True)]
    return [scalar_function(name)(*operands) for operands in zip(*at, strict=True)]


def _converted(x: Array, e: Array, y: Array, mode: Mode) -> Array:
    if x.dtype == np.bool_:
        return e.astype(wide(y).dtype)
    if y.dtype.kind in "iu" and x.dtype.kind not in "iu":
        low, high = map(float, limits(name_of_numpy(np.dtype(y.dtype))))
        ends = [jnp.clip(jnp.trunc(end), low, high) for end in about(x, e, mode)]
        return within(ends, y, e + 1).astype(wide(y).dtype)
    if y.dtype.kind in "iu":
        low, high = map(float, limits(name_of_numpy(np.dtype(y.dtype))))
        ends = about(x, e.astype(wide(x).dtype), mode)
        # what a narrower type has no room for comes back on its other side
        e = jnp.where((e > 0) & ((ends[0] < low) | (ends[1] > high)), jnp.inf, e)
    e = e.astype(wide(y).dtype)
    if y.dtype.kind in "iuc" or y.dtype.itemsize >= x.dtype.itemsize:
        return e
    # beyond the largest number of a narrow type there is infinity, or NaN
    held = [jnp.isfinite(as_bound(convert(end, np.dtype(y.dtype)))) for end in about(x, e, mode)]
    return jnp.where((e > 0) & jnp.isfinite(as_bound(x)) & (held[0] != held[1]), jnp.inf, e)


def _by_slope(name: str, xs: Sequence[Array], es: Sequence[Bound], y: Array, mode: Mode) -> Bound:
    """|derivative| times the operand's bound, for each operand of a smooth function; where it is so curved that it goes
    further as far as the operands may reach, so does the bound. Nothing is known where the edge of what it is
    defined for may lie on either side."""
    function, points = values.SCALAR[name], [as_bound(x) for x in xs]
    value, total = y, None
    for i, e in enumerate(es):
        if e is None:
            continue
        tangents = [jnp.ones_like(p) if j == i else jnp.zeros_like(p) for j, p in enumerate(points)]
        value, slope = jax.jvp(function, tuple(points), tuple(tangents))
        total = both(total, scaled(jnp.abs(slope), e), mode)
    assert total is not None
    steps = [reach(or_zeros(e, x), mode) for e, x in zip(es, xs, strict=True)]
    for sign in (1, -1):
        end = function(*(p + sign * r for p, r in zip(points, steps, strict=True)))
        further = distance(end, value) / reach(jnp.ones_like(total), mode)
        total = jnp.where((end != end) == (y != y), jnp.maximum(total, further), jnp.inf)
    if name == "tan":
        # like 1 / d at a distance d from a pole, which r changes by r / (d (d - r)) = r y^2 / (1 - r |y|)
        near = steps[0] * wide(y)
        total = jnp.where(near < 1, total / jnp.maximum(1 - near, 0), jnp.inf)
    return total
