"""Arithmetic on sizes beyond Python's operators, as what frontends translate does it: numbers give numbers."""

from __future__ import annotations

from collections.abc import Callable

from ..dialects.open_sizes import OpenSize, is_open, size_of
from ..dialects.sizes import Size, maximum, minimum


def truncated_quotient(a: int, b: int) -> int:
    """The quotient, rounded towards 0. Raises ZeroDivisionError."""
    if is_open(b) and b == 0:
        raise ZeroDivisionError
    return a // b if (a >= 0) == (b >= 0) else -(-a // b)


def truncated_remainder(a: int, b: int) -> int:
    """The remainder of `truncated_quotient`: of the sign of `a`."""
    return a - truncated_quotient(a, b) * b


def _extreme(choose: Callable[..., Size], plain: Callable[..., int]) -> Callable[[int, int], int]:
    def extreme(a: int, b: int) -> int:
        return OpenSize.of(choose(size_of(a), size_of(b))) if is_open(a) or is_open(b) else plain(a, b)

    return extreme


larger, smaller = _extreme(maximum, max), _extreme(minimum, min)
"""The larger and the smaller of two numbers, either of which may be open; nothing is assumed."""
