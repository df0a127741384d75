"""All plans of a kernel: which numbers they have (kernels/space.py), what they cost, and how little they may cost.

`KernelSpace` is what a search is given (tuning/). Kernels that declare one say so with `ScheduledKernel.space`; of the
others it has the schedules that graph-schedule judges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from math import log, prod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...dialects.dtypes import size
from ...dialects.graph import AttentionSchedule, RowAttentionSchedule
from ...dialects.graph.schedules import Schedule
from ...kernels.builder import divide_grid, shared_tiles
from ...kernels.space import Box, PlanNumber, Plans, PlanSpace
from ..errors import PassError

if TYPE_CHECKING:
    from .scheduled import ScheduledKernel


CORES = "cores"
"""The choice that says how many cores start, or how many along each axis."""

FEW_NEAR, MOST_NEAR = 2, 2000
"""Values of a choice that are tried for a plan that is like one of other sizes, besides the first and the last one, and
plans that are."""

S = TypeVar("S", AttentionSchedule, RowAttentionSchedule)


class KernelSpace(ABC):
    """The plans of one kernel. Numbers say nothing of room on chip: `schedule` does.

    joined: whether the kernel is a stage of a launch of several: then its price is that of its work alone, without the
    start of the cores, which others need as well.
    """

    space: PlanSpace
    joined: bool = False

    @abstractmethod
    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        """The complete schedule of a plan; None where it does not fit, or is none."""

    @abstractmethod
    def price(self, plans: Plans) -> np.ndarray:
        """Microseconds of plans, whether they fit or not; infinity for those that are none."""

    def valid(self, plans: Plans) -> np.ndarray:
        """Which rows are plans at all, as far as that is known without a price: of others none need be asked for."""
        return np.ones(len(plans), bool)

    def bound(self, box: Box) -> float:
        """Microseconds that no plan of a box takes less than; infinity where none fits, 0 where nothing is known."""
        return 0.0

    def parts(self, box: Box) -> Sequence[Box]:
        """Boxes that have all plans of one together; of one plan the one that looks best, where that is known."""
        return self.space.halves(box)

    @property
    def core_counts(self) -> tuple[int, np.ndarray]:
        """The number of the choice that says how many cores start, and how many these are for each of its values."""
        at = next(i for i, choice in enumerate(self.space.choices) if choice.name == CORES)
        return at, np.array([prod(np.atleast_1d(v)) for v in self.space.choices[at].values], np.int64)

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        """The plan of a schedule; None where the space has it not."""
        return None

    def near(self, schedule: Schedule) -> tuple[int, ...] | None:
        """The plan that is most like a schedule of a kernel that differs in sizes alone; None where none is."""
        return None


class DividedSpace(KernelSpace):
    """A space whose last choice says how many cores there are: a box is halved until nothing else is open, and then
    taken apart around the number of cores that looks best."""

    def distinct_heads(self, plans: Plans) -> tuple[Plans, np.ndarray]:
        """All numbers of plans but those of cores, as rows that are each there once; and which row each plan has."""
        sizes = [len(choice.values) for choice in self.space.choices[:-1]]
        if not sizes:
            return np.zeros((1, 0), np.int64), np.zeros(len(plans), np.int64)
        found, which = np.unique(np.ravel_multi_index(tuple(plans[:, :-1].T), sizes), return_inverse=True)
        return np.stack(np.unravel_index(found, sizes), axis=1), which.ravel()

    def by_head(self, plans: Plans, of: Callable[[Sequence[int]], np.ndarray]) -> np.ndarray:
        """What plans have of what a head has, for each number of cores."""
        heads, which = self.distinct_heads(plans)
        found = np.array([of(head) for head in heads.tolist()])
        return found.reshape(len(heads), len(self.space.choices[-1].values))[which, plans[:, -1]]

    @abstractmethod
    def by_cores(self, box: Box) -> np.ndarray | None:
        """Microseconds that no plan of a box takes less than, for each of its numbers of cores: an empty array where no
        plan fits, and None where nothing is known."""

    @abstractmethod
    def divides(self, plan: Sequence[int]) -> bool:
        """Whether a plan is one: its cores all have work, and fewer would not do the same."""

    def bound(self, box: Box) -> float:
        found = self.by_cores(box)
        return 0.0 if found is None else float(np.min(found, initial=np.inf))

    def parts(self, box: Box) -> Sequence[Box]:
        low, high = box
        if low[:-1] != high[:-1]:
            return self.space.halves(box)
        found = self.by_cores(box)
        assert found is not None
        for i in np.argsort(found, kind="stable").tolist():
            if np.isfinite(found[i]) and self.divides((*low[:-1], low[-1] + i)):
                return self.space.around(box, len(low) - 1, low[-1] + i)
        return []


class HeadedSpace(DividedSpace, Generic[S]):
    """A space of plans whose cores share tiles as evenly as these can be. All numbers but that of cores are a plan's
    head: a schedule without a grid."""

    def __init__(self, kernel: ScheduledKernel, name: str, choices: Sequence[PlanNumber], most: int) -> None:
        """choices: all but that of cores, the last one; most: how many cores there are."""
        self.kernel, self.name = kernel, name
        self.cores = tuple(range(1, most + 1))
        last = max(c.level for c in choices) + 1
        self.space = PlanSpace((*choices, PlanNumber(CORES, self.cores, last)))
        self.heads: dict[tuple[int, ...], S | None] = {}
        """Schedules without a grid, by the numbers of heads, as far as known."""
        self.used: dict[tuple[int, ...], np.ndarray] = {}
        """Numbers of cores that all have work, for so many tiles along each axis, as far as known."""
        self.grids: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        """Cores along each axis for so many tiles along each, as far as known."""
        self.starts: dict[int, float] = {}
        """Microseconds until so many cores have begun, as far as known."""
        self.priced: dict[tuple[tuple[int, ...], bool], np.ndarray] = {}
        """Microseconds on each number of cores, by the numbers of heads and whether they are joined, as far as
        known."""

    @abstractmethod
    def headed(self, *values: Any) -> S | None:
        """The schedule of these values of the choices, before its cores are known; None where there is none."""

    @abstractmethod
    def counts(self, head: S) -> Sequence[int]:
        """Tiles along each axis that cores share."""

    @abstractmethod
    def said(self, schedule: Schedule) -> Sequence[int] | None:
        """What a schedule says of each choice; None where it is one of another kernel."""

    # -- from numbers to schedules -----------------------------------------------------------------------------

    def head(self, numbers: Sequence[int]) -> S | None:
        """The schedule of a plan before its cores are known; None where it is none."""
        key = tuple(numbers)
        if key not in self.heads:
            self.heads[key] = self.headed(*(c.values[i] for c, i in zip(self.space.choices, key, strict=False)))
        return self.heads[key]

    def able(self, numbers: Sequence[int]) -> np.ndarray:
        """On which numbers of cores a head is a plan: all cores have work, and fewer would not do the same."""
        head = self.head(numbers)
        if head is None:
            return np.zeros(len(self.cores), bool)
        counts = tuple(self.counts(head))
        if counts not in self.used:
            self.used[counts] = shared_tiles(counts, len(self.cores))[1] == self.cores
        return self.used[counts]

    def of(self, plan: Sequence[int]) -> S | None:
        """The schedule of a plan, whether it fits or not; None where it is none."""
        head = self.head(plan[:-1])
        if head is None or not self.divides(plan):
            return None
        key = tuple(self.counts(head)), self.cores[plan[-1]]
        if key not in self.grids:
            self.grids[key] = tuple(n for n, _ in divide_grid(*key))
        return replace(head, grid=self.grids[key])

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        found = self.of(plan)
        return None if found is None else checked(self.kernel, self.name, found)

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        values, choices = self.said(schedule), self.space.choices
        if values is None or any(v not in c.values for c, v in zip(choices, values, strict=True)):
            return None
        found = tuple(c.values.index(v) for c, v in zip(choices, values, strict=True))
        return found if self.of(found) == schedule else None

    def near(self, schedule: Schedule) -> tuple[int, ...] | None:
        wanted = self.said(schedule)
        if wanted is None:
            return None
        for head in islice(self._heads_near(wanted), MOST_NEAR):
            if able := np.flatnonzero(self.able(head)).tolist():
                return (*head, able[nearest([self.cores[i] for i in able], wanted[-1])])
        return None

    def _heads_near(self, wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Heads with values that are like these, those that are most like them first."""
        tried: list[list[tuple[float, int]]] = []
        for choice, n in zip(self.space.choices[:-1], wanted, strict=False):
            far = sorted((apart(value, n), i) for i, value in enumerate(choice.values))
            ends = (each for each in far[FEW_NEAR:] if each[1] in (0, len(far) - 1))
            tried.append([*far[:FEW_NEAR], *ends])
        heads = sorted(product(*tried), key=lambda head: sum(distance for distance, _ in head))
        yield from (tuple(i for _, i in head) for head in heads)

    # -- prices ------------------------------------------------------------------------------------------------

    def valid(self, plans: Plans) -> np.ndarray:
        return self.by_head(plans, self.able)

    def price(self, plans: Plans) -> np.ndarray:
        found = np.full(len(plans), np.inf)
        schedules = {i: s for i, plan in enumerate(plans.tolist()) if (s := self.of(plan)) is not None}
        if schedules:
            us = self.kernel.price_many([*schedules.values()])
            if self.joined:
                us = us - np.array([self._start(s) for s in schedules.values()])
            found[[*schedules]] = us
        return found

    def _start(self, schedule: S) -> float:
        """Microseconds until its cores have begun."""
        cores = size(schedule.grid or ())
        if cores not in self.starts:
            self.starts[cores] = self.kernel.occupancy(schedule).launch_microseconds(self.kernel.machine)
        return self.starts[cores]

    def divides(self, plan: Sequence[int]) -> bool:
        return bool(self.able(plan[:-1])[plan[-1]])

    def by_cores(self, box: Box) -> np.ndarray | None:
        """The least of all heads of a box, which are few."""
        (*low, first), (*high, last) = box
        heads = product(*(range(a, b + 1) for a, b in zip(low, high, strict=True)))
        found = [self._on_cores(head) for head in heads if self.head(head) is not None]
        return np.min(found, axis=0)[first : last + 1] if found else np.zeros(0)

    def _on_cores(self, head: tuple[int, ...]) -> np.ndarray:
        """Microseconds of the plans with a head, by how many cores work."""
        key = head, self.joined
        if key not in self.priced:
            self.priced[key] = self.price(np.array([(*head, i) for i, _ in enumerate(self.cores)], np.int64))
        return self.priced[key]


def apart(value: int, wanted: float) -> float:
    """How far a value is from a wanted one, as the logarithm of the one over the other."""
    return abs(log(max(value, 1) / max(wanted, 1)))


def nearest(values: Sequence[int], wanted: float) -> int:
    """The number of the value that is the smallest multiple, or part, of what is wanted."""
    return min(range(len(values)), key=lambda i: apart(values[i], wanted))


class ListedSpace(KernelSpace):
    """The schedules that graph-schedule judges, one number each."""

    def __init__(self, kernel: ScheduledKernel, name: str) -> None:
        """Raises PassError where the kernel has none."""
        self.kernel, self.name = kernel, name
        self.tried = list(dict.fromkeys(kernel.candidates(name)))
        self.space = PlanSpace((PlanNumber("schedule", tuple(range(len(self.tried)))),))

    def schedule(self, plan: Sequence[int]) -> Schedule | None:
        return checked(self.kernel, self.name, self.tried[plan[0]])

    def price(self, plans: Plans) -> np.ndarray:
        tried = [self.tried[i] for i in plans[:, 0].tolist()]
        us = np.array(self.kernel.price_many(tried), float)
        if not self.joined:
            return us
        machine = self.kernel.machine
        return us - np.array([self.kernel.occupancy(s).launch_microseconds(machine) for s in tried])

    @property
    def core_counts(self) -> tuple[int, np.ndarray]:
        return 0, np.array([size(s.grid or ()) for s in self.tried], np.int64)

    def numbers(self, schedule: Schedule) -> tuple[int, ...] | None:
        found = (i for i, each in enumerate(self.tried) if schedule == self.kernel.completed(self.name, each))
        number = next(found, None)
        return None if number is None else (number,)


def checked(kernel: ScheduledKernel, name: str, schedule: Schedule) -> Schedule | None:
    """A schedule with all that a kernel needs of it; None where it cannot be obeyed."""
    with suppress(PassError):
        complete = kernel.completed(name, schedule)
        kernel.check(name, complete)
        return complete
    return None
