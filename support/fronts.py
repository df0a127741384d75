"""Pareto fronts of rows of numbers that are to be low."""

from __future__ import annotations

from collections.abc import Sequence


def beats(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether a row is as low as another one in all numbers, and lower in one."""
    return tuple(one) != tuple(other) and all(a <= b for a, b in zip(one, other, strict=True))


def unbeaten(rows: Sequence[Sequence[float]]) -> list[bool]:
    """Which rows no other one beats."""
    return [not any(beats(other, row) for other in rows) for row in rows]
