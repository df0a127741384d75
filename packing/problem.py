"""Buffers with lifetimes, and the bytes that any offsets of them need at least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

FAR = 1 << 62
"""A byte behind all others; sums of two such numbers are not formed."""


class PackingError(Exception):
    """Buffers that are no problem, or that do not fit. The message is for the user."""


@dataclass(frozen=True)
class Buffer:
    """`size` bytes at a multiple of `alignment`, in use from time `start` until before time `end`."""

    name: str
    start: int
    end: int
    size: int
    alignment: int = 1


@dataclass(frozen=True)
class PackingProblem:
    """Buffers to be placed so that no two that are in use at one time share a byte.

    A buffer without bytes or without time is in nobody's way. Raises PackingError for less than that, for an alignment
    below 1, and for more bytes than 64 bits count.
    """

    buffers: tuple[Buffer, ...]

    def __post_init__(self) -> None:
        total = 0
        for b in self.buffers:
            if b.size < 0:
                raise PackingError(f"buffer {b.name} has a negative size, {b.size}")
            if b.end < b.start:
                raise PackingError(f"buffer {b.name} ends at {b.end}, before it starts at {b.start}")
            if b.alignment < 1:
                raise PackingError(f"buffer {b.name} has the alignment {b.alignment}; it must be at least 1")
            if max(abs(b.start), abs(b.end)) >= FAR:
                raise PackingError(f"buffer {b.name} has a time that 64 bits do not hold")
            total += b.size + b.alignment
        if total >= FAR:
            raise PackingError("the buffers have more bytes than 64 bits count")

    @cached_property
    def sizes(self) -> np.ndarray:
        """Bytes of each buffer: i64 [n]."""
        return np.array([b.size for b in self.buffers], np.int64)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first time at which each buffer is in use: i64 [n]."""
        return np.array([b.start for b in self.buffers], np.int64)

    @cached_property
    def ends(self) -> np.ndarray:
        """The first time at which each buffer is no longer in use: i64 [n]."""
        return np.array([b.end for b in self.buffers], np.int64)

    @cached_property
    def alignments(self) -> np.ndarray:
        """What each offset is a multiple of, in bytes: i64 [n]."""
        return np.array([b.alignment for b in self.buffers], np.int64)

    @cached_property
    def used(self) -> np.ndarray:
        """Which buffers have bytes and time: bool [n]."""
        return (self.sizes > 0) & (self.ends > self.starts)

    @cached_property
    def section_times(self) -> np.ndarray:
        """One time for each section, in ascending order: i64 [sections]. A section is the set of buffers in use at a
        time that is in no other such set: one where a start is followed by an end."""
        starts, ends = np.unique(self.starts[self.used]), np.unique(self.ends[self.used])
        following = np.searchsorted(ends, starts, side="right")
        # of the starts before one end the last counts
        return starts[np.append(following[1:] != following[:-1], True)] if starts.size else starts

    @cached_property
    def first(self) -> np.ndarray:
        """The first section in which each buffer lives: i64 [n]."""
        return np.searchsorted(self.section_times, self.starts)

    @cached_property
    def last(self) -> np.ndarray:
        """The last section in which each buffer lives: i64 [n]. Before `first` for one that is not used."""
        return np.where(self.used, np.searchsorted(self.section_times, self.ends) - 1, self.first - 1)

    @property
    def sections(self) -> int:
        """How many sets of buffers in use there are of which none is in another."""
        return len(self.section_times)

    @cached_property
    def live_bytes(self) -> np.ndarray:
        """Bytes in use in each section: i64 [sections]."""
        change = np.zeros(self.sections + 1, np.int64)
        np.add.at(change, self.first[self.used], self.sizes[self.used])
        np.add.at(change, self.last[self.used] + 1, -self.sizes[self.used])
        return np.cumsum(change)[:-1]

    @cached_property
    def bound(self) -> int:
        """Bytes in use at one time: no offsets need less."""
        return int(self.live_bytes.max(initial=0))

    @property
    def fullest(self) -> int | None:
        """The time at which most bytes are in use, the first of several; None without buffers."""
        return int(self.section_times[self.live_bytes.argmax()]) if self.sections else None

    def live_at(self, time: int) -> list[Buffer]:
        """The buffers in use at a time, the largest first."""
        found = np.flatnonzero(self.used & (self.starts <= time) & (time < self.ends))
        return [self.buffers[i] for i in found[np.argsort(-self.sizes[found], kind="stable")]]

    def height(self, offsets: Sequence[int] | np.ndarray) -> int:
        """Bytes that offsets need."""
        return int((np.asarray(offsets, np.int64) + self.sizes)[self.used].max(initial=0))

    def check(self, offsets: Sequence[int] | np.ndarray) -> None:
        """Raises PackingError where two buffers that are in use at one time share a byte, or an offset is negative or
        not aligned."""
        places = np.asarray(offsets, np.int64)
        wrong = np.flatnonzero((places < 0) | (places % self.alignments != 0))
        if wrong.size:
            b = self.buffers[wrong[0]]
            raise PackingError(
                f"buffer {b.name} has the offset {places[wrong[0]]}, no multiple of {b.alignment}"
            )
        tops = places + self.sizes
        order = np.flatnonzero(self.used)
        order = order[np.argsort(places[order], kind="stable")]
        for at, i in enumerate(order):
            later = order[at + 1 :]
            later = later[: np.searchsorted(places[later], tops[i])]  # those that begin below its top
            met = later[(self.starts[later] < self.ends[i]) & (self.starts[i] < self.ends[later])]
            if met.size:
                raise PackingError(
                    f"buffers {self.buffers[i].name} and {self.buffers[met[0]].name} share bytes"
                )

    def of(self, numbers: Sequence[int] | np.ndarray) -> PackingProblem:
        """The problem of some of the buffers, by number."""
        return PackingProblem(tuple(self.buffers[i] for i in numbers))


def aligned(at: np.ndarray, alignments: np.ndarray) -> np.ndarray:
    """Offsets rounded up to multiples of their alignments."""
    return -(-at // alignments) * alignments
