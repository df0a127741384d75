"""Ranges of bytes whose ends may be open: what is known of them at all sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from ....dialects.open_sizes import OpenSize, is_open, most_of, size_of
from ....dialects.size_order import KEPT, alternatives, at_most, divides, largest
from ....dialects.sizes import Size, bounds

T = TypeVar("T")

ByteRange = tuple[int, int]
"""The first byte and the one behind the last."""


def never_above(a: int, b: int) -> bool:
    """Whether a number is at most another at all sizes. False also where that is not known."""
    if not (is_open(a) or is_open(b)):
        return a <= b
    return _never_above(size_of(a), size_of(b))


def _never_above(a: Size, b: Size) -> bool:
    """The same of sizes: each that the first may be is at most one that the second may be."""
    others = alternatives(b)
    return all(any(at_most(one, other) for other in others) for one in alternatives(a))


def is_multiple(number: int, n: int) -> bool:
    """Whether `n` divides a number at all sizes. False also where that is not known."""
    return divides(n, size_of(number)) if is_open(number) else not number % n


def is_empty(range_: ByteRange) -> bool:
    """Whether a range has no bytes at any size."""
    start, end = range_
    return never_above(end, start)


def may_meet(one: ByteRange, other: ByteRange) -> bool:
    """Whether two ranges may have a byte in common, at some size."""
    (s, e), (t, f) = one, other
    if not _any_open((s, e, t, f)):
        return max(s, t) < min(e, f)
    return _may_meet(size_of(s), size_of(e), size_of(t), size_of(f))


@lru_cache(KEPT)
def _may_meet(s: Size, e: Size, t: Size, f: Size) -> bool:
    return not (_never_above(e, t) or _never_above(f, s) or _never_above(e, s) or _never_above(f, t))


def common(one: ByteRange, other: ByteRange) -> ByteRange:
    """The bytes that two ranges share; where ends are open, those of the second."""
    (s, e), (t, f) = one, other
    return other if any(map(is_open, (s, e, t, f))) else (max(s, t), min(e, f))


def around(ranges: Sequence[ByteRange]) -> ByteRange:
    """From the first to the last byte of some ranges, at all sizes."""
    if not _any_open(n for range_ in ranges for n in range_):
        return min(s for s, _ in ranges), max(e for _, e in ranges)
    first = largest(*(size_of(s) * -1 for s, _ in ranges)) * -1
    return OpenSize.of(first), OpenSize.of(largest(*(size_of(e) for _, e in ranges)))


def meeting(ranges: Sequence[tuple[int, int, T]]) -> Iterator[tuple[T, T]]:
    """Pairs of what may share bytes, that which begins first being first."""
    places: dict[tuple[Size, Size], int] = {}
    """Ranges by number: programs have few, and many tensors in them."""
    reached = [(*_reach(s, e), (s, e), what) for s, e, what in ranges if not is_empty((s, e))]
    known: dict[tuple[int, int], bool] = {}
    live: list[tuple[float, ByteRange, int, T]] = []
    for low, high, mine, what in sorted(reached, key=lambda r: r[:2]):
        number = -1
        if _any_open(mine):
            number = places.setdefault((size_of(mine[0]), size_of(mine[1])), len(places))
        live = [entry for entry in live if entry[0] > low]
        for _, its, other_number, other in live:
            if number < 0 and other_number < 0:
                yield other, what
                continue
            if number < 0 or other_number < 0:
                meets = may_meet(its, mine)
            elif (meets := known.get((other_number, number))) is None:
                meets = known[other_number, number] = may_meet(its, mine)
            if meets:
                yield other, what
        live.append((high, mine, number, what))


def _reach(start: int, end: int) -> tuple[float, float]:
    """The least start and the largest end that a range has at any size."""
    low = bounds(size_of(start))[0] if is_open(start) else start
    high = most_of(end)
    return float("-inf") if low is None else low, float("inf") if high is None else high


def _any_open(numbers: Iterable[int]) -> bool:
    return any(type(n) is OpenSize for n in numbers)
