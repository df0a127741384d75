"""Memory by ranges instead of bytes: what a run of a host program costs does not depend on how large its tensors are.

A *content* is a number that stands for endless bytes that nothing else has. A *part* (content, first, count) is `count`
of them from number `first` on. Ranges that hold equal bytes have equal parts, and the other way round.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Part = tuple[int, int, int]
Parts = tuple[Part, ...]


def content(*of: object) -> int:
    """The content that follows from numbers, texts and parts; the same within one process."""
    return hash(of)


def joined(parts: Iterable[Part]) -> Parts:
    """As few parts as it takes."""
    found: list[Part] = []
    for what, first, count in parts:
        if not count:
            continue
        if found and found[-1][0] == what and found[-1][1] + found[-1][2] == first:
            found[-1] = what, found[-1][1], found[-1][2] + count
        else:
            found.append((what, first, count))
    return tuple(found)


def cut(parts: Parts, stops: Iterable[int]) -> Iterator[Parts]:
    """The parts of the bytes up to each stop in turn; stops ascend."""
    at, i, used = 0, 0, 0
    for stop in stops:
        found: list[Part] = []
        while at < stop and i < len(parts):
            what, first, count = parts[i]
            n = min(count - used, stop - at)
            found.append((what, first + used, n))
            at, used = at + n, used + n
            if used == count:
                i, used = i + 1, 0
        yield tuple(found)


class Pieces:
    """`size` bytes, all of one content at first."""

    def __init__(self, size: int, held: int):
        self.size = size
        self._starts = [0]
        self._held: list[tuple[int, int]] = [(held, 0)]
        """For each piece its content, and the place of the content's byte 0."""

    def read(self, at: int, count: int) -> Parts:
        """What `count` bytes from `at` on hold."""
        if not count:
            return ()
        starts, stop = self._starts, at + count
        found: list[Part] = []
        for i in range(bisect_right(starts, at) - 1, bisect_left(starts, stop)):
            low = max(starts[i], at)
            high = min(starts[i + 1], stop) if i + 1 < len(starts) else stop
            what, zero = self._held[i]
            found.append((what, low - zero, high - low))
        return joined(found)

    def write(self, at: int, parts: Parts) -> None:
        """Puts parts one after the other, from `at` on."""
        starts: list[int] = []
        held: list[tuple[int, int]] = []
        stop = at
        for what, first, count in parts:
            if count:
                starts.append(stop)
                held.append((what, stop - first))
                stop += count
        if stop == at:
            return
        low = bisect_left(self._starts, at)
        high = bisect_right(self._starts, stop)
        if stop < self.size and self._starts[high - 1] != stop:
            starts.append(stop)
            held.append(self._held[high - 1])
        elif stop < self.size:
            high -= 1
        self._starts[low:high] = starts
        self._held[low:high] = held
