"""Exact functions of numbers, by NumPy: the bits that the same functions of `backends/functions` have under XLA.

f16 and bf16 are computed in f32 and rounded once. XLA takes denormal numbers of f32, f64 and bf16 for zeros; here
results are flushed, and operands are expected to be without (`has_denormals`): with them, and for all functions that
are not here, `functions.apply` runs the JAX function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from ...dialects.elementwise import REDUCTION_FUNCTION, function_named
from . import functions

F16, F32, F64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
BF16, BOOL = np.dtype(ml_dtypes.bfloat16), np.dtype(np.bool_)
FLUSHED = (F32, F64, BF16)
"""Float types whose denormals XLA takes for zeros."""

LEAST_NORMAL = {d: float(ml_dtypes.finfo(d).smallest_normal) for d in FLUSHED}
WORK = {F16: F32, BF16: F32, F32: F32, F64: F64}
"""The type in which a float type is computed."""

INTEGERS = tuple(map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")))


def has_denormals(x: np.ndarray) -> bool:
    """Whether an array has numbers that XLA takes for zeros."""
    if x.dtype not in FLUSHED:
        return False
    size = np.abs(x if x.dtype != BF16 else x.astype(F32))
    small = size < LEAST_NORMAL[x.dtype]
    return bool(small.any() and size[small].any())


def finished(x: np.ndarray, merges: bool = True) -> np.ndarray:
    """A result, in place: denormals are zeros, and where it `merges` there is one NaN."""
    size, least = np.abs(x), LEAST_NORMAL[x.dtype]
    if (size >= least).all():
        return x
    if x.ndim == 0:
        x = x.reshape(1)
        return finished(x, merges).reshape(())
    small = size < least
    if size[small].any():
        x[small] = np.copysign(x.dtype.type(0), x[small])
    if merges:
        none = x != x
        if none.any():
            x[none] = np.nan
    return x


# -- floats ------------------------------------------------------------------------------------------------


def _greater(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _extreme(np.maximum(x, y), x, y, False)


def _smaller(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _extreme(np.minimum(x, y), x, y, True)


def _extreme(out: np.ndarray, x: np.ndarray, y: np.ndarray, negative: bool) -> np.ndarray:
    """Zeros get their sign: -0 is less than 0."""
    zero = out == 0
    if not zero.any():
        return out
    for operand in (x, y):
        if operand.size == 1 and operand == 0 and bool(np.signbit(operand).all()) is negative:
            return np.where(zero, operand, out)
    found = np.zeros(out.shape, bool)
    for operand in (x, y):
        found |= (operand == 0) & (np.signbit(operand) if negative else ~np.signbit(operand))
    first, second = (-0.0, 0.0) if negative else (0.0, -0.0)
    return np.where(zero, np.where(found, out.dtype.type(first), out.dtype.type(second)), out)


def _sign(x: np.ndarray) -> np.ndarray:
    return np.where((x == 0) | (x != x), x, np.copysign(x.dtype.type(1), x))


def _reciprocal_root(x: np.ndarray) -> np.ndarray:
    return x.dtype.type(-1) / -np.sqrt(x)


def _round_away(x: np.ndarray) -> np.ndarray:
    cut = np.trunc(x)
    return np.where(np.abs(x - cut) >= 0.5, cut + np.copysign(x.dtype.type(1), x), cut)


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return _smaller(_greater(x, low), high)


FLOATS: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "ceil": np.ceil,
    "clamp": _clamp,
    "div": np.divide,
    "floor": np.floor,
    "max": _greater,
    "min": _smaller,
    "mul": np.multiply,
    "neg": np.negative,
    "rem": np.fmod,
    "round_away": _round_away,
    "round_even": np.rint,
    "rsqrt": _reciprocal_root,
    "sign": _sign,
    "sqrt": np.sqrt,
    "sub": np.subtract,
}
"""What functions of floats compute in the type in which they work."""

MOVING = ("abs", "ceil", "clamp", "floor", "max", "min", "neg", "round_away", "round_even", "sign")
"""Functions of which no result is denormal where no operand is."""

COMPARISONS: dict[str, Callable[..., np.ndarray]] = {
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "is_finite": np.isfinite,
    "le": np.less_equal,
    "lt": np.less,
    "ne": np.not_equal,
}


# -- whole numbers -----------------------------------------------------------------------------------------


def _divisor(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where y is 0, and y with 1 where there is no quotient."""
    zero = y == 0
    none = zero | ((x == np.iinfo(x.dtype).min) & (y == -1)) if x.dtype.kind == "i" else zero
    return zero, np.where(none, y.dtype.type(1), y)


def _whole_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    zero, divisor = _divisor(x, y)
    of_zero = x.dtype.type(-1 if x.dtype.kind == "i" else np.iinfo(x.dtype).max)
    return np.where(zero, of_zero, (x - np.fmod(x, divisor)) // divisor)


def _whole_remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    zero, divisor = _divisor(x, y)
    return np.where(zero, x, np.fmod(x, divisor))


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.dtype.itemsize}")


def _shifted(shift: Callable[..., np.ndarray], filled: bool) -> Callable[..., np.ndarray]:
    """A shift in which places beyond the width leave nothing, or where it is `filled`, the top bit everywhere."""

    def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        width, places = 8 * x.dtype.itemsize, _unsigned(y)
        beyond = places >= width
        own = x.view(f"{'i' if filled else 'u'}{x.dtype.itemsize}")
        by = np.where(beyond, places.dtype.type(width - 1), places).view(own.dtype)
        moved = shift(own, by).view(x.dtype)
        return moved if filled else np.where(beyond, x.dtype.type(0), moved)

    return run


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    filled = _unsigned(x)
    places = 1
    while places < 8 * x.dtype.itemsize:
        filled = filled | (filled >> filled.dtype.type(places))
        places *= 2
    return (8 * x.dtype.itemsize - np.bitwise_count(filled)).astype(x.dtype)


def _whole_sign(x: np.ndarray) -> np.ndarray:
    return np.sign(x).astype(x.dtype)


WHOLE: dict[str, Callable[..., np.ndarray]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.bitwise_and,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "clz": _leading_zeros,
    "div": _whole_divide,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "neg": np.negative,
    "not": np.invert,
    "or": np.bitwise_or,
    "popcnt": lambda x: np.bitwise_count(_unsigned(x)).astype(x.dtype),
    "rem": _whole_remainder,
    "shl": _shifted(np.left_shift, False),
    "shr_arithmetic": _shifted(np.right_shift, True),
    "shr_logical": _shifted(np.right_shift, False),
    "sign": _whole_sign,
    "sub": np.subtract,
    "xor": np.bitwise_xor,
}

LOGICAL: dict[str, Callable[..., np.ndarray]] = {
    "add": np.logical_or,
    "and": np.logical_and,
    "max": np.logical_or,
    "min": np.logical_and,
    "mul": np.logical_and,
    "not": np.logical_not,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


# -- conversions -------------------------------------------------------------------------------------------


def convert(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """x in another type: floats are rounded to even, towards 0 for integers, within whose range they stay; for i1,
    non-zero is true."""
    if x.dtype == dtype:
        return x
    wide = x.astype(F32) if x.dtype in (F16, BF16) else x
    if dtype == BOOL and (wide.dtype in WORK or wide.dtype in INTEGERS):
        return wide != 0
    if wide.dtype in (F32, F64):
        if dtype in INTEGERS:
            return _cut(wide, dtype)
        if dtype in (F16, F32, F64) or (dtype == BF16 and wide.dtype == F32):
            made = wide if wide.dtype == dtype else wide.astype(dtype)
            return _flushed(made) if dtype in (F32, BF16) and wide.dtype.itemsize > 2 else made
    if (x.dtype in INTEGERS or x.dtype == BOOL) and (dtype in INTEGERS or dtype in (F32, F64)):
        return x.astype(dtype)
    if ((x.dtype in INTEGERS and x.dtype.itemsize <= 2) or x.dtype == BOOL) and dtype in (F16, BF16):
        return x.astype(F32).astype(dtype)
    return functions.apply("convert", [x], x.shape, dtype)


def _flushed(x: np.ndarray) -> np.ndarray:
    if x.dtype == BF16:
        return finished(x.astype(F32), False).astype(BF16) if has_denormals(x) else x
    return finished(x, False)


def _cut(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats as integers, cut off towards 0, within the range; NaN is 0."""
    info = np.iinfo(dtype)
    low, high = float(info.min), float(info.max)
    with np.errstate(all="ignore"):
        made = np.where(x == x, x, x.dtype.type(0))
        above, below = made >= high, made <= low
        if above.any() or below.any():
            made = np.where(above | below, x.dtype.type(0), made).astype(dtype)
            made[above], made[below] = info.max, info.min
            return made
        return made.astype(dtype)


# -- all ---------------------------------------------------------------------------------------------------


def apply(
    name: str, operands: Sequence[np.ndarray], shape: Sequence[int], dtype: np.dtype, denormals: bool = False
) -> np.ndarray:
    """Function `name` of operands that broadcast to `shape`, rounded to `dtype`; the result may have a shape that
    broadcasts to that. denormals: whether operands may have some."""
    if name == "convert":
        return convert(operands[0], dtype) if not denormals else functions.apply(name, operands, shape, dtype)
    if name == "bitcast":
        return np.asarray(operands[0], order="C").view(dtype)
    if name == "select":
        return np.where(operands[0], operands[1], operands[2])
    own = operands[0].dtype
    work = WORK.get(own)
    if work is not None and not denormals:
        rule = FLOATS.get(name)
        if rule is not None and own == dtype:
            made = rule(*(operands if work == own else [x.astype(work) for x in operands]))
            if name not in MOVING or function_named(name).merges:
                made = finished(made, function_named(name).merges)
            return made if work == own else _narrowed(made, dtype)
        rule = COMPARISONS.get(name)
        if rule is not None and dtype == BOOL:
            return rule(*(operands if work == own else [x.astype(work) for x in operands]))
    elif own in INTEGERS:
        rule = WHOLE.get(name)
        if rule is not None and own == dtype:
            return rule(*operands)
        rule = COMPARISONS.get(name)
        if rule is not None and dtype == BOOL:
            return rule(*operands)
    elif own == BOOL and dtype == BOOL:
        rule = LOGICAL.get(name) or COMPARISONS.get(name)
        if rule is not None:
            return rule(*operands)
    return functions.apply(name, operands, shape, dtype)


def _narrowed(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """f32 rounded to f16 or bf16."""
    made = x.astype(dtype)
    return _flushed(made) if dtype == BF16 else made


def combine(kind: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Two partial results of a reduction, in their own type."""
    return apply(REDUCTION_FUNCTION[kind], [x, y], x.shape, x.dtype)
