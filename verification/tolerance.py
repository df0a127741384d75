"""How far apart two correct computations of one value may be: constants and formulas, each with its source.

`u` is the unit roundoff of an element type, half the distance from 1 to the next number. A sum of n terms, in any
order, is off by at most gamma(n - 1, u) times the sum of magnitudes (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 4.2); for a product of matrices n is the contracted size (section 3.5).

Over a whole program such worst cases multiply up and say nothing, so there errors are taken as independent: n
roundings add up to LIKELY * sqrt(n) * u, which fails for one element with a probability of at most
2 exp(-LIKELY^2 / 2) (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019, theorem 2.4).
"""

from __future__ import annotations

import math
from typing import Literal

import ml_dtypes
import numpy as np

from ..dialects.dtypes import name_of_numpy
from ..dialects.elementwise import EXACT, FUNCTIONS, ROUNDED, function_named

Mode = Literal["worst", "likely"]
"""`worst`: bounds add up (one op or kernel on given inputs); `likely`: they add in squares (a whole program)."""

LIKELY = 8.0
"""Standard deviations allowed over a whole program: a chance of 2 exp(-32), about 3e-14, for each element."""

PIECE = 2048
"""A row that does not fit on chip is reduced in pieces of at least so many elements, each rounded to its type."""

HOST_FUNCTIONS: dict[str, float] = {
    **{f"stablehlo.{f.stablehlo}": f.ulps_in("f32") for f in FUNCTIONS.values() if f.stablehlo and f.ulps_in("f32")},
    **{"stablehlo.abs": 4.0, "stablehlo.rsqrt": 3.0, "stablehlo.log_plus_one": 3.0, "stablehlo.convert": ROUNDED},
    **dict.fromkeys(("chlo.erf", "chlo.erfc", "chlo.erf_inv", "chlo.lgamma", "chlo.digamma"), 16.0),
    **dict.fromkeys(("chlo.bessel_i1e", "chlo.zeta", "chlo.polygamma"), 16.0),
}
"""Ulps that a host op may be off by what it is compiled together with: the limits of the device's functions but for
those that it computes otherwise (`abs` of complex numbers), and for what OpenCL does not have those of its erf and pow,
the widest. Others move or select data, or are one library call wherever they stand."""

HOST_SUMS = frozenset(
    f"stablehlo.{name}"
    for name in ("reduce", "reduce_window", "dot_general", "convolution", "scatter", "select_and_scatter")
)
"""Host ops that add up."""

def roundoff(dtype: np.dtype) -> float:
    """Unit roundoff of an element type; 0 for integers and bools."""
    if dtype.kind in "biu" or "int" in dtype.name:
        return 0.0
    return float(ml_dtypes.finfo(_real(dtype)).eps) / 2


def smallest(dtype: np.dtype) -> float:
    """The smallest normal number: what is below it may be flushed to 0, but for 8-bit floats, which are only stored:
    of these the smallest number of all. 0 for integers and bools."""
    if dtype.kind in "biu" or "int" in dtype.name:
        return 0.0
    info = ml_dtypes.finfo(_real(dtype))
    return float(info.smallest_subnormal if info.bits == 8 else info.smallest_normal)


def _real(dtype: np.dtype) -> np.dtype:
    return {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}.get(dtype.name, dtype)


def function_error(name: str, dtype: np.dtype, of_complex: bool = False) -> float:
    """Largest relative error of one application of function `name` with a result of `dtype`; of_complex: on complex
    numbers, relative to the magnitude."""
    u, function = roundoff(dtype), function_named(name)
    if of_complex:
        return (function.complex_error or 0.0) * u
    ulps = function.ulps_in(name_of_numpy(dtype))
    if ulps in (EXACT, ROUNDED):
        return u * 2 * ulps
    # an ulp is at most 2u of the value; in a narrow type the f32 function is rounded once more
    wide = min(u, roundoff(np.dtype(np.float32)))
    return ulps * 2 * wide + (u if u > wide else 0.0)


def gamma(n: int, u: float, mode: Mode) -> float:
    """Error of `n` roundings in a row, relative to the magnitudes: n u / (1 - n u), or sqrt(n) u."""
    if n <= 0 or u == 0:
        return 0.0
    if mode == "likely":
        return math.sqrt(n) * u
    return n * u / (1 - n * u) if n * u < 0.5 else math.inf


def sum_error(n: int, accumulator: np.dtype, stored: np.dtype, mode: Mode, halves: bool = False) -> float:
    """Error of a sum of n terms in `accumulator`, relative to the sum of magnitudes.

    halves: the sum goes by halves within pieces of a row, so a term takes part in log2(n) additions and one more for
    each piece (Higham, section 4.2); that is the interpreter's rule, and not JAX's, so `likely` does not use it.
    Where `stored` is narrower, the partial sums of pieces may be rounded to it on the way.
    """
    additions = n - 1
    if halves and mode == "worst":
        additions = min(additions, math.ceil(math.log2(max(n, 1))) + n // PIECE + 1)
    error = gamma(additions, roundoff(accumulator), mode)
    if roundoff(stored) > roundoff(accumulator):
        error += gamma(1 + n // PIECE, roundoff(stored), mode)
    return error
