"""Scalar functions as nodes of ONNX, by the row of `dialects/elementwise.py` that defines each."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ...dialects.dtypes import is_float, itemsize, limits
from ...dialects.graph import ElementwiseOp
from ...dialects.graph.elementwise import constant_behind
from .errors import Unsayable
from .values import Value, type_of
from .writer import OnnxWriter

Rule = Callable[..., Value]

NODES: dict[str, str | tuple[str, str]] = {
    "abs": "Abs",
    "sign": "Sign",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "erf": "Erf",
    "floor": "Floor",
    "ceil": "Ceil",
    "round_even": "Round",
    "sub": "Sub",
    "add": ("Add", "Or"),
    "mul": ("Mul", "And"),
    "max": ("Max", "Or"),
    "min": ("Min", "And"),
    "and": ("BitwiseAnd", "And"),
    "or": ("BitwiseOr", "Or"),
    "xor": ("BitwiseXor", "Xor"),
    "not": ("BitwiseNot", "Not"),
}
"""Functions that are one node of the same operands, and that of truth values where it is another one."""

COMPARISONS = {"eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}


def elementwise(op: ElementwiseOp, w: OnnxWriter) -> Value:
    """The nodes of one scalar function. What is repeated in all operands stays so in the result."""
    name, xs = op.FUNCTION.name, [w.small(v) for v in op.operands]
    for x in xs:
        w.tensor_type(x.dtype)
    if name in NODES:
        return node_of(name, *xs)
    if name in COMPARISONS:
        return xs[0].with_(COMPARISONS[name], xs[1], "i1")
    if name not in RULES:
        raise Unsayable("is no function that ONNX has")
    return RULES[name](op, *xs)


def node_of(name: str, *xs: Value) -> Value:
    """A function that is one node."""
    found = NODES[name]
    return combined(found if isinstance(found, str) else found[xs[0].dtype == "i1"], *xs)


def combined(op_type: str, *xs: Value, **attributes: int | str) -> Value:
    """A node of operands that are repeated against each other, whose result has the type of the last one."""
    return xs[0].writer.node(op_type, xs, np.broadcast_shapes(*(x.shape for x in xs)), xs[-1].dtype, **attributes)


def _in_f32(formula: Callable[..., Value], name: str = "") -> Rule:
    """The rule of a function that is several nodes, which compute in f32 where it is of narrower floats; with a name,
    these are a function of the model."""

    def rule(op: ElementwiseOp, *xs: Value) -> Value:
        dtype, w = xs[0].dtype, xs[0].writer
        wide = "f64" if dtype == "f64" else "f32"
        given = [x.cast(wide) for x in xs]
        return (w.formula(f"{name}_{wide}", formula, given) if name else formula(*given)).cast(dtype)

    return rule


# -- floats --------------------------------------------------------------------------------------------------


def _expm1(x: Value) -> Value:
    """With t = tanh(x / 2), exp(x) - 1 = 2 t / (1 - t), which loses no digits near 0."""
    t = (x * 0.5).apply("Tanh")
    return (x < 1).where(t * 2 / (1 - t), x.apply("Exp") - 1)


def _log1p(x: Value) -> Value:
    """2 atanh(x / (2 + x)) near 0."""
    return (x.apply("Abs") < 0.5).where((x / (x + 2)).apply("Atanh") * 2, (x + 1).apply("Log"))


def _cbrt(x: Value) -> Value:
    return combined("Pow", x.apply("Abs"), x.writer.number(1 / 3, x.dtype)) * x.apply("Sign")


_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806,
    0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
"""W. H. Press et al., Numerical Recipes, section 6.2.2: erfc(z) = t exp(-z^2 + p(t)), t = 1 / (1 + z / 2), z >= 0, of a
relative error below 1.2e-7."""


def _erfc(x: Value) -> Value:
    """1 - erf(x) below 0.5, and a series where that would lose digits."""
    z = x.apply("Abs")
    t = (z * 0.5 + 1).apply("Reciprocal")
    total = t * _ERFC[-1]
    for c in reversed(_ERFC[1:-1]):
        total = (total + c) * t
    return (x < 0.5).where(1 - x.apply("Erf"), t * (total + _ERFC[0] - z * z).apply("Exp"))


def _round_away(x: Value) -> Value:
    size = x.apply("Abs")
    down = size.apply("Floor")
    return (size - down >= 0.5).where(down + 1, down) * x.apply("Sign")


def _atan2(y: Value, x: Value) -> Value:
    """By the angle of the smaller over the larger, below 45 degrees, and the octant."""
    a, b = y.apply("Abs"), x.apply("Abs")
    large, small = combined("Max", a, b), combined("Min", a, b)
    angle = large.equals(small).where(large.equals(0).where(0, 1, x.dtype), small / large).apply("Atan")
    angle = (b < a).where(math.pi / 2 - angle, angle)
    angle = _minus(x).where(math.pi - angle, angle)
    return _minus(y).where(angle.apply("Neg"), angle)


def _minus(x: Value) -> Value:
    """Whether a number has a minus sign, 0 too."""
    return (x < 0) | (x.equals(0) & (x.apply("Reciprocal") < 0))


# -- integers ------------------------------------------------------------------------------------------------


def _known(op: ElementwiseOp, i: int, low: float, high: float = np.inf) -> bool:
    """Whether an operand is a constant whose elements are at least `low` and below `high`."""
    found = constant_behind(op.operands[i])
    return found is not None and bool(((found >= low) & (found < high)).all())


def _dividing(node: Callable[[Value, Value], Value], by_zero: Callable[[Value], Value | float]) -> Rule:
    """A quotient or a remainder. Where there is none of integers, by 0 and of the least number by -1, it is taken by 1;
    by 0 it is what `by_zero` gives for the dividend then."""

    def rule(op: ElementwiseOp, x: Value, y: Value) -> Value:
        if is_float(x.dtype) or _known(op, 1, 1):
            return node(x, y)
        none = odd = y.equals(0)
        if x.dtype[0] != "u":
            odd = none | (x.equals(limits(x.dtype)[0]) & y.equals(-1))
        return none.where(by_zero(x), node(x, odd.where(1, y)))

    return rule


def _pow(op: ElementwiseOp, x: Value, y: Value) -> Value:
    if is_float(x.dtype) or x.dtype[0] == "u" or _known(op, 1, 0):
        return combined("Pow", x, y)
    odd = ~(y & 1).equals(0)
    inverse = x.equals(1).where(1, x.equals(-1).where(odd.where(-1, 1, x.dtype), 0))
    return (y < 0).where(inverse, combined("Pow", x, combined("Max", y, x.writer.number(0, y.dtype))))


def _unsigned(x: Value) -> Value:
    return x if x.dtype[0] == "u" else x.cast(f"u{x.dtype}")


def _shifted(op: ElementwiseOp, x: Value, y: Value, direction: str) -> Value:
    """The bits of x shifted; by as many as it has, or more, it is 0."""
    bits, by = 8 * itemsize(x.dtype), _unsigned(y)
    inside = _known(op, 1, 0, bits)
    near = by if inside else combined("Min", by, x.writer.number(bits - 1, by.dtype))
    made = combined("BitShift", _unsigned(x), near, direction=direction)
    return (made if inside else (by < bits).where(made, 0)).cast(x.dtype)


def _shr_arithmetic(op: ElementwiseOp, x: Value, y: Value) -> Value:
    """Of numbers with a minus sign the bits are inverted before and behind."""
    whole = x.cast(x.dtype.removeprefix("u"))
    moved = _shifted(op, (whole < 0).where(~whole, whole), y, "RIGHT")
    return (whole < 0).where(~moved, moved).cast(x.dtype)


def _right(x: Value, by: int) -> Value:
    return combined("BitShift", x, x.writer.number(by, x.dtype), direction="RIGHT")


def _ones(x: Value) -> Value:
    """How many bits of an unsigned number are 1: in fields of 1, 2, 4... bits, which are added in pairs."""
    bits, step = 8 * itemsize(x.dtype), 1
    while step < bits:
        mask = (2**bits - 1) // (2**step + 1)
        x, step = (x & mask) + (_right(x, step) & mask), 2 * step
    return x


def _clz(op: ElementwiseOp, x: Value) -> Value:
    """What is below the highest 1 becomes 1."""
    y, step = _unsigned(x), 1
    while step < 8 * itemsize(x.dtype):
        y, step = y | _right(y, step), 2 * step
    return _ones(~y).cast(x.dtype)


# -- types, and choices --------------------------------------------------------------------------------------


def _bitcast(op: ElementwiseOp, x: Value) -> Value:
    dtype = type_of(op.results[0])[1]
    return x if dtype == x.dtype else x.apply("BitCast", dtype, to=x.writer.tensor_type(dtype))


def _clamp(op: ElementwiseOp, low: Value, x: Value, high: Value) -> Value:
    if low.shape == high.shape == ():
        return x.writer.node("Clip", [x, low, high], x.shape)
    return combined("Min", combined("Max", x, low), high)


RULES: dict[str, Rule] = {
    "select": lambda _, mask, first, second: mask.where(first, second),
    "exp2": _in_f32(lambda x: combined("Pow", x.writer.number(2, x.dtype), x)),
    "rsqrt": _in_f32(lambda x: x.apply("Sqrt").apply("Reciprocal")),
    "expm1": _in_f32(_expm1, "Expm1"),
    "log1p": _in_f32(_log1p, "Log1p"),
    "cbrt": _in_f32(_cbrt, "Cbrt"),
    "erfc": _in_f32(_erfc, "Erfc"),
    "round_away": _in_f32(_round_away, "RoundAway"),
    "atan2": _in_f32(_atan2, "Atan2"),
    "neg": lambda op, x: 0 - x if x.dtype[0] == "u" else x.apply("Neg"),
    "is_finite": lambda op, x: ~(x.apply("IsInf", "i1") | x.apply("IsNaN", "i1")),
    "div": _dividing(lambda x, y: x / y, lambda x: limits(x.dtype)[1] if x.dtype[0] == "u" else -1),
    "rem": _dividing(lambda x, y: combined("Mod", x, y, fmod=1), lambda x: x),
    "pow": _pow,
    "shl": lambda op, x, y: _shifted(op, x, y, "LEFT"),
    "shr_logical": lambda op, x, y: _shifted(op, x, y, "RIGHT"),
    "shr_arithmetic": _shr_arithmetic,
    "popcnt": lambda op, x: _ones(_unsigned(x)).cast(x.dtype),
    "clz": _clz,
    "convert": lambda op, x: x.cast(type_of(op.results[0])[1]),
    "bitcast": _bitcast,
    "ne": lambda op, x, y: ~x.equals(y),
    "clamp": _clamp,
}
"""The others."""
