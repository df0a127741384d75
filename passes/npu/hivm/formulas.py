"""Functions that HIVM does not have, as those that it has: in f32, with the errors that dialects/elementwise.py allows.

Each formula takes the instructions' builder and the operands, and gives the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from xdsl.ir import SSAValue

from ....dialects.npu import buffer
from .lanes import Lanes

Formula = Callable[..., SSAValue]

TANH_AT = 7.90531110763549805
TANH_P = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
"""tanh(x) = x P(x^2) / Q(x^2) where |x| is at most TANH_AT, beyond which it is 1 in f32: as in Eigen and XLA."""

ERF_AT = 4.0
ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
"""erf(x) = x P(x^2) / Q(x^2) where |x| is at most ERF_AT, as in Eigen and XLA."""

ERFC_P = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
ERFC_R = (
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503,
    2.921019019210786,
    -1.015265279202700,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)
"""erfc(x) = exp(-x^2) / x times P(1 / x^2) from 1 to 2, R(1 / x^2) beyond: Cephes, ndtrf."""

PI = (3.140625, 0.0009670257568359375, 6.2771141529083251953e-7, 1.2154201256553420e-10)
"""Parts of pi with few bits each: products with whole numbers of up to 13 bits are exact."""

SINE = (-2.3889859e-08, 2.7525562e-06, -1.9840874e-04, 8.3333310e-03, -1.6666667e-01)
"""sin(r) = r + r^3 S(r^2) where |r| is at most pi / 2."""


def negative(b: Lanes, x: SSAValue) -> SSAValue:
    return b("mul", b.number(-1, buffer(x).dtype()), x)


def whole_abs(b: Lanes, x: SSAValue) -> SSAValue:
    return b("max", x, negative(b, x))


def clamp(b: Lanes, low: SSAValue, x: SSAValue, high: SSAValue) -> SSAValue:
    return b("min", high, b("max", low, x))


def sign(b: Lanes, x: SSAValue) -> SSAValue:
    if buffer(x).dtype()[0] != "f":
        one, less = b.number(1, buffer(x).dtype()), b.number(-1, buffer(x).dtype())
        return b("max", less, b("min", one, x))
    positive = b("gt", x, b.number(0.0))
    rest = b("select", b("lt", x, b.number(0.0)), b.number(-1.0), x)
    return b("select", positive, b.number(1.0), rest)


def reciprocal_root(b: Lanes, x: SSAValue) -> SSAValue:
    root = b("sqrt", x)
    return b("div", b.number(1.0, buffer(x).dtype()), root)


def power_of_two(b: Lanes, x: SSAValue) -> SSAValue:
    """2^x = 2^n exp(f ln 2) with n whole, so that the error of the product does not grow with x."""
    return b("exp", b("mul", b.number(math.log(2.0)), x))


def logistic(b: Lanes, x: SSAValue) -> SSAValue:
    return b("div", b.number(1.0), b("add", b.number(1.0), b("exp", negative(b, x))))


def _is_small(b: Lanes, x: SSAValue) -> SSAValue:
    return b("lt", b("abs", x), b.number(1.0))


def exp_minus_one(b: Lanes, x: SSAValue) -> SSAValue:
    """(e - 1) x / log(e) near 0, where e = exp(x) is rounded: the error of e and of its logarithm are one (Kahan)."""
    e = b("exp", x)
    less = b("add", b.number(-1.0), e)
    near = b("div", b("mul", less, x), b("log", e))
    near = b("select", b("eq", e, b.number(1.0)), x, near)
    return b("select", _is_small(b, x), near, less)


def log_plus_one(b: Lanes, x: SSAValue) -> SSAValue:
    """log(u) x / (u - 1) near 0, where u = 1 + x is rounded (Kahan)."""
    u = b("add", b.number(1.0), x)
    log = b("log", u)
    near = b("div", b("mul", log, x), b("add", b.number(-1.0), u))
    near = b("select", b("eq", u, b.number(1.0)), x, near)
    return b("select", _is_small(b, x), near, log)


def _rational(b: Lanes, x: SSAValue, at: float, p: tuple[float, ...], q: tuple[float, ...]) -> SSAValue:
    held = b("max", b.number(-at), b("min", b.number(at), x))
    square = b("mul", held, held)
    return b("div", b("mul", held, b.polynomial(square, p)), b.polynomial(square, q))


def tanh(b: Lanes, x: SSAValue) -> SSAValue:
    return _rational(b, x, TANH_AT, TANH_P, TANH_Q)


def error_function(b: Lanes, x: SSAValue) -> SSAValue:
    return _rational(b, x, ERF_AT, ERF_P, ERF_Q)


def error_complement(b: Lanes, x: SSAValue) -> SSAValue:
    far = b("abs", x)
    held = b("max", b.number(1.0), far)
    inverse = b("div", b.number(1.0), held)
    square = b("mul", inverse, inverse)
    scale = b("exp", negative(b, b("mul", far, far)))
    p, r = b.polynomial(square, ERFC_P), b.polynomial(square, ERFC_R)
    tail = b("select", b("lt", far, b.number(2.0)), p, r)
    tail = b("mul", b("mul", scale, inverse), tail)
    tail = b("select", b("lt", x, b.number(0.0)), b("sub", b.number(2.0), tail), tail)
    near = b("sub", b.number(1.0), error_function(b, x))
    return b("select", _is_small(b, x), near, tail)


def _sine(b: Lanes, x: SSAValue, half: float) -> SSAValue:
    """The sine of x + half pi: (-1)^n sin(r) where x = (n - half) pi + r."""
    turns = b("round_even", b("add", b.number(half), b("mul", b.number(1 / math.pi), x)))
    places = b("add", b.number(-half), turns) if half else turns
    rest = x
    for part in PI:
        rest = b("sub", rest, b("mul", b.number(part), places))
    square = b("mul", rest, rest)
    cube = b("mul", square, rest)
    value = b("add", rest, b("mul", cube, b.polynomial(square, SINE)))
    halves = b("floor", b("mul", b.number(0.5), turns))
    odd = b("sub", turns, b("mul", b.number(2.0), halves))
    return b("mul", value, b("add", b.number(1.0), b("mul", b.number(-2.0), odd)))


def sine(b: Lanes, x: SSAValue) -> SSAValue:
    return _sine(b, x, 0.0)


def cosine(b: Lanes, x: SSAValue) -> SSAValue:
    return _sine(b, x, 0.5)


def tangent(b: Lanes, x: SSAValue) -> SSAValue:
    return b("div", sine(b, x), cosine(b, x))


def power(b: Lanes, x: SSAValue, y: SSAValue) -> SSAValue:
    """exp(y log|x|), with the sign of odd powers, NaN for others of negative numbers, and 1 for a power of 0."""
    x, y = b.full(x), b.full(y)
    found = b("exp", b("mul", y, b("log", b("abs", x))))
    found = b("select", b("eq", y, b.number(0.0)), b.number(1.0), found)
    halves = b("floor", b("mul", b.number(0.5), y))
    is_odd = b("eq", b("sub", y, b("mul", b.number(2.0), halves)), b.number(1.0))
    is_whole = b("eq", b("floor", y), y)
    signed = b("select", is_odd, negative(b, found), found)
    below = b("select", is_whole, signed, b.number(math.nan))
    return b("select", b("lt", x, b.number(0.0)), below, found)


def is_finite(b: Lanes, x: SSAValue) -> SSAValue:
    return b("lt", b("abs", x), b.number(math.inf))


FORMULAS: dict[str, Formula] = {
    "sign": sign,
    "rsqrt": reciprocal_root,
    "exp2": power_of_two,
    "logistic": logistic,
    "expm1": exp_minus_one,
    "log1p": log_plus_one,
    "tanh": tanh,
    "erf": error_function,
    "erfc": error_complement,
    "sin": sine,
    "cos": cosine,
    "tan": tangent,
    "pow": power,
    "is_finite": is_finite,
    "floor": lambda b, x: b("floor", x),
    "ceil": lambda b, x: b("ceil", x),
    "round_even": lambda b, x: b("round_even", x),
    "round_away": lambda b, x: b("round_away", x),
}
"""Functions of floats that are computed in f32."""

ANY_TYPE: dict[str, Formula] = {"neg": negative, "clamp": clamp}
"""Functions that are computed in the type of their operands."""

WHOLE: dict[str, Formula] = {"abs": whole_abs, "sign": sign}
"""Functions of integers."""


def ordered(b: Lanes, name: str, x: SSAValue, y: SSAValue) -> SSAValue:
    """A comparison of integers, by which of two is the larger one."""
    x, y = b.full(x), b.full(y)
    chosen = b("min" if name in ("le", "gt") else "max", x, y)
    found = b("eq", chosen, x)
    return found if name in ("le", "ge") else b("not", found)


def of_bits(b: Lanes, condition: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
    """A choice between truths."""
    condition, x, y = b.full(condition), b.full(x), b.full(y)
    return b("or", b("and", condition, x), b("and", b("not", condition), y))
