"""Ranges of bytes whose ends may be open: what is known of them at all sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ....dialects.open_sizes import OpenSize, is_open, size_of
from ....dialects.size_order import alternatives, at_most, divides, largest
from ....dialects.sizes import bounds

T = TypeVar("T")

ByteRange = tuple[int, int]
"""The first byte and the one behind the last."""


def never_above(a: int, b: int) -> bool:
    """Whether a number is at most another at all sizes. False also where that is not known."""
    if not (is_open(a) or is_open(b)):
        return a <= b
    others = alternatives(size_of(b))
    return all(any(at_most(one, other) for other in others) for one in alternatives(size_of(a)))


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
    return not (never_above(e, t) or never_above(f, s) or is_empty(one) or is_empty(other))


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
    ends = [(*_reach(s, e), (s, e), what) for s, e, what in ranges if not is_empty((s, e))]
    known = _remembered(may_meet)
    live: list[tuple[float, ByteRange, T]] = []
    for low, high, mine, what in sorted(ends, key=lambda r: r[:2]):
        live = [entry for entry in live if entry[0] > low]
        for _, its, other in live:
            if not _any_open((*mine, *its)) or known(its, mine):
                yield other, what
        live.append((high, mine, what))


def _reach(start: int, end: int) -> tuple[float, float]:
    """The least start and the largest end that a range has at any size."""
    low = bounds(size_of(start))[0] if is_open(start) else start
    high = bounds(size_of(end))[1] if is_open(end) else end
    return float("-inf") if low is None else low, float("inf") if high is None else high


def _any_open(numbers: Iterable[int]) -> bool:
    return any(type(n) is OpenSize for n in numbers)


def _remembered(ask: Callable[[ByteRange, ByteRange], bool]) -> Callable[[ByteRange, ByteRange], bool]:
    """The same function, which answers what was asked before from memory: programs have few ranges."""
    known: dict[object, bool] = {}

    def answer(one: ByteRange, other: ByteRange) -> bool:
        key = tuple(size_of(n) for n in (*one, *other))
        found = known.get(key)
        if found is None:
            found = known[key] = ask(one, other)
        return found

    return answer
