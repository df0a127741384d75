"""Plain numbers: the boxes of tensors that index variables move.

A variable is a number: the grid coordinates of a kernel come first, then the unit, then one for each loop.
`counts[v]` is how many values variable v takes, always 0, 1, 2, ...: a loop that starts elsewhere or has
another step is folded into the expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....dialects.affine import Expr


@dataclass(frozen=True, slots=True)
class TouchedBox:
    """What a transfer touches of a view: along each dimension `count` positions, `step` apart, from `offset`;
    positions outside `extent` are left out."""

    offsets: tuple[Expr[int], ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    extent: tuple[int, ...]

    def at(self, env: Sequence[int]) -> tuple[tuple[int, int], ...] | None:
        """[first, end) along each dimension, clipped, in one environment; None where nothing is left."""
        out = []
        for offset, count, step, extent in zip(
            self.offsets, self.counts, self.steps, self.extent, strict=True
        ):
            low, high = ends(offset.evaluate(env), count, step)
            low, high = max(low, 0), min(high, extent)
            if low >= high:
                return None
            out.append((low, high))
        return tuple(out)


def ends(start: int, count: int, step: int) -> tuple[int, int]:
    """[least, greatest + 1) of `start + i * step`, i < count."""
    far = start + (count - 1) * step
    return (start, far + 1) if step >= 0 else (far, start + 1)


@dataclass(frozen=True, slots=True)
class Cover:
    """How the instances of a box fall along one dimension: they fill [low, high) without gaps if `full`, and no
    two of them share a position if `once`."""

    low: int
    high: int
    full: bool
    once: bool


def cover(offset: Expr[int], count: int, step: int, extent: int, counts: Sequence[int]) -> Cover:
    """All positions `offset + i * step`, i < count, over all values of the offset's variables, clipped to
    [0, extent).

    The variables and i are digits of a number with mixed radix: sorted by weight, each weight must be the number
    of positions that the smaller digits reach. The last digit may overhang, which clipping cuts off.
    """
    digits = sorted(
        (abs(w), n) for w, n in [(step, count), *((c, counts[v]) for v, c in offset.terms)] if n > 1
    )
    low, high = offset.reach(counts)
    low, high = low + min((count - 1) * step, 0), high + max((count - 1) * step, 0) + 1
    full = once = True
    reach = 1
    for weight, n in digits:
        if weight > reach:
            full = False
        if weight < reach:
            once = False
        reach += weight * (n - 1)
    if not once and low == 0:
        once = _clipped_once(digits, extent)
    return Cover(max(low, 0), min(high, extent), full, once)


def _clipped_once(digits: Sequence[tuple[int, int]], extent: int) -> bool:
    """Whether positions below `extent` are met once: an overhang counts only where the next digit brings it
    back inside, so it is harmless if the digits above do not move."""
    positions = [0]
    for weight, n in digits:
        if len(positions) * n > MOST_POSITIONS:
            return False
        positions = [p + weight * i for i in range(n) for p in positions if p + weight * i < extent]
    return len(positions) == len(set(positions))


MOST_POSITIONS = 1 << 14
"""Positions along one dimension that are listed one by one; above, an uneven split counts as an overlap."""


def product_covers(
    boxes: Sequence[tuple[tuple[int, int], ...]], extent: Sequence[int]
) -> tuple[int, ...] | None:
    """A position of [0, extent) that no box has; None where the boxes cover it all."""
    if any(n == 0 for n in extent):
        return None
    if not boxes:
        return tuple(0 for _ in extent)
    return _uncovered(list(boxes), extent, 0)


def _uncovered(
    boxes: Sequence[tuple[tuple[int, int], ...]], extent: Sequence[int], d: int
) -> tuple[int, ...] | None:
    if d == len(extent):
        return None if boxes else ()
    cuts = sorted({0, *(b[d][0] for b in boxes), *(b[d][1] for b in boxes)} - {extent[d]})
    coming = sorted(boxes, key=lambda b: b[d][0], reverse=True)
    inside: list[tuple[tuple[int, int], ...]] = []
    for low in cuts:
        if not 0 <= low < extent[d]:
            continue
        inside = [b for b in inside if b[d][1] > low]
        while coming and coming[-1][d][0] <= low:
            box = coming.pop()
            if box[d][1] > low:
                inside.append(box)
        if not inside:
            return (low, *([0] * (len(extent) - d - 1)))
        rest = _uncovered(inside, extent, d + 1)
        if rest is not None:
            return (low, *rest)
    return None


def shared(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]]) -> int:
    """The number of positions that two boxes share."""
    total = 1
    for x, y in zip(a, b, strict=True):
        total *= max(0, min(x[1], y[1]) - max(x[0], y[0]))
    return total


def flat_hull(box: Sequence[tuple[int, int]], strides: Sequence[int], offset: int) -> tuple[int, int]:
    """[least, greatest + 1) element of a box of a view."""
    low = high = offset
    for (first, end), stride in zip(box, strides, strict=True):
        ends_ = first * stride, (end - 1) * stride
        low, high = low + min(ends_), high + max(ends_)
    return low, high + 1


def describe_env(names: Mapping[int, tuple[str, int, int]], env: Sequence[int]) -> str:
    """` where i = 2, j = 0`: the loop indices of an instance."""
    shown = [f"{name} = {first + step * env[v]}" for v, (name, first, step) in names.items()]
    return f" where {', '.join(shown)}" if shown else ""
