"""The plans of a kernel as plain data: which numbers a plan has, and the values that each may take.

A plan is a row of numbers: of each choice, in order, which of its values it has. Choices stand in levels, from what
decides most of a kernel's time to what decides least: a search fixes one level after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Plans = np.ndarray
"""Plans, one a row: for each choice the number of its value, as int64 [plans, choices]."""


@dataclass(frozen=True)
class Choice:
    """One number of a plan. level: when a search fixes it, from 0 on."""

    name: str
    values: tuple[Any, ...]
    level: int = 0


@dataclass(frozen=True)
class PlanSpace:
    """Rows of numbers, as far as choices say; which of them fit a chip, a kernel knows. Choices of a level stand
    together, the first level first."""

    choices: tuple[Choice, ...]

    @property
    def size(self) -> int:
        """How many plans there are, whether they fit or not."""
        return prod(len(choice.values) for choice in self.choices)

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return 1 + max((choice.level for choice in self.choices), default=-1)

    def fixed(self, levels: int) -> int:
        """How many choices the first levels have."""
        return sum(choice.level < levels for choice in self.choices)

    def values(self, plan: Sequence[int]) -> dict[str, Any]:
        """What a plan says, by the names of choices; of the first ones alone where it has no more numbers."""
        return {c.name: c.values[i] for c, i in zip(self.choices, plan, strict=False)}

    def extended(self, prefixes: Plans, level: int) -> Plans:
        """All rows that begin with one of these, which have no number of a level yet, with those of that level."""
        own = [len(c.values) for c in self.choices if c.level == level]
        more = np.indices(own, dtype=np.int64).reshape(len(own), -1).T if own else np.zeros((1, 0), np.int64)
        left = np.repeat(prefixes, len(more), axis=0)
        return np.concatenate([left, np.tile(more, (len(prefixes), 1))], axis=1)

    def chunks(self, most: int) -> Iterator[Plans]:
        """All plans, in order, at most so many at once."""
        counts = [len(choice.values) for choice in self.choices]
        for begin in range(0, self.size, most):
            numbers = np.arange(begin, min(begin + most, self.size))
            yield np.stack(np.unravel_index(numbers, counts), axis=1) if counts else np.zeros((1, 0), np.int64)

    def drawn(self, count: int, random: np.random.Generator) -> Plans:
        """So many plans by chance."""
        return np.stack([random.integers(0, len(c.values), count) for c in self.choices], axis=1)


def parts_of(extent: int, multiple: int = 1, most: int | None = None) -> tuple[int, ...]:
    """The lengths of equal parts of an axis, rounded up to a multiple where there are several, the longest first: for
    each number of parts the shortest length that makes no more. most: none is longer, unless one multiple is."""
    found: dict[int, None] = {}
    count = 1
    while count <= max(extent, 1):
        length = -(-max(extent, 1) // count)
        length = -(-length // multiple) * multiple
        if most is None or length <= most or length == multiple:
            found[min(length, max(extent, 1))] = None
        parts = -(-extent // length)
        shorter = length - multiple  # the next number of parts that is another length
        if shorter < 1:
            break
        count = max(-(-extent // shorter), parts + 1)
    return tuple(found)
