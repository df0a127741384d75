"""Quantise, dequantise, fake quantisation, scales of weights, and how good a quantised tensor is.

A stored number q stands for (q - zero) * scale. `scale` and `zero` are numbers, or arrays of the rank of their
tensor with so many elements along each dimension that its extent is a multiple of them: [1, N] is one scale for each
column of a [K, N] tensor, [K / 32, N] one for each 32 rows of each column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from ..dialects import dtypes

TINY = 2.0**-126
"""The least normal f32. Scales are not less, so that they and their inverses are exact to the last bit."""

SCALE_METHODS = ("absmax", "extended", "mse")
"""The names of methods of `weight_scale`."""

RATIOS = 100
"""How many clipped ranges the method "mse" tries."""

LEAST_RATIO = 0.05
"""The narrowest range that "mse" tries, as a fraction of the largest magnitude; the ratios are a geometric sequence."""


def stored_range(storage: str, symmetric: bool = False) -> tuple[float, float]:
    """The least and the largest number that is stored in an element type, by its name ("i8", "i4", "f8E4M3FN",
    "f8E5M2", ...). With `symmetric`, the least of a signed integer type is left out: -127 to 127 for i8."""
    low, high = dtypes.limits(storage)
    return (-high, high) if symmetric and low < 0 else (low, high)


def grid(shape: Sequence[int], blocks: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The shape of the scales of a tensor. Each pair of `blocks` is a dimension and how many neighbours along it share
    a scale; along other dimensions all do. Raises ValueError where a size does not divide the dimension."""
    found = [1] * len(shape)
    for d, n in blocks:
        if not 0 <= d < len(shape):
            raise ValueError(f"a tensor of shape {list(shape)} has no dimension {d}: `blocks` names its own")
        if n < 1 or shape[d] % n:
            raise ValueError(
                f"groups of {n} do not divide the {shape[d]} elements along dimension {d} of {list(shape)}: "
                "choose a divisor"
            )
        found[d] = shape[d] // n
    return tuple(found)


def spread(scale: ArrayLike, shape: Sequence[int]) -> jax.Array:
    """One scale (or zero point) for each element of a tensor of a shape, from one for each block; as f32. Raises
    ValueError where the blocks do not divide the shape."""
    scale = jnp.asarray(scale, jnp.float32)
    if scale.ndim == 0:
        return jnp.broadcast_to(scale, tuple(shape))
    if scale.ndim != len(shape) or any(s == 0 or n % s for n, s in zip(shape, scale.shape)):
        raise ValueError(
            f"scales of shape {list(scale.shape)} do not fit a tensor of shape {list(shape)}: give a number, or as "
            "many dimensions, each of which divides the tensor's"
        )
    split = [part for n, s in zip(shape, scale.shape) for part in (s, n // s)]
    held = scale.reshape([part for s in scale.shape for part in (s, 1)])
    return jnp.broadcast_to(held, split).reshape(tuple(shape))


def along(values: ArrayLike, axis: int, rank: int) -> jax.Array:
    """A vector of one number for each slice along an axis, in the rank of the tensor."""
    shape = [1] * rank
    shape[axis] = -1
    return jnp.asarray(values).reshape(shape)


def quantize(
    x: ArrayLike, scale: ArrayLike, zero: ArrayLike, low: float, high: float, dtype: DTypeLike | None = None
) -> jax.Array:
    """The stored numbers of x: clip(round_half_even(x / scale) + zero, low, high), in x's shape and in `dtype`: by
    default i8, or i32 where -128 to 127 does not hold `low` and `high`.

    x of any float type is computed with in f32. Where `dtype` is a float type, x / scale + zero is clamped and then
    rounded by the cast: values beyond the range saturate. NaN has no integer; observers refuse it before this is
    reached.
    """
    x = jnp.asarray(x)
    small = low >= -128 and high <= 127
    stored = jnp.dtype((jnp.int8 if small else jnp.int32) if dtype is None else dtype)
    q = _quotient(x.astype(jnp.float32), spread(scale, x.shape))
    if not jnp.issubdtype(stored, jnp.floating):
        q = jnp.round(q)
    return jnp.clip(q + spread(zero, x.shape), low, high).astype(stored)


def dequantize(
    q: ArrayLike, scale: ArrayLike, zero: ArrayLike = 0, dtype: DTypeLike = jnp.float32
) -> jax.Array:
    """What stored numbers stand for, (q - zero) * scale, computed in f32 and converted to `dtype`."""
    q = jnp.asarray(q)
    return ((q.astype(jnp.float32) - spread(zero, q.shape)) * spread(scale, q.shape)).astype(dtype)


def fake(
    x: ArrayLike,
    scale: ArrayLike,
    zero: ArrayLike = 0,
    low: float = -127,
    high: float = 127,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    """What x becomes by being stored: dequantize(quantize(x)), bit for bit, in x's type.

    The gradient is straight-through (Bengio et al. 2013): rounding counts as the identity and clamping does not. So
    that of x is 1 inside the range and 0 outside; that of the scale is Esser et al. 2020, eq. 3, and that of the zero
    point -scale outside the range and 0 inside (Jain et al. 2020).
    """
    x = jnp.asarray(x)
    kind = None if dtype is None or not jnp.issubdtype(dtype, jnp.floating) else jnp.dtype(dtype)
    scale, zero = spread(scale, x.shape), spread(zero, x.shape)
    return _fake(x.astype(jnp.float32), scale, zero, float(low), float(high), kind).astype(x.dtype)


def weight_scale(
    w: ArrayLike,
    blocks: Sequence[tuple[int, int]] = (),
    method: str = "absmax",
    high: float = 127,
    mantissa_bits: int | None = None,
) -> jax.Array:
    """Scales of a weight whose stored numbers are -high to high, one for each block (see `grid`), in f32.

    "absmax": the largest magnitude is stored as `high`. "extended": it lies half a step beyond `high`, so that it is
    off by half a step, as others may be, and steps are finer (by 7% with 4 bits). "mse": the clipped range with the
    least squared error of the block among `RATIOS` from that of "extended" down to `LEAST_RATIO` of it, and that of
    "absmax". Blocks of zeros get 1. With `mantissa_bits`, scales are rounded up to so many bits. Raises ValueError for
    an empty weight or another method.
    """
    w = jnp.asarray(w).astype(jnp.float32)
    if w.size == 0:
        raise ValueError(f"a weight of shape {list(w.shape)} has no elements, so no scale: leave it out")
    if method not in SCALE_METHODS:
        raise ValueError(
            f'no method for scales of weights is called "{method}": choose one of {", ".join(SCALE_METHODS)}'
        )
    return _weight_scale(w, grid(w.shape, blocks), method, float(high), mantissa_bits)


def rounded_up(scale: ArrayLike, mantissa_bits: int | None) -> jax.Array:
    """The least f32 that is no less than a positive scale and has so many bits behind the point; None: the scale."""
    scale = jnp.asarray(scale, jnp.float32)
    if mantissa_bits is None:
        return scale
    if not 0 <= mantissa_bits <= 23:
        raise ValueError(f"an f32 has 0 to 23 bits behind the point, not {mantissa_bits}: choose so many")
    rest = (1 << (23 - mantissa_bits)) - 1
    # a carry out of the mantissa raises the exponent, which is the next power of two
    bits = lax.bitcast_convert_type(scale, jnp.uint32) + jnp.uint32(rest)
    return lax.bitcast_convert_type(bits & jnp.uint32(~rest & 0xFFFFFFFF), jnp.float32)


def sqnr(reference: ArrayLike, found: ArrayLike) -> float:
    """Signal to quantisation noise, 10 log10(sum reference^2 / sum (reference - found)^2), in dB; infinite where both
    are equal."""
    a, b = jnp.asarray(reference, jnp.float32), jnp.asarray(found, jnp.float32)
    peak = jnp.maximum(jnp.max(jnp.abs(a)), TINY)  # squares of large numbers are none of f32
    signal, noise = float(jnp.sum((a / peak) ** 2)), float(jnp.sum(((a - b) / peak) ** 2))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def cosine(reference: ArrayLike, found: ArrayLike) -> float:
    """Cosine of the angle between two tensors taken as vectors: 1 where they are proportional, or both 0."""
    a, b = jnp.ravel(jnp.asarray(reference, jnp.float32)), jnp.ravel(jnp.asarray(found, jnp.float32))
    a, b = (v / jnp.maximum(jnp.max(jnp.abs(v)), TINY) for v in (a, b))
    lengths = float(jnp.linalg.norm(a) * jnp.linalg.norm(b))
    return float(jnp.dot(a, b)) / lengths if lengths else float(bool(jnp.all(a == b)))


def _quotient(x: jax.Array, scale: jax.Array) -> jax.Array:
    """x / scale, rounded once. XLA multiplies by a rounded inverse where it sees that a divisor is broadcast, and one
    quotient in a million is then rounded to another integer."""
    return x / lax.optimization_barrier(scale)


@partial(jax.custom_jvp, nondiff_argnums=(3, 4, 5))
def _fake(x: jax.Array, scale: jax.Array, zero: jax.Array, low: float, high: float, kind: Any) -> jax.Array:
    q = _quotient(x, scale)
    q = jnp.clip((jnp.round(q) if kind is None else q) + zero, low, high)
    return ((q if kind is None else q.astype(kind).astype(jnp.float32)) - zero) * scale


@_fake.defjvp
def _fake_jvp(
    low: float, high: float, kind: Any, primals: Sequence[jax.Array], tangents: Sequence[jax.Array]
) -> tuple[jax.Array, jax.Array]:
    (x, scale, zero), (dx, dscale, dzero) = primals, tangents
    y = _fake(x, scale, zero, low, high, kind)
    quotient = x / scale
    q = (jnp.round(quotient) if kind is None else quotient) + zero
    inside = (q >= low) & (q <= high)
    # inside, y = scale * (x / scale + rounding error): the error counts as a constant
    of_scale = (y - jnp.where(inside, x, 0)) / scale
    out = jnp.where(inside, dx, 0) + of_scale * dscale - jnp.where(inside, 0, scale) * dzero
    return y, out


@partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _weight_scale(
    w: jax.Array, blocks: tuple[int, ...], method: str, high: float, mantissa_bits: int | None
) -> jax.Array:
    """`weight_scale`; `blocks`: how many there are along each dimension."""
    # for each dimension, blocks and then what is in one; XLA reduces 30 times as fast without dimensions of 1
    parts = [
        (part, inner)
        for n, s in zip(w.shape, blocks)
        for part, inner in ((s, False), (n // s, True))
        if part > 1
    ]
    split = w.reshape([part for part, _ in parts])
    axes = tuple(i for i, (_, inner) in enumerate(parts) if inner)
    largest = jnp.max(jnp.abs(split), axis=axes, keepdims=True, initial=0.0)

    def scale_of(bound: jax.Array) -> jax.Array:
        scale = rounded_up(jnp.maximum(bound / high, TINY), mantissa_bits)
        return jnp.where(largest > 0, scale, 1.0)

    def better(
        best: tuple[jax.Array, jax.Array], ratio: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        least, chosen = best
        scale = scale_of(largest * ratio)
        stored = jnp.clip(jnp.round(split / scale), -high, high) * scale
        # in units of the block's largest magnitude: squares of small weights are none of f32
        error = jnp.sum(((split - stored) / jnp.maximum(largest, TINY)) ** 2, axis=axes, keepdims=True)
        return (jnp.minimum(error, least), jnp.where(error < least, scale, chosen)), None

    if method == "absmax":
        return scale_of(largest).reshape(blocks)
    extended = high / (high + 0.5)
    if method == "extended":
        return scale_of(largest * extended).reshape(blocks)
    ratios = jnp.append(jnp.geomspace(1.0, LEAST_RATIO, RATIOS) * extended, 1.0)
    start = (jnp.full_like(largest, jnp.inf), scale_of(largest))
    (_, chosen), _ = lax.scan(better, start, ratios)
    return chosen.reshape(blocks)
