"""Plain numbers: where the transfers that linear expressions of loop indices address get clipped.

An environment is a list of integers, one for each index variable of a section: its grid coordinates, its unit
and its loop indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...dialects.affine import Expr, Range


@dataclass(frozen=True, slots=True)
class TransferRow:
    """One dimension of a transfer: `count` positions from `offset`, `step` apart, in a tensor of `extent`."""

    offset: Expr[int]
    count: int
    step: int
    extent: int

    def whole(self) -> Range:
        """The offsets at which no position is clipped."""
        reach = (self.count - 1) * self.step
        return max(0, -reach), self.extent - 1 - max(0, reach)

    def partial(self) -> Range:
        """The offsets outside of which every position is clipped."""
        reach = (self.count - 1) * self.step
        return -max(0, reach), self.extent - 1 + max(0, -reach)

    def never_clips(self, ranges: Sequence[Range]) -> bool:
        """Whether no values of the variables clip it."""
        low, high = self.offset.span(ranges)
        first, last = self.whole()
        return first <= low and high <= last


class Clip:
    """How a row clips as seen from outside a loop nest: whole for all inner indices, empty for all, or mixed.

    `outer` is the part of the offset that is fixed outside, `coefficient` the weight of the loop's own index.
    """

    __slots__ = ("coefficient", "empty_above", "empty_below", "outer", "whole_high", "whole_low")

    def __init__(self, row: TransferRow, inside: set[int], own: int | None, ranges: Sequence[Range]) -> None:
        fixed = inside if own is None else inside | {own}
        low, high = row.offset.only(inside).span(ranges)
        whole_low, whole_high = row.whole()
        partial_low, partial_high = row.partial()
        self.outer = row.offset.without(fixed)
        self.coefficient = row.offset.coefficient(own) if own is not None else 0
        self.whole_low, self.whole_high = whole_low - low, whole_high - high
        self.empty_below, self.empty_above = partial_low - high, partial_high - low

    def identity(self) -> tuple[object, ...]:
        """Equal for clips that always say the same."""
        return (
            self.outer,
            self.coefficient,
            self.whole_low,
            self.whole_high,
            self.empty_below,
            self.empty_above,
        )

    def key(self, env: Sequence[int]) -> int | str:
        """Equal keys mean equal clipping for each value of the inner indices."""
        base = self.outer.evaluate(env)
        if self.whole_low <= base <= self.whole_high:
            return "whole"
        if base < self.empty_below or base > self.empty_above:
            return "empty"
        return base

    def steady(self, env: Sequence[int], first: int, step: int) -> list[Range]:
        """Ranges of trips t, where the own index is `first + step * t`, over which the clipping stays one."""
        base, slope = self.outer.evaluate(env) + self.coefficient * first, self.coefficient * step
        limit = 1 << 62
        return [
            r
            for r in (
                _solve(base, slope, self.whole_low, self.whole_high),
                _solve(base, slope, -limit, self.empty_below - 1),
                _solve(base, slope, self.empty_above + 1, limit),
            )
            if r[0] <= r[1]
        ]


def _solve(base: int, slope: int, low: int, high: int) -> Range:
    """The t for which `low <= base + slope * t <= high`; slope is not zero."""
    if slope < 0:
        base, slope, low, high = -base, -slope, -high, -low
    return -((base - low) // slope), (high - base) // slope


def steady_runs(ranges: Sequence[Sequence[Range]], trips: int) -> list[tuple[int, int, bool]]:
    """Cuts `trips` into (start, count, steady): in a steady run every row stays within one of its ranges."""
    if not trips:
        return []
    cuts = {0, trips}
    for row in ranges:
        for low, high in row:
            cuts.update(cut for cut in (low, high + 1) if 0 < cut < trips)
    edges = sorted(cuts)
    return [
        (a, b - a, all(any(low <= a <= high for low, high in row) for row in ranges))
        for a, b in pairwise(edges)
    ]
