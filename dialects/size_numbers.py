"""Numbers that follow from sizes and are data: `8*s`, or what functions compute of sizes in 64-bit floats.

A program that is right for many sizes takes such numbers as scalars. Text is that of sizes, with the names of scalar
functions: `div(1.0, sqrt(8*s))`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from .affine import Expr
from .dtypes import is_float, numpy_dtype
from .sizes import Names, Size, SizeError, Sizes, evaluate, parse_size, replaced, size_text, symbols_of


@dataclass(frozen=True, slots=True)
class Computed:
    """A float that follows from sizes: what the function `name` gives for numbers, in 64 bits. It is one that
    `float_function` has, or one of those beside it."""

    name: str
    args: tuple[SizeNumber, ...]


SizeNumber: TypeAlias = "Size | Computed | float"
"""A size, a float that is computed from some, or a float that is known."""

_NUMPY = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "max": "maximum",
    "min": "minimum",
    "neg": "negative",
    "rem": "fmod",
    "pow": "power",
    "atan2": "arctan2",
    "round_even": "rint",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "and": "logical_and",
    "or": "logical_or",
    "not": "logical_not",
    "abs": "absolute",
    "is_finite": "isfinite",
}
"""numpy's names of scalar functions where they differ."""

TRUNCATED = "truncated"
"""The function that gives a whole number: the whole part of a float."""

_BESIDE: dict[str, Callable[..., float]] = {
    "quotient": operator.floordiv,
    "modulus": operator.mod,
    TRUNCATED: lambda x: math.trunc(x) if math.isfinite(x) else x,
}
"""Functions of floats that no scalar function of tensors is: Python's `//` and `%`, and the whole part."""


def float_function(name: str) -> Callable[..., Any] | None:
    """numpy's function for a scalar function of the tables; None where it has none."""
    return getattr(np, _NUMPY.get(name, name), None)


def number_at(number: SizeNumber, sizes: Sizes) -> float | int:
    """The value of a number at given sizes. Raises SizeError where it has none, as by division by zero."""
    if isinstance(number, Expr):
        return evaluate(cast("Size", number), sizes)
    if not isinstance(number, Computed):
        return number
    args = [float(number_at(a, sizes)) for a in number.args]
    if number.name == "div" and args[1] == 0:
        raise SizeError(f"{number_text(number)} divides by zero")
    try:
        beside = _BESIDE.get(number.name)
        if beside is not None:
            return beside(*args)
        function = float_function(number.name)
        assert function is not None
        with np.errstate(all="ignore"):
            return function(*map(np.float64, args)).item()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise SizeError(f"{number_text(number)} has no value") from None


def scalar_at(number: SizeNumber, dtype: str, sizes: Sizes) -> np.ndarray:
    """The value of a number at given sizes, as a scalar of an element type: rounded, where that is a float. Raises
    SizeError where it has none, or the element type does not hold it."""
    value, target = number_at(number, sizes), numpy_dtype(dtype)
    try:
        with np.errstate(all="ignore"):
            wide = np.asarray(value, np.float64) if is_float(dtype) else np.asarray(value)
            made = wide.astype(target)
        held = bool(np.isfinite(made.astype(np.float64))) if is_float(dtype) else int(made) == value
    except (OverflowError, ValueError, TypeError):
        held = False
        made = np.zeros((), target)
    if not held and (not is_float(dtype) or math.isfinite(value)):
        raise SizeError(f"{number_text(number)} is {value}, which {dtype} does not hold")
    return made


def number_symbols(number: SizeNumber) -> set[str]:
    """The names of the symbols that a number follows from."""
    if isinstance(number, Expr):
        return {s.name for s in symbols_of(cast("Size", number))}
    return set().union(*map(number_symbols, number.args)) if isinstance(number, Computed) else set()


def number_with(number: SizeNumber, known: Mapping[str, Size]) -> SizeNumber:
    """A number with other sizes in the place of symbols, as `replaced` does it."""
    if isinstance(number, Expr):
        return replaced(cast("Size", number), known)
    if isinstance(number, Computed):
        return Computed(number.name, tuple(number_with(a, known) for a in number.args))
    return number


def number_text(number: SizeNumber) -> str:
    """A number as text, which `parse_number` reads."""
    if isinstance(number, Expr):
        return size_text(cast("Size", number))
    if isinstance(number, Computed):
        return f"{number.name}({', '.join(map(number_text, number.args))})"
    return repr(number)


def parse_number(text: str, symbols: Names) -> SizeNumber:
    """The number that a text says, of these names. Raises SizeError."""
    try:
        return parse_size(text, symbols)
    except SizeError as error:
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise error from None
        match tree:
            case ast.Constant(value=float(value)):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float(value))):
                return -value
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
                name in _BESIDE or float_function(name) is not None
            ):
                return Computed(name, tuple(parse_number(ast.unparse(a), symbols) for a in args))
            case _:
                raise error from None
