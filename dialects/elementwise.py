"""The scalar functions of the vector engine, once for all three levels.

A row of the table is all that there is to say of a function of one to three scalars, but for what it costs: the
machine's `[vector.rates]` or `[vector.expansions]` say that by its name. From the row come the ops `graph.<name>`,
`tile.<name>` and `npu.v<name>`, the function of `.tw`, the rule of the frontend, the value and its error bound.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..support.plugins import FoundPlugin, PluginEntry, PluginWarning, listed, resolve

Result = Literal["same", "i1", "any", "bits", "part", "pair"]
Domain = Literal["any", "number", "float", "whole", "integer"]
"""Any type; all but i1; floats; integers and i1; integers without i1."""

Passing = Literal["slope", "steps", "bits", "order", "own"]
"""How an error of the operands becomes one of the result: by the derivative; as a rounding to whole numbers; as
changes of bits; as the sign of a difference; by a rule of its own in verification/bounds."""

EXACT, ROUNDED = 0.0, 0.5
"""Ulps of a function that is exact in every type, and of one whose result is the exact one, rounded."""

UNSTATED = "nothing says that a narrow type is good enough for it"
"""Why an op is computed in f32 that does not say itself what a narrow type would do to it."""

_HERE = "tilewright.dialects.scalars"


class MissingFact(ValueError):
    """A row lacks a fact, or has two that do not fit; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """A scalar function. Raises MissingFact for a row that lacks a fact.

    name: the op's suffix; arity: operands; formula: what it computes of its operands (`x`; `lhs`, `rhs`; `first`,
    `second`, `third`), in words.
    value: the function of JAX arrays that computes it, or its `module:function`, which is imported when first used;
    empty for the two whose value follows from the result's type.
    ulps: the largest error in units in the last place, for all types or by type (then of f32 at least): `EXACT`,
    `ROUNDED`, or another limit that `value` and the unit keep in f32. What is narrower is computed in f32 and rounded.
    stablehlo: the op that means it, without the dialect, or `custom_call @target`; None where a rule of the frontend
    knows better.
    result: element type of the result (`same` as the last operand, `i1`, `any`: given on the op, `bits`: given on the
    op, of the operand's width, `part`: that of the operand's parts, or `pair`: complex numbers of the operands).
    flops: what one element counts for in reports.
    """

    name: str
    arity: int
    formula: str = ""
    value: str | Callable[..., Any] = ""
    ulps: float | Mapping[str, float] | None = None
    stablehlo: str | None = ""
    result: Result = "same"
    flops: int = 1
    domain: Domain = "any"
    """Element types of the operands that the function is defined on."""
    passing: Passing = "slope"
    merges: bool = True
    """Whether XLA may merge it with an operation on its result, or code that is compiled twice may take another NaN:
    then its value is settled. False only where neither is so."""
    predicate: bool = False
    """True where operand 0 is an i1 mask (select)."""
    bits: bool = False
    """Whether operand 0 is a pattern of bits, so that computing in a wider type must put zeros in front of it."""
    leading: int = 0
    """What each of those zeros adds to the result."""
    sign: bool = False
    """Whether operand 0's top bit is a sign whatever its type, so that computing in a wider type must repeat it."""
    picks: bool = False
    """Whether the result is one of the operands, so that it may be chosen in any type that has all their values."""
    real: bool = False
    """Whether the result for complex operands is real."""
    complex_flops: int = 0
    """Operations on real numbers that one complex element counts for; 0 where graph-complex has no formula for complex
    operands or results, so that the host computes them."""
    complex_error: float | None = None
    """Largest relative error on complex numbers, in unit roundoffs of the parts; needed where `complex_flops` is."""
    keeps: str = UNSTATED
    """Why it is computed in f32 where precision is mixed, as a clause; empty where it is as good in a narrow type, so
    that it follows its operands."""
    divisor: int | None = None
    """The operand that it divides by: by a constant that is not small, it is as good in a narrow type."""

    def __post_init__(self) -> None:
        def missing(fact: str, why: str) -> MissingFact:
            return MissingFact(f"function '{self.name}' has no {fact}: {why}")

        if not self.name.isidentifier() or self.arity not in (1, 2, 3):
            raise MissingFact(f"function '{self.name}' needs an identifier as its name and an arity of 1, 2 or 3")
        if not self.formula:
            raise missing("formula", "say in words what it computes of its operands")
        if not self.value and self.result not in ("any", "bits"):
            raise missing("value", "give a function of JAX arrays, or its 'module:function'")
        if self.ulps is None:
            raise missing("ulps", "say its largest error in units in the last place, EXACT or ROUNDED")
        if isinstance(self.ulps, Mapping) and "f32" not in self.ulps:
            raise missing("ulps for f32", "every other type takes those that it has no own for")
        if self.stablehlo == "":
            raise missing("stablehlo", "name the op that means it, 'custom_call @target', or None")
        if self.complex_flops and self.complex_error is None:
            raise missing("complex_error", "say its largest error on complex numbers, in roundoffs")

    def defined_on(self, dtype: str) -> bool:
        """Whether its operands may have this element type (but for the mask of a select)."""
        floating = dtype[0] in "fb"
        kinds = {"any", "float" if floating else "whole"}
        if dtype != "i1":
            kinds |= {"number"} if floating else {"number", "integer"}
        return self.domain in kinds

    def ulps_in(self, dtype: str) -> float:
        """The largest error for a result of an element type, in its units in the last place."""
        assert self.ulps is not None
        return self.ulps.get(dtype, self.ulps["f32"]) if isinstance(self.ulps, Mapping) else self.ulps

def _row(
    name: str, arity: int, formula: str, value: str, ulps: float, stablehlo: str | None = "", **facts: Any
) -> Function:
    """A row whose value is of `jax.lax` unless it names a module, and whose StableHLO op has its name unless given."""
    place = f"jax.lax:{value}" if value and ":" not in value else value.replace("own:", f"{_HERE}:")
    return Function(
        name=name,
        arity=arity,
        formula=formula,
        value=place,
        ulps=ulps,
        stablehlo=name if stablehlo == "" else stablehlo,
        **{"keeps": "", **facts},
    )


def _unary(name: str, formula: str, value: str, ulps: float, stablehlo: str | None = "", **facts: Any) -> Function:
    """Of one float, unless `facts` say otherwise."""
    return _row(name, 1, formula, value, ulps, stablehlo, **{"domain": "float", **facts})


def _binary(name: str, formula: str, value: str, ulps: float, stablehlo: str | None = "", **facts: Any) -> Function:
    """Of two numbers, unless `facts` say otherwise."""
    return _row(name, 2, formula, value, ulps, stablehlo, **{"domain": "number", **facts})


_STEPS: dict[str, Any] = {"passing": "steps", "merges": False}
_BITS: dict[str, Any] = {"passing": "bits", "merges": False}
_WHOLE: dict[str, Any] = {**_BITS, "domain": "whole"}
_INTEGER: dict[str, Any] = {**_BITS, "domain": "integer"}


_GROWS: dict[str, Any] = {"keeps": "its results grow beyond narrow types, and with them the errors of its operand"}
_LAST_BITS: dict[str, Any] = {"keeps": "its results may hang on the last bits of its operands"}
_DIVIDES: dict[str, Any] = {"keeps": "it may divide by a small number"}
_ANGLE: dict[str, Any] = {"keeps": "an angle of several turns has no digits left in a narrow type"}


def _compare(name: str, sign: str, **facts: Any) -> Function:
    kept: dict[str, Any] = {"result": "i1", "domain": "any", "passing": "order", "merges": False, **facts}
    return _binary(name, f"lhs {sign} rhs", name, EXACT, None, **kept)


_ROWS = [
    # Limits in ulps are those of the OpenCL C specification, section 7.4 (relative error as ULPs, full profile);
    # `logistic` is exp, an add and a division; what `erfc` takes exp of is a square of up to 84, half an ulp off.
    # Limits on complex numbers: add and mul by Higham's lemma 3.5 (Accuracy and Stability of Numerical Algorithms,
    # section 3.6), sqrt(2) gamma(2) for a product; the others are sums of the limits of what their formulas apply: a
    # division 5, a root 6, a cube root 4, sin, cos, exp, expm1 and log 8 each, atan2 12, a power 32.
    _unary(
        "abs", "|x|", "own:absolute", EXACT,
        domain="number", passing="own", merges=False, real=True, complex_flops=8, complex_error=8.0,
    ),
    _unary(
        "neg", "-x", "neg", EXACT, "negate",
        domain="number", passing="own", merges=False, complex_flops=2, complex_error=0.0,
    ),
    _unary(
        "sign", "sign(x)", "own:sign", EXACT,
        domain="number", passing="own", merges=False, complex_flops=10, complex_error=20.0,
    ),
    _unary("exp", "exp(x)", "exp", 3.0, "exponential", **_GROWS),
    _unary("exp2", "2 ** x", "exp2", 3.0, **_GROWS),
    _unary(
        "expm1", "exp(x) - 1, exact near 0", "expm1", 3.0, "exponential_minus_one",
        complex_flops=9, complex_error=24.0, **_GROWS,
    ),
    _unary("log", "log(x)", "log", 3.0, **_LAST_BITS),
    _unary("log1p", "log(1 + x), exact near 0", "own:log_plus_one", 2.0, "log_plus_one", **_LAST_BITS),
    _unary("sqrt", "sqrt(x)", "sqrt", 3.0),
    _unary("rsqrt", "1 / sqrt(x)", "own:reciprocal_root", 2.0, complex_flops=16, complex_error=40.0, **_DIVIDES),
    _unary("cbrt", "cbrt(x)", "own:cube_root", 2.0, complex_flops=14, complex_error=40.0),
    _unary("tanh", "tanh(x)", "tanh", 5.0, complex_flops=24, complex_error=40.0),
    _unary("logistic", "1 / (1 + exp(-x))", "logistic", 7.0, complex_flops=32, complex_error=40.0),
    _unary("sin", "sin(x)", "sin", 4.0, "sine", complex_flops=12, complex_error=30.0, **_ANGLE),
    _unary("cos", "cos(x)", "cos", 4.0, "cosine", complex_flops=12, complex_error=30.0, **_ANGLE),
    _unary("tan", "tan(x)", "own:tangent", 5.0, complex_flops=24, complex_error=40.0, **_ANGLE),
    _unary("erf", "erf(x)", "own:error_function", 16.0),
    _unary("erfc", "1 - erf(x), exact where that is small", "own:complement_of_error_function", 50.0),
    _unary("floor", "floor(x)", "own:floor", EXACT, **_STEPS),
    _unary("ceil", "ceil(x)", "own:ceil", EXACT, **_STEPS),
    _unary(
        "round_even", "the nearest integer, halves to even", "own:round_even", EXACT, "round_nearest_even", **_STEPS
    ),
    _unary(
        "round_away", "the nearest integer, halves away from 0", "own:round_away", EXACT, "round_nearest_afz",
        **_STEPS,
    ),
    _unary("not", "all bits of x inverted", "bitwise_not", EXACT, **_WHOLE),
    _unary("popcnt", "how many bits of x are 1", "population_count", EXACT, bits=True, **_INTEGER),
    _unary(
        "clz", "how many bits of x above its highest 1", "own:leading_zeros", EXACT, "count_leading_zeros",
        bits=True, leading=1, **_INTEGER,
    ),
    _binary(
        "shr_logical", "lhs >> rhs, filled with 0", "shift_right_logical", EXACT, "shift_right_logical",
        bits=True, **_INTEGER,
    ),
    _binary(
        "shr_arithmetic", "lhs >> rhs, filled with the sign", "shift_right_arithmetic", EXACT,
        "shift_right_arithmetic", sign=True, **_INTEGER,
    ),
    _unary("is_finite", "whether x is neither infinite nor NaN", "is_finite", EXACT, result="i1", **_BITS),
    _unary(
        "convert", "x in the result's element type: rounded to even, cut off towards 0 for integers, x != 0 for i1",
        "", ROUNDED, None,
        result="any", flops=0, domain="any", passing="own", complex_flops=2, complex_error=0.0,
    ),
    _unary(
        "bitcast", "the bits of x as a number of the result's element type, as wide", "", EXACT, None,
        result="bits", flops=0, **{**_BITS, "domain": "any"},
    ),
    _binary("add", "lhs + rhs", "own:add", ROUNDED, passing="own", merges=False, complex_flops=2, complex_error=1.0),
    _binary(
        "sub", "lhs - rhs", "sub", ROUNDED, "subtract",
        passing="own", merges=False, complex_flops=2, complex_error=1.0,
    ),
    _binary(
        "mul", "lhs * rhs", "own:multiply", ROUNDED, "multiply",
        passing="own", complex_flops=6, complex_error=2 * 2**0.5,
    ),
    _binary(
        "div", "lhs / rhs, cut off towards 0 for integers", "own:divide", 2.5, "divide",
        passing="own", complex_flops=24, complex_error=20.0, divisor=1, **_DIVIDES,
    ),
    _binary("max", "the larger one, NaN if either is", "max", EXACT, "maximum", passing="own", picks=True),
    _binary("min", "the smaller one, NaN if either is", "min", EXACT, "minimum", passing="own", picks=True),
    _binary("pow", "lhs ** rhs", "own:power", 16.0, "power", complex_flops=20, complex_error=60.0, **_GROWS),
    _binary("rem", "lhs - rhs * trunc(lhs / rhs)", "own:remainder", EXACT, "remainder", passing="own", **_LAST_BITS),
    _binary("atan2", "the angle of the point (rhs, lhs), in (-pi, pi]", "atan2", 6.0, domain="float", **_DIVIDES),
    _binary("and", "lhs & rhs, bit by bit", "bitwise_and", EXACT, **_WHOLE),
    _binary("or", "lhs | rhs, bit by bit", "bitwise_or", EXACT, **_WHOLE),
    _binary("xor", "lhs ^ rhs, bit by bit", "bitwise_xor", EXACT, **_WHOLE),
    _binary("shl", "lhs << rhs", "shift_left", EXACT, "shift_left", **_INTEGER),
    _compare("eq", "==", complex_flops=3, complex_error=0.0),
    _compare("ne", "!=", complex_flops=3, complex_error=0.0),
    _compare("lt", "<"),
    _compare("le", "<="),
    _compare("gt", ">"),
    _compare("ge", ">="),
    _row(
        "select", 3, "second where first, else third", "select", EXACT, None,
        predicate=True, passing="own", merges=False, complex_flops=2, complex_error=0.0,
    ),
    _row("clamp", 3, "second, not below first and not above third", "clamp", EXACT, None,
         domain="number", passing="own", picks=True),
]  # fmt: skip

PARTS: dict[str, Function] = {
    f.name: f
    for f in [
        _row("real", 1, "its real part", "real", EXACT, None, result="part", flops=0, passing="own", merges=False),
        _row("imag", 1, "its imaginary part", "imag", EXACT, None, result="part", flops=0, passing="own", merges=False),
        _row("complex", 2, "lhs + i rhs", "complex", EXACT, result="pair", flops=0, passing="own", merges=False),
    ]
}
"""Functions between complex numbers and their parts. They are of the graph level only: graph-complex removes them."""


_OWNERS: dict[str, FoundPlugin] = {}
"""The plugins that functions come from."""


def _table() -> dict[str, Function]:
    """Our rows and those of plugins; a row that is none, or whose name is taken, is left out with a warning."""
    found = {f.name: f for f in _ROWS}
    for plugin, given in listed("functions"):
        rows = [given] if isinstance(given, Function) or not isinstance(given, Iterable) else given
        for row in rows:
            if isinstance(row, Function) and row.name not in found | PARTS:
                found[row.name] = row
                _OWNERS[row.name] = plugin
                continue
            said = f"function '{row.name}' is there already" if isinstance(row, Function) else f"{row!r} is no Function"
            warnings.warn(f"{plugin}: {said}, so it is left out", PluginWarning, stacklevel=2)
    return found


FUNCTIONS: dict[str, Function] = _table()
"""The functions by name: those of the tree and those of plugins."""


def function_named(name: str) -> Function:
    """The row of a function, or of one of the parts of complex numbers. Raises KeyError."""
    found = FUNCTIONS.get(name)
    return PARTS[name] if found is None else found


def value_of(name: str) -> Callable[..., Any]:
    """What a function computes, as a function of JAX arrays. Raises KeyError where there is none of this name, or its
    value follows from the result's type; PluginError where a plugin's cannot be loaded."""
    function = function_named(name)
    if not function.value:
        raise KeyError(name)
    if not isinstance(function.value, str):
        return function.value
    if name in _OWNERS:
        return PluginEntry(name, function.value, _OWNERS[name]).load()
    return resolve(function.value)


def formula(name: str) -> str:
    """What a function computes, for its docstring."""
    return function_named(name).formula


REDUCTIONS = ("sum", "prod", "max", "min", "and", "or")
"""Kinds of reduction; `and`, `or` are bitwise (logical on i1)."""

REDUCTION_FUNCTION = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}
"""The elementwise function that combines two partial results of a reduction."""


SCATTERS = ("set", "sum", "prod", "max", "min")
"""What a scatter does with what is there: replace it, or combine as a reduction."""

COMBINED = {"sum": "it adds up many numbers", "prod": "it multiplies many numbers"}
"""Kinds of reduction and scatter whose results carry the errors of all they combine, with why these stay f32."""

LINEAR = ("sum", "set")
"""Kinds of reduction and scatter that treat the parts of complex numbers each by itself."""


def identity(kind: str, dtype: str) -> float | int | bool:
    """The neutral element of a reduction kind in `dtype`."""
    import ml_dtypes
    import numpy as np

    from .dtypes import numpy_dtype

    if kind == "sum":
        return 0
    if kind == "prod":
        return 1
    if dtype == "i1":
        return kind in ("min", "and")
    if dtype[0] in "fb":
        with np.errstate(invalid="ignore"):
            least = float(np.asarray(-np.inf).astype(numpy_dtype(dtype)))
        least = float(ml_dtypes.finfo(numpy_dtype(dtype)).min) if least != least else least  # without infinity
        return -least if kind == "min" else least
    info = (
        ml_dtypes.iinfo(numpy_dtype(dtype)) if dtype.endswith(("i4", "i2")) else np.iinfo(numpy_dtype(dtype))
    )
    return {
        "max": int(info.min),
        "min": int(info.max),
        "and": -1 if info.min < 0 else int(info.max),
        "or": 0,
    }[kind]
