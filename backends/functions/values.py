"""What each scalar function and reduction computes, once for all three levels.

Arithmetic is in the operands' own dtype, and every op rounds its result to it: chains of f16 and bf16 ops lose
the same precision as on the device. The value of a scalar function is defined in its row of `dialects/elementwise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...dialects.dtypes import limits, name_of_numpy
from ...dialects.elementwise import REDUCTION_FUNCTION, function_named, identity, value_of
from ...dialects.scalars import convert, is_floating, settle
from .compiling import in_rows

NARROW_FLOATS = tuple(map(np.dtype, (jnp.float16, jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2)))
"""Floats that are added up and multiplied in f32."""


def full(shape: Sequence[int], value: float | int | bool, dtype: np.dtype) -> Array:
    """A tensor of one number; an integer dtype takes the nearest value that it has."""
    return lax.full(tuple(shape), scalar(value, dtype))


def scalar(value: float | int | bool, dtype: np.dtype) -> np.ndarray:
    """`value` in `dtype` (shape []); an integer dtype takes the nearest value that it has."""
    if np.dtype(dtype).kind in "iu" and not isinstance(value, bool):
        info = np.iinfo(dtype)
        value = int(min(max(value, info.min), info.max))
    return np.asarray(value).astype(dtype)


def side_by_side(x: Array) -> Array:
    """The parts of complex numbers along a new last dimension; other arrays as they are."""
    if x.dtype.kind != "c":
        return x
    return lax.concatenate([lax.expand_dims(f(x), [x.ndim]) for f in (lax.real, lax.imag)], x.ndim)


def joined(x: Array) -> Array:
    """The inverse of `side_by_side`."""
    return lax.complex(*(lax.index_in_dim(x, i, x.ndim - 1, keepdims=False) for i in range(2)))


def on_device(x: Any, own: bool = False) -> Array:
    """A copy of an array as JAX's, or, where nobody else will write to it (`own`), itself if it can be.
    `jax.numpy.array` would compile a copy for every shape that it meets."""
    return x if isinstance(x, Array) else jax.device_put(x if own else np.array(x))


_PACKED = {
    np.dtype(t): np.dtype(u)
    for t, u in [
        *((t, jnp.uint4) for t in (jnp.int4, jnp.uint4, jnp.float4_e2m1fn)),
        *((t, jnp.uint2) for t in (jnp.int2, jnp.uint2)),
    ]
}
"""The unsigned integers as wide as element types that XLA packs: in memory each of them has a byte."""


def plain(x: Any) -> Any:
    """An array as a compiled function takes it: of a packed type, what a compiled function gives has a layout that no
    other one accepts."""
    return jnp.asarray(np.asarray(x)) if np.dtype(x.dtype) in _PACKED else x


_RAW = {
    **{
        np.dtype(t): np.dtype(u)
        for t, u in [
            (jnp.bfloat16, np.uint16),
            *(
                (t, np.uint8)
                for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3fnuz, jnp.float8_e5m2fnuz)
            ),
            *((t, np.uint8) for t in (jnp.float8_e4m3b11fnuz, jnp.float8_e4m3, jnp.float8_e3m4)),
        ]
    },
    **dict.fromkeys(_PACKED, np.dtype(np.uint8)),
}
"""How dtypes are moved that XLA:CPU has no code for: it would widen whole tensors to f32 to slice them."""


def raw(x: Array) -> Array:
    """x in a dtype that moves cheaply, bit for bit."""
    dtype = np.dtype(x.dtype)
    if dtype in _PACKED:
        return lax.convert_element_type(_bits(x, _PACKED[dtype]), np.uint8)
    return lax.bitcast_convert_type(x, _RAW[dtype]) if dtype in _RAW else x


def raw_array(x: np.ndarray) -> np.ndarray:
    """`raw` of an array in the host's memory."""
    dtype = np.dtype(x.dtype)
    if dtype in _PACKED:
        return x.view(np.uint8) & np.uint8(jnp.iinfo(_PACKED[dtype]).max)
    return x.view(_RAW.get(dtype, dtype))


def raw_scalar(value: float | int | bool, dtype: np.dtype) -> np.ndarray:
    """`scalar`, as `raw` would hold it."""
    x = scalar(value, dtype)
    if np.dtype(dtype) in _PACKED:
        return x.view(_PACKED[np.dtype(dtype)]).astype(np.uint8)
    return x.view(_RAW.get(np.dtype(dtype), x.dtype))


def cooked(x: Array, dtype: np.dtype) -> Array:
    """The inverse of `raw`."""
    dtype = np.dtype(dtype)
    if x.dtype == dtype or dtype not in _RAW:
        return x
    if dtype in _PACKED:
        return _bits(lax.convert_element_type(x, _PACKED[dtype]), dtype)
    return lax.bitcast_convert_type(x, dtype)


def _bits(x: Array, dtype: np.dtype) -> Array:
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def raw_dtype(dtype: np.dtype) -> np.dtype:
    return _RAW.get(np.dtype(dtype), np.dtype(dtype))


# -- scalar functions --------------------------------------------------------------------------------------


class _Scalars(dict[str, Callable[..., Array]]):
    """Values of scalar functions, each loaded when it is first asked for."""

    def __missing__(self, name: str) -> Callable[..., Array]:
        self[name] = made = value_of(name)
        return made


SCALAR: dict[str, Callable[..., Array]] = _Scalars()
"""What each row of `dialects.elementwise` with a value computes, with StableHLO's semantics."""


def apply(name: str, operands: Sequence[Array], dtype: np.dtype) -> Array:
    """Function `name` of `operands` (one shape each); the result is rounded to `dtype`."""
    if name == "convert":
        return convert(operands[0], dtype)
    if name == "bitcast":
        return lax.bitcast_convert_type(operands[0], dtype)
    result = SCALAR[name](*operands)
    return convert(settle(result) if function_named(name).merges else result, dtype)


def round_to(x: Array, mode: str, dtype: np.dtype) -> Array:
    """x rounded "even" to an integer that `dtype` has, or "odd" from f32 to f16."""
    if mode == "odd":
        return _rounded_to_odd(x)
    info, own = np.iinfo(dtype), np.dtype(x.dtype)
    low, high = (own.type(n) for n in (info.min, info.max))
    whole = lax.clamp(low, lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), high)
    if int(high) == info.max:
        return convert(whole, dtype)
    # the end of the range is no number of x's type, and the next one is beyond it
    beyond = lax.ge(whole, lax.full_like(whole, high))
    inside = lax.select(beyond, lax.full_like(whole, 0), whole)
    return lax.select(beyond, lax.full_like(whole, info.max, dtype), convert(inside, dtype))


def _rounded_to_odd(x: Array) -> Array:
    """f32 as f16, cut off towards 0, with a last bit of 1 where that lost something, by arithmetic on its bits."""
    bits = lax.bitcast_convert_type(x, np.uint32)
    sign = lax.shift_right_logical(lax.bitwise_and(bits, np.uint32(1 << 31)), np.uint32(16))
    size = lax.bitwise_and(bits, np.uint32((1 << 31) - 1))
    exponent, lost = lax.shift_right_logical(size, np.uint32(23)), np.uint32(_F32_DIGITS - _F16_DIGITS)
    # below the least normal f16, digits are cut off behind its last one, all of them where there are more than 24
    low = lax.bitwise_or(lax.bitwise_and(size, np.uint32((1 << 23) - 1)), np.uint32(1 << 23))
    behind = lax.min(lax.sub(np.uint32(126), lax.min(exponent, np.uint32(126))), np.uint32(25))
    small = lax.shift_right_logical(low, behind)
    small = lax.bitwise_or(small, _as_bit(lax.ne(lax.shift_left(small, behind), low)))
    small = lax.select(lax.eq(exponent, np.uint32(0)), _as_bit(lax.ne(size, np.uint32(0))), small)
    whole = lax.sub(size, np.uint32(112 << 23))
    cut = lax.ne(lax.bitwise_and(whole, np.uint32((1 << lost) - 1)), np.uint32(0))
    whole = lax.bitwise_or(lax.shift_right_logical(whole, lost), _as_bit(cut))
    whole = lax.min(whole, np.uint32(0x7BFF))
    found = lax.select(lax.lt(exponent, np.uint32(113)), small, whole)
    infinite = np.uint32(0x7F800000)
    found = lax.select(lax.eq(size, infinite), lax.full_like(found, 0x7C00), found)
    found = lax.select(lax.gt(size, infinite), lax.full_like(found, 0x7E00), found)
    packed = lax.convert_element_type(lax.bitwise_or(sign, found), np.uint16)
    return lax.bitcast_convert_type(packed, np.float16)


def _as_bit(flag: Array) -> Array:
    return lax.convert_element_type(flag, np.uint32)


_F32_DIGITS, _F16_DIGITS = 23, 10
"""Stored digits of the mantissa."""


def drained(op: Any, x: Array, dtype: np.dtype, words: Array | None = None) -> Array:
    """What a store makes of a tile: negative accumulators may become 0 on their way, and all be multiplied, by one
    number or by those in the `words` of the columns, [*leading, 1, columns]."""
    if "relu" in op.properties:
        x = apply("max", [x, lax.full_like(x, 0)], np.dtype(x.dtype))
    if words is not None:
        factor = lax.bitcast_convert_type(lax.convert_element_type(words, np.uint32), np.float32)
        factor = lax.broadcast_in_dim(factor, np.broadcast_shapes(factor.shape, x.shape), range(x.ndim))
    elif "factor" in op.properties:
        factor = np.float32(op.factor.value.data)
    else:
        return convert(x, dtype)
    scaled = lax.mul(convert(x, np.dtype(np.float32)), factor)
    if dtype.kind not in "iu":
        scaled = settle(scaled)
        if dtype.itemsize == 1:
            low, high = map(np.float32, limits(name_of_numpy(dtype)))
            scaled = lax.clamp(low, scaled, high)
        return convert(scaled, dtype)
    info, zero = np.iinfo(dtype), 0 if op.zero is None else op.zero.value.data
    whole = lax.add(lax.round(scaled, lax.RoundingMethod.TO_NEAREST_EVEN), np.float32(zero))
    return convert(lax.clamp(np.float32(info.min), whole, np.float32(info.max)), dtype)


def accumulated(op: Any, old: Callable[[], Array], x: Array, dtype: np.dtype) -> Array:
    """What a store leaves where it stores x, which may be combined with what is there (see `npu.StoreOp`). old: gives
    that, in the shape of x."""
    kind = op.properties.get("accumulate")
    return x if kind is None else apply(kind.data, [cooked(old(), dtype), x], dtype)


# -- reductions --------------------------------------------------------------------------------------------


def neutral(kind: str, dtype: np.dtype) -> np.ndarray:
    """The neutral element of a reduction kind, shape []."""
    return scalar(identity(kind, name_of_numpy(dtype)), dtype)


def combine(kind: str) -> Callable[[Array, Array], Array]:
    """The function that combines two partial results of a reduction."""
    return SCALAR[REDUCTION_FUNCTION[kind]]


def widened(kind: str, x: Array) -> Array:
    """The dtype in which a reduction runs: sums and products of narrower floats are in f32 and rounded once."""
    return convert(x, np.dtype(np.float32)) if kind in ("sum", "prod") and x.dtype in NARROW_FLOATS else x


def reduce(x: Array, kind: str, dims: Sequence[int], keep: bool = False) -> Array:
    """x combined along `dims`, which disappear, or keep size 1; same dtype."""
    wide = widened(kind, x)
    if is_floating(wide):
        for d in dims:
            wide = _by_parts(wide, d, kind)
        out = lax.squeeze(wide, tuple(dims))
        if kind != "sum":
            out = settle(out)  # what is added to a product would be merged with it; extremes may be any NaN
    else:
        out = lax.reduce(wide, neutral(kind, wide.dtype), combine(kind), tuple(dims))
    if keep:
        out = lax.reshape(out, [1 if d in dims else s for d, s in enumerate(x.shape)])
    return convert(out, x.dtype)


PARTS = 8
"""Into how many parts a sum is cut at a time."""

AT_ONCE = 16
"""How many numbers of a sum XLA may add up in one loop of its own. Left to itself it puts several cuts into each loop,
and compiles and computes those of earlier ones again and again: a sum of 50,257 took 2.7 times as long to compile, and
3.5 times to run."""


def _by_parts(x: Array, d: int, kind: str) -> Array:
    """Dimension d combined to size 1: cut into `PARTS` equal ones (where need be with the neutral element behind it),
    of which the first half is combined with the second until one is left; and so on with that. XLA's own sum takes an
    order that depends on the shape and on what it is compiled together with, its own maximum may lose a NaN.

    x keeps its shape: XLA may write what is computed from x element by element over it, while a part of a reshaped x is
    still to be read. To it these are two arrays."""
    function, nothing = combine(kind), neutral(kind, x.dtype)
    if x.shape[d] == 0:
        return lax.full([1 if i == d else n for i, n in enumerate(x.shape)], nothing)
    while (n := x.shape[d]) > 1:
        count = min(PARTS, 1 << (n - 1).bit_length())
        length = -(-n // count)
        if n < count * length:
            x = lax.pad(x, nothing, [(0, count * length - n if i == d else 0, 0) for i in range(x.ndim)])
        parts = [lax.slice_in_dim(x, i * length, (i + 1) * length, axis=d) for i in range(count)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [function(a, b) for a, b in zip(parts[:half], parts[half:], strict=True)]
        x = lax.optimization_barrier(parts[0])
        x = in_rows(x) if n > AT_ONCE else x
    return x


def cumulate(x: Array, kind: str, dim: int, reverse: bool) -> Array:
    """Each element combined with all before it along `dim` (behind it where `reverse`): with the one 1, 2, 4... places
    away, in a loop for each. Same dtype; sums and products of f16 and bf16 are in f32 and rounded once."""
    wide, n = widened(kind, x), x.shape[dim]
    function, nothing, step = combine(kind), neutral(kind, wide.dtype), 1
    while step < n:
        kept = lax.slice_in_dim(wide, step if reverse else 0, n if reverse else n - step, axis=dim)
        room = (0, step, 0) if reverse else (step, 0, 0)
        moved = lax.pad(kept, nothing, [room if d == dim else (0, 0, 0) for d in range(x.ndim)])
        wide, step = in_rows(function(moved, wide)), 2 * step
    return convert(settle(wide), x.dtype)


def arg_reduce(
    x: Array, kind: str, dim: int, index_dtype: np.dtype, keep: bool = False
) -> tuple[Array, Array]:
    """Extreme value along `dim` and its first index; NaN counts as more extreme than anything."""
    value = reduce(x, kind, [dim], keep=True)
    found = lax.eq(x, lax.broadcast_in_dim(value, x.shape, range(x.ndim)))
    if is_floating(x):
        none = lax.broadcast_in_dim(lax.ne(value, value), x.shape, range(x.ndim))
        found = lax.select(none, lax.ne(x, x), found)
    where = lax.broadcasted_iota(np.int32, x.shape, dim)
    where = lax.select(found, where, lax.full_like(where, max(x.shape[dim] - 1, 0)))
    index = convert(reduce(where, "min", [dim], keep=True), index_dtype)
    if keep:
        return value, index
    return lax.squeeze(value, [dim]), lax.squeeze(index, [dim])
