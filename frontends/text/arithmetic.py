"""`//`, `%` and `**`, as in Python."""

from __future__ import annotations

from typing import Any, cast

from xdsl.ir import SSAValue

from ...dialects.dtypes import is_float
from ...dialects.graph.interface import element_of
from ...dialects.open_sizes import is_open
from .axes import Tensor
from .builder import BOOLEAN, Builder
from .diagnostics import Problem
from .numbers import divided
from .numbers import power as whole_power


def floor_divide(b: Builder, x: Any, y: Any) -> Any:
    """The quotient rounded down, as Python's `//`."""
    if not any(isinstance(v, SSAValue | list) for v in (x, y)):
        return divided("//", x, y)
    x, y = _pair(b, "//", x, y)
    if is_float(element_of(x)):
        rest = b.apply("rem", x, y)
        exact = b.apply("select", b.apply("eq", y, 0), x, b.apply("sub", x, rest))
        quotient = b.apply("div", exact, y)
        away = b.apply(
            "and", b.apply("ne", rest, 0), b.apply("ne", b.apply("sign", y), b.apply("sign", rest))
        )
        return b.apply("round_away", b.apply("select", away, b.apply("sub", quotient, 1), quotient))
    quotient = b.apply("div", x, y)
    signs = b.apply("ne", b.apply("sign", x), b.apply("sign", y))
    away = b.apply("and", signs, b.apply("ne", b.apply("rem", x, y), 0))
    return b.apply("select", away, b.apply("sub", quotient, 1), quotient)


def modulo(b: Builder, x: Any, y: Any) -> Any:
    """What `//` leaves, with the sign of y, as Python's `%`; of whole numbers and a zero y it is 0."""
    if not any(isinstance(v, SSAValue | list) for v in (x, y)):
        return divided("%", x, y)
    x, y = _pair(b, "%", x, y)
    if not is_float(element_of(x)):
        y = b.apply("select", b.apply("eq", y, 0), 1, y)
    rest = b.apply("rem", x, y)
    signs = b.apply("ne", b.apply("lt", rest, 0), b.apply("lt", y, 0))
    away = b.apply("and", signs, b.apply("ne", rest, 0))
    return b.apply("select", away, b.apply("add", rest, y), rest)


def _pair(b: Builder, sign: str, x: Any, y: Any) -> list[Tensor]:
    """Both sides as tensors of one type. Raises Problem."""
    element = b.common(sign, [x, y])
    if element == BOOLEAN:
        raise Problem(f"`{sign}` is for numbers, not i1", help="convert with `as i32`")
    sides = [b.tensor(v, element) for v in (x, y)]
    shape = b.together(sign, sides)
    return [b.broadcast(v, shape) for v in sides]


def power(b: Builder, x: Any, y: Any) -> Any:
    """x to the power y: by products where y is a small whole number, as JAX does."""
    if isinstance(x, SSAValue) and isinstance(y, int) and not isinstance(y, bool) and 1 <= y <= 64:
        out, square = None, x
        while y:
            if y & 1:
                out = square if out is None else b.apply("mul", out, square, sign="**")
            y >>= 1
            if y:
                square = b.apply("mul", square, square, sign="**")
        return out
    if all(isinstance(v, int) or is_open(v) for v in (x, y)) and y >= 0:
        return whole_power(cast("int", x), y)
    return b.apply("pow", x, y, sign="**")
