"""The plans of a kernel as plain data: which numbers a plan has, and the values that each may take.

A plan is a row of numbers: of each choice, in order, which of its values it has. Values that are near each other have
numbers that are, so that plans side by side take similar times. Choices stand in levels, from what decides most of a
kernel's time to what decides least: a search halves those of the first level first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Plans = np.ndarray
"""Plans, one a row: for each choice the number of its value, as int64 [plans, choices]."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Plans side by side: for each choice the first and the last number of those that they have."""


def plans_in(box: Box) -> int:
    """How many plans a box has."""
    return prod(b - a + 1 for a, b in zip(*box, strict=True))


@dataclass(frozen=True)
class PlanNumber:
    """One number of a plan. level: the order in which a search halves it, from 0 on."""

    name: str
    values: tuple[Any, ...]
    level: int = 0


@dataclass(frozen=True)
class PlanSpace:
    """Rows of numbers, as far as choices say; which of them fit a chip, a kernel knows. Choices of a level stand
    together, the first level first."""

    choices: tuple[PlanNumber, ...]

    @property
    def size(self) -> int:
        """How many plans there are, whether they fit or not."""
        return prod(len(choice.values) for choice in self.choices)

    @property
    def whole(self) -> Box:
        """All plans."""
        return (0,) * len(self.choices), tuple(len(c.values) - 1 for c in self.choices)

    def values(self, plan: Sequence[int]) -> dict[str, Any]:
        """What a plan says, by the names of choices; of the first ones alone where it has no more numbers."""
        return {c.name: c.values[i] for c, i in zip(self.choices, plan, strict=False)}

    def halves(self, box: Box) -> tuple[Box, Box]:
        """A box of several plans in two: along the choice of its first level with several numbers that has most."""
        low, high = box
        several = [i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a < b]
        first = min(self.choices[i].level for i in several)
        at = max((i for i in several if self.choices[i].level == first), key=lambda i: high[i] - low[i])
        middle = (low[at] + high[at]) // 2
        left = (*high[:at], middle, *high[at + 1 :])
        right = (*low[:at], middle + 1, *low[at + 1 :])
        return (low, left), (right, high)

    @staticmethod
    def around(box: Box, choice: int, number: int) -> list[Box]:
        """A box in those of which a choice has a number, fewer, and more."""
        low, high = box

        def of(first: int, last: int) -> Box:
            return (*low[:choice], first, *low[choice + 1 :]), (*high[:choice], last, *high[choice + 1 :])

        sides = ((number, number), (low[choice], number - 1), (number + 1, high[choice]))
        return [of(first, last) for first, last in sides if first <= last]

    @staticmethod
    def plans(box: Box) -> Plans:
        """The plans of a box."""
        low, high = (np.array(side, np.int64) for side in box)
        return np.indices(tuple(high - low + 1), dtype=np.int64).reshape(len(low), plans_in(box)).T + low

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
