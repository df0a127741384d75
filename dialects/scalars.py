"""What scalar functions compute, as functions of JAX arrays: those of `elementwise.py` that need more than one of
`jax.lax`. This module imports JAX, so it is loaded when the first value is needed.

XLA would contract a multiply and an add into one instruction where it fuses them; `settle` stops that, so that a value
does not depend on which ops happen to be compiled together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import Array, lax


def is_floating(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def settle(x: Array) -> Array:
    """x itself, with one NaN, written so that no later operation can be merged with the one that made it.

    The bits of x are compared, not x: LLVM knows that a converted integer, and what is computed of such and of
    constants, is no NaN. It would drop a test of x for NaN, and contract what that test keeps apart.
    """
    if not is_floating(x):
        return x
    if x.dtype.itemsize == 1:
        return lax.select(lax.eq(x, x), x, lax.full_like(x, np.nan))
    unsigned = np.dtype(f"uint{8 * x.dtype.itemsize}")
    infinite = np.asarray(np.inf, x.dtype).view(unsigned)
    bits = lax.bitcast_convert_type(x, unsigned)
    size = lax.bitwise_and(bits, lax.full_like(bits, np.iinfo(unsigned).max >> 1))
    return lax.select(lax.gt(size, lax.full_like(bits, infinite)), lax.full_like(x, np.nan), x)


def convert(x: Array, dtype: np.dtype) -> Array:
    """x in another dtype: floats round to nearest even; to integers they truncate; to i1, non-zero is
    true."""
    if x.dtype.kind == "c" and dtype.kind != "c":
        x = lax.real(x)
    if x.dtype == np.bool_ and jnp.issubdtype(dtype, jnp.floating):
        # XLA takes a multiplication by a converted i1 for a selection, and gives 0 for the -0 of -1 x 0
        return lax.select(x, lax.full_like(x, 1, dtype), lax.full_like(x, 0, dtype))
    if x.dtype == dtype:
        return x
    if dtype.itemsize == 1 and jnp.issubdtype(dtype, jnp.floating):
        return _to_eight_bits(x, dtype)
    made = lax.convert_element_type(x, dtype)
    return settle(made) if x.dtype.itemsize == 1 and is_floating(x) else made


def _to_eight_bits(x: Array, dtype: np.dtype) -> Array:
    """x as 8-bit floats. What XLA on the CPU makes of NaN, and of numbers that are too large for a type without
    infinity, depends on the loop around it (an f16 of 496 may become -0): here it is one NaN."""
    if not is_floating(x):
        x = lax.convert_element_type(x, np.float32)
    nan = np.asarray(np.nan).astype(dtype)
    none = lax.ne(x, x)
    if np.isnan(np.asarray(np.inf, np.float32).astype(dtype)):
        info = ml_dtypes.finfo(dtype)
        top, half = float(info.max), float(info.eps) * 2.0 ** math.floor(math.log2(float(info.max))) / 2
        none = lax.bitwise_or(none, lax.gt(lax.abs(x), lax.full_like(x, top + half)))
        x = lax.clamp(np.asarray(-top).astype(x.dtype), x, np.asarray(top).astype(x.dtype))
    bits = lax.bitcast_convert_type(lax.convert_element_type(x, dtype), np.uint8)
    bits = lax.select(none, lax.full_like(bits, nan.view(np.uint8)), bits)
    return lax.bitcast_convert_type(bits, dtype)


def _cube_root(x: Array) -> Array:
    """JAX has no cube root of complex numbers: the principal one, as XLA computes it."""
    return (
        lax.pow(x, lax.full_like(x, 1 / 3)) if jnp.issubdtype(x.dtype, jnp.complexfloating) else lax.cbrt(x)
    )


def power(x: Array, y: Array) -> Array:
    """x ** y; for integers by squaring, where a negative power of anything but 1 and -1 is 0."""
    if is_floating(x) or jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.pow(x, y)
    one, zero = lax.full_like(x, 1), lax.full_like(x, 0)
    signed = jnp.issubdtype(x.dtype, jnp.signedinteger)
    negative = lax.lt(y, zero) if signed else lax.full_like(x, False, np.bool_)
    result, base, left = one, x, lax.select(negative, zero, y)
    for _ in range(jnp.iinfo(x.dtype).bits):
        odd = lax.ne(lax.bitwise_and(left, one), zero)
        result = lax.select(odd, lax.mul(result, base), result)
        base, left = lax.mul(base, base), lax.shift_right_logical(left, one)
    if not signed:
        return result
    odd = lax.ne(lax.bitwise_and(y, one), zero)
    minus = lax.full_like(x, -1)
    inverse = lax.select(lax.eq(x, one), one, zero)
    inverse = lax.select(lax.eq(x, minus), lax.select(odd, minus, one), inverse)
    return lax.select(negative, inverse, result)


def _multiply(x: Array, y: Array) -> Array:
    """x * y; integers wrap around. XLA takes the square of an integer for one that is never negative, and so must not
    see one."""
    return lax.mul(x, lax.optimization_barrier(y) if x.dtype.kind == "i" else y)


def divide(x: Array, y: Array) -> Array:
    """x / y. XLA multiplies by the reciprocal, which rounds twice, where y is the same for many elements; so y is made
    to depend on x and on the place: no place is below -|x|."""
    if is_floating(x):
        place = lax.reshape(lax.iota(x.dtype, x.size), x.shape)
        return lax.div(x, lax.select(lax.lt(place, lax.neg(lax.abs(x))), x, y))
    if x.dtype.kind == "c":
        return lax.div(x, y)
    zero, divisor = _divisor(x, y)
    return lax.select(
        zero, lax.full_like(x, -1 if x.dtype.kind == "i" else jnp.iinfo(x.dtype).max), lax.div(x, divisor)
    )


def remainder(x: Array, y: Array) -> Array:
    if is_floating(x):
        return lax.rem(x, y)
    zero, divisor = _divisor(x, y)
    return lax.select(zero, x, lax.rem(x, divisor))


def _divisor(x: Array, y: Array) -> tuple[Array, Array]:
    """Where y is 0, and y with 1 where integers have no quotient: there x / 1 is what XLA gives for the lowest number
    by -1. XLA stops the process where it divides such constants while it compiles."""
    zero = lax.eq(y, lax.full_like(y, 0))
    none = zero
    if x.dtype.kind == "i":
        lowest, minus = lax.full_like(x, jnp.iinfo(x.dtype).min), lax.full_like(y, -1)
        none = lax.bitwise_or(zero, lax.bitwise_and(lax.eq(x, lowest), lax.eq(y, minus)))
    return zero, lax.select(none, lax.full_like(y, 1), y)


def absolute(x: Array) -> Array:
    return x if x.dtype.kind == "u" else lax.abs(x)


def leading_zeros(x: Array) -> Array:
    """Zeros above the highest one. XLA finds -32 for a negative constant."""
    zero = lax.full_like(x, 0)
    return lax.select(lax.lt(x, zero), zero, lax.clz(x)) if x.dtype.kind == "i" else lax.clz(x)


def _denormal(x: Array, negative: bool) -> Array:
    """Where x is a denormal number of this sign; i1. XLA:CPU takes denormals for zeros in every operation on floats,
    so this looks at the bits."""
    info = jnp.finfo(x.dtype)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    first = int(negative) * 2 ** (info.bits - 1) + 1
    count = 2**info.nmant - 1
    above = lax.sub(lax.bitcast_convert_type(x, unsigned), lax.full(x.shape, first, unsigned))
    return lax.lt(above, lax.full_like(above, count))


def _with_denormals(function: Callable[[Array], Array], negative: float, positive: float) -> Any:
    """`function` on x, and these values where x is a negative or positive denormal."""

    def run(x: Array) -> Array:
        y = function(x)
        for value, below in ((negative, True), (positive, False)):
            if value and is_floating(x):
                y = lax.select(_denormal(x, below), lax.full_like(y, value), y)
        return y

    return run


def _within(wide: type, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """`function`, of narrower floats in `wide`: not all code that XLA makes for it rounds alike, but rounded once
    more it is one number."""

    def run(x: Array) -> Array:
        narrow = is_floating(x) and x.dtype.itemsize < np.dtype(wide).itemsize
        with jax.enable_x64(True):
            return convert(function(convert(x, np.dtype(wide)) if narrow else x), np.dtype(x.dtype))

    return run


def _reciprocal_root(x: Array) -> Array:
    """1 / sqrt(x), each of the two rounded. XLA makes `1 / sqrt(x)` a function of its own, which it takes as long to
    compile as whole kernels; with both signs turned it does not."""
    if not is_floating(x):
        return lax.rsqrt(x)
    return lax.div(lax.full_like(x, -1), lax.neg(lax.sqrt(x)))


def _logical(boolean: Callable[[Array, Array], Array], other: Callable[[Array, Array], Array]) -> Any:
    """A binary function that is `boolean` on i1."""
    return lambda x, y: boolean(x, y) if x.dtype == np.bool_ else other(x, y)


def round_even(x: Array) -> Array:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def round_away(x: Array) -> Array:
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


sign = _with_denormals(lax.sign, -1, 1)
floor = _with_denormals(lax.floor, -1, 0)
ceil = _with_denormals(lax.ceil, 0, 1)
log_plus_one = _within(np.float32, lambda x: lax.log1p(settle(x)))  # of x and -x LLVM would compute parts once
reciprocal_root = _within(np.float32, _reciprocal_root)
cube_root = _within(np.float64, _cube_root)
tangent = _within(np.float64, lax.tan)
error_function = _within(np.float64, lax.erf)
complement_of_error_function = _within(np.float64, lax.erfc)
add = _logical(lax.bitwise_or, lax.add)
multiply = _logical(lax.bitwise_and, _multiply)
