"""The scalar functions of the vector engine, once for all three levels.

A row of the table is a function of one to three scalars. From it come the ops `graph.<name>`, `tile.<name>` and
`npu.v<name>`; the interpreter's value rule has the same name; the machine's `[vector.ops]` table gives its rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Result = Literal["same", "i1", "any", "bits", "part", "pair"]
Domain = Literal["any", "number", "float", "whole", "integer"]
"""Any type; all but i1; floats; integers and i1; integers without i1."""


@dataclass(frozen=True)
class Function:
    """name: the op's suffix; arity: operands; result: element type of the result (`same` as the last operand,
    `i1`, `any`: given on the op, `bits`: given on the op, of the operand's width, `part`: that of the operand's parts,
    or `pair`: complex numbers of the operands); flops: what one element counts for in reports; bits: whether operand 0
    is a pattern of bits, so that computing in a wider type must put zeros in front of it; leading: what each of those
    zeros adds to the result; sign: whether operand 0's top bit is a sign whatever its type, so that computing in a
    wider type must repeat it."""

    name: str
    arity: int
    result: Result = "same"
    flops: int = 1
    predicate: bool = False
    """True where operand 0 is an i1 mask (select)."""
    bits: bool = False
    leading: int = 0
    sign: bool = False
    domain: Domain = "any"
    """Element types of the operands that the function is defined on."""
    real: bool = False
    """Whether the result for complex operands is real."""
    complex_flops: int = 0
    """Operations on real numbers that one complex element counts for; 0 where graph-complex has no formula for complex
    operands or results, so that the host computes them."""


_UNARY = [
    "abs",
    "neg",
    "sign",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "sqrt",
    "rsqrt",
    "cbrt",
    "tanh",
    "logistic",
    "sin",
    "cos",
    "tan",
    "erf",
    "floor",
    "ceil",
    "round_even",
    "round_away",
    "not",
]
_BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "pow",
    "rem",
    "atan2",
    "and",
    "or",
    "xor",
    "shl",
]
_COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]

_DOMAIN: dict[str, Domain] = {
    **dict.fromkeys(("abs", "neg", "sign", "max", "min"), "number"),
    **dict.fromkeys(("not", "and", "or", "xor"), "whole"),
    **dict.fromkeys(("shl", "shr_arithmetic"), "integer"),
    "atan2": "float",
}
"""Of the functions above, where it is not floats for one operand and numbers for two."""

_COMPLEX: dict[str, int] = {
    **dict.fromkeys(("neg", "add", "sub", "select", "convert"), 2),
    **dict.fromkeys(("eq", "ne"), 3),
    **{"mul": 6, "abs": 8, "div": 24, "sin": 12, "cos": 12, "sign": 10},
    **{"tanh": 24, "tan": 24, "rsqrt": 16, "expm1": 9, "logistic": 32, "cbrt": 14, "pow": 20},
}
"""Operations on real numbers in the formulas for complex ones."""

FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in [
        *(
            Function(n, 1, domain=_DOMAIN.get(n, "float"), real=n == "abs", complex_flops=_COMPLEX.get(n, 0))
            for n in _UNARY
        ),
        Function("popcnt", 1, bits=True, domain="integer"),
        Function("clz", 1, bits=True, leading=1, domain="integer"),
        Function("shr_logical", 2, bits=True, domain="integer"),
        Function("shr_arithmetic", 2, sign=True, domain="integer"),
        Function("is_finite", 1, "i1", domain="float"),
        Function("convert", 1, "any", 0, complex_flops=_COMPLEX["convert"]),
        Function("bitcast", 1, "bits", 0),
        *(Function(n, 2, domain=_DOMAIN.get(n, "number"), complex_flops=_COMPLEX.get(n, 0)) for n in _BINARY),
        *(Function(n, 2, "i1", complex_flops=_COMPLEX.get(n, 0)) for n in _COMPARE),
        Function("select", 3, "same", 1, predicate=True, complex_flops=_COMPLEX["select"]),
        Function("clamp", 3, domain="number"),
    ]
}

PARTS: dict[str, Function] = {
    "real": Function("real", 1, "part", 0, complex_flops=0),
    "imag": Function("imag", 1, "part", 0, complex_flops=0),
    "complex": Function("complex", 2, "pair", 0, complex_flops=0),
}
"""Functions between complex numbers and their parts. They are of the graph level only: graph-complex removes them."""

FORMULAS: dict[str, str] = {
    "real": "its real part",
    "imag": "its imaginary part",
    "complex": "lhs + i rhs",
    **{
        n: f"{n}(x)"
        for n in ("sign", "exp", "log", "sqrt", "cbrt", "tanh", "sin", "cos", "tan", "erf", "floor", "ceil")
    },
    "abs": "|x|",
    "neg": "-x",
    "exp2": "2 ** x",
    "expm1": "exp(x) - 1, exact near 0",
    "log1p": "log(1 + x), exact near 0",
    "rsqrt": "1 / sqrt(x)",
    "logistic": "1 / (1 + exp(-x))",
    "round_even": "the nearest integer, halves to even",
    "round_away": "the nearest integer, halves away from 0",
    "not": "all bits of x inverted",
    "popcnt": "how many bits of x are 1",
    "clz": "how many bits of x above its highest 1",
    "bitcast": "the bits of x as a number of the result's element type, as wide",
    "is_finite": "whether x is neither infinite nor NaN",
    "convert": "x in the result's element type: rounded to even, cut off towards 0 for integers, x != 0 for i1",
    "add": "lhs + rhs",
    "sub": "lhs - rhs",
    "mul": "lhs * rhs",
    "div": "lhs / rhs, cut off towards 0 for integers",
    "max": "the larger one, NaN if either is",
    "min": "the smaller one, NaN if either is",
    "pow": "lhs ** rhs",
    "rem": "lhs - rhs * trunc(lhs / rhs)",
    "atan2": "the angle of the point (rhs, lhs), in (-pi, pi]",
    "and": "lhs & rhs, bit by bit",
    "or": "lhs | rhs, bit by bit",
    "xor": "lhs ^ rhs, bit by bit",
    "shl": "lhs << rhs",
    "shr_arithmetic": "lhs >> rhs, filled with the sign",
    "shr_logical": "lhs >> rhs, filled with 0",
    **{n: f"lhs {op} rhs" for n, op in zip(_COMPARE, ("==", "!=", "<", "<=", ">", ">="), strict=True)},
    "select": "second where first, else third",
    "clamp": "second, not below first and not above third",
}
"""What each function computes of its operands, by their names in the ops."""


def formula(name: str) -> str:
    """What a function computes, for its docstring."""
    return FORMULAS.get(name, f"{name} of its operands")


REDUCTIONS = ("sum", "prod", "max", "min", "and", "or")
"""Kinds of reduction; `and`, `or` are bitwise (logical on i1)."""

REDUCTION_FUNCTION = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}
"""The elementwise function that combines two partial results of a reduction."""


SCATTERS = ("set", "sum", "prod", "max", "min")
"""What a scatter does with what is there: replace it, or combine as a reduction."""

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
        return float("inf") if kind == "min" else float("-inf")
    info = (
        ml_dtypes.iinfo(numpy_dtype(dtype)) if dtype.endswith(("i4", "i2")) else np.iinfo(numpy_dtype(dtype))
    )
    return {
        "max": int(info.min),
        "min": int(info.max),
        "and": -1 if info.min < 0 else int(info.max),
        "or": 0,
    }[kind]
