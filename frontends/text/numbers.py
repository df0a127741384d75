"""Numbers known at compile time: Python's own, and those that follow from open sizes.

A whole number is an int or an `OpenSize`; a float is Python's, or an `OpenNumber` where it follows from an open size.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard, cast

import numpy as np

from ...dialects.open_sizes import certain, is_open, size_of
from ...dialects.size_numbers import TRUNCATED, Computed, SizeNumber, float_function
from ..open_module import NotOpen
from ..size_arithmetic import larger, smaller, truncated_remainder
from .diagnostics import Problem


class OpenNumber:
    """A float that follows from open sizes. Raises NotOpen where it decides what a program is: for such questions it
    has no answer for all sizes."""

    __slots__ = ("number",)

    def __init__(self, number: SizeNumber) -> None:
        self.number = number

    def _undecided(self, *_: object) -> Any:
        raise NotOpen("a number that is computed from open sizes decides what the program is")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = _undecided

    def __hash__(self) -> int:
        return hash(self.number)

    def __str__(self) -> str:
        return "of open sizes"


Number = float | int | bool | OpenNumber
"""A number known at compile time; an `OpenSize` takes the place of an int."""


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number known at compile time: an int that is no truth value, or an open size."""
    return (isinstance(value, int) and not isinstance(value, bool)) or is_open(value)


def is_fraction(value: object) -> TypeGuard[float | OpenNumber]:
    """Whether a value is a float known at compile time that is not the whole part of one."""
    if isinstance(value, OpenNumber):
        return not (isinstance(value.number, Computed) and value.number.name == TRUNCATED)
    return isinstance(value, float)


def is_known_number(value: object) -> TypeGuard[Number]:
    """Whether a value is a number or truth value known at compile time."""
    return isinstance(value, int | float | OpenNumber) or is_open(value)


def is_of_sizes(value: object) -> bool:
    """Whether a value is a number that follows from open sizes."""
    return isinstance(value, OpenNumber) or is_open(value)


def size_number(value: Number) -> SizeNumber:
    """A number as what @main is given for it. Raises NotOpen for infinity and NaN, which have no text."""
    if isinstance(value, OpenNumber):
        return value.number
    if is_open(value):
        return size_of(cast("int", value))
    if not math.isfinite(value):
        raise NotOpen(f"{value} is computed with open sizes")
    return float(value)


def as_float(value: Number) -> float | OpenNumber:
    """A number as a float."""
    return OpenNumber(size_number(value)) if is_of_sizes(value) else float(cast("float", value))


def same_number(a: object, b: object) -> bool:
    """Whether two values are one number of one type, for all sizes."""
    if is_of_sizes(a) or is_of_sizes(b):
        return type(a) is type(b) and size_number(cast("Number", a)) == size_number(cast("Number", b))
    return type(a) is type(b) and a == b


def same_sizes(a: Any, b: Any) -> bool:
    """Whether two sequences of whole numbers are equal, for all sizes: where that is not known, they are not."""
    return len(a) == len(b) and all(certain(m, "==", n) for m, n in zip(a, b, strict=True))


def extent_of(start: int, stop: int, step: int) -> int:
    """How many whole numbers there are from `start` on in steps before `stop`, as in `range`."""
    gap, stride = (stop - start, step) if step > 0 else (start - stop, -step)
    return larger((gap + stride - 1) // stride, 0)


_WHOLE: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "max": larger,
    "min": smaller,
    "neg": operator.neg,
    "abs": abs,
}
"""Functions of whole numbers that give whole numbers."""

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

_WIDEST = 1 << 63


def power(x: int, y: int) -> int:
    """A whole number to the power of another, which is not negative. Raises Problem beyond 64 bits, NotOpen for an open
    exponent."""
    if is_open(y) or (is_open(x) and y > 64):
        raise NotOpen(
            f"an open size is raised to the power of {y}" if is_open(x) else "an open size is an exponent"
        )
    if is_open(x):
        return math.prod([x] * y)
    if abs(x) > 1 and y > 64:
        raise Problem("a whole number beyond 64 bits")
    return x**y


def divided(sign: str, x: Any, y: Any) -> Number:
    """`x // y` or `x % y`, as Python has them. Raises Problem."""
    if isinstance(x, bool) or isinstance(y, bool):
        raise Problem(f"`{sign}` is for numbers, not truth values")
    if (is_of_sizes(x) or is_of_sizes(y)) and not (is_whole(x) and is_whole(y)):
        return _computed("quotient" if sign == "//" else "modulus", (x, y))
    if y == 0:
        raise Problem("division by zero")
    try:
        return x // y if sign == "//" else x % y
    except OverflowError:
        raise Problem(f"`{sign}` of {x} and {y} has no value") from None


def truncated(value: float | OpenNumber) -> Number:
    """The whole part of a float; infinity and NaN are themselves."""
    if isinstance(value, OpenNumber):
        return OpenNumber(Computed(TRUNCATED, (value.number,)))
    return math.trunc(value) if math.isfinite(value) else value


def compute(name: str, args: tuple[Any, ...], called: str) -> Number:
    """A scalar function of numbers, at compile time. Raises Problem."""
    if name == "select":
        return args[1] if args[0] else args[2]
    if name == "clamp":
        return (
            compute("min", (compute("max", (args[1], args[0]), called), args[2]), called)
            if any(map(is_of_sizes, args))
            else min(max(args[1], args[0]), args[2])
        )
    function = float_function(name)
    if function is None:
        raise Problem(
            f"`{called}` of numbers is not known at compile time", help="convert one, as in `2.0 as f32`"
        )
    logic = all(isinstance(a, bool) for a in args)
    if name in ("and", "or", "not") and not logic:
        first = str(args[0]).lower() if isinstance(args[0], bool) else args[0]
        kind = "truth value" if isinstance(args[0], bool) else "number"
        raise Problem(f"`{called}` needs truth values, got the {kind} {first}")
    if logic and name in ("add", "sub", "mul", "div", "neg"):
        raise Problem(f"`{called}` is for numbers, not truth values")
    whole = all(isinstance(a, int) or is_open(a) for a in args)
    try:
        if whole and name in _WHOLE:
            return checked(_WHOLE[name](*args))
        if whole and name == "rem":
            return checked(truncated_remainder(*args) if any(map(is_open, args)) else int(math.fmod(*args)))
        if any(map(is_of_sizes, args)):
            return _COMPARE[name](*args) if name in _COMPARE else _computed(name, args)
        with np.errstate(all="ignore"):
            return function(*(a if isinstance(a, bool) else np.float64(a) for a in args)).item()
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise Problem(f"`{called}` of {' and '.join(map(spelt, args))} has no value") from None


def _computed(name: str, args: tuple[Number, ...]) -> OpenNumber:
    return OpenNumber(Computed(name, tuple(map(size_number, args))))


def checked(value: Number) -> Number:
    """A whole number within 64 bits. Raises Problem beyond."""
    if is_whole(value) and not -_WIDEST <= value < _WIDEST:
        raise Problem("a whole number beyond 64 bits")
    return value


def spelt(value: Number) -> str:
    """A number as .tw writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
