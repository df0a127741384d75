"""All plans of a kernel: which numbers they have (kernels/space.py), what they cost, and how little they may cost.

`KernelSpace` is what a search is given (tuning/). Kernels that declare one say so with `ScheduledKernel.space`; of the
others it has the schedules that graph-schedule judges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from math import log, prod
from typing import TYPE_CHECKING

import numpy as np

from ...dialects.dtypes import size
from ...dialects.graph.schedules import Schedule
from ...kernels.space import Box, Choice, Plans, PlanSpace
from ..errors import PassError

if TYPE_CHECKING:
    from .scheduled import ScheduledKernel


CORES = "cores"
"""The choice that says how many cores start, or how many along each axis."""


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


def nearest(values: Sequence[int], wanted: float) -> int:
    """The number of the value that is the smallest multiple, or part, of what is wanted."""
    return min(range(len(values)), key=lambda i: abs(log(max(values[i], 1) / max(wanted, 1))))


class ListedSpace(KernelSpace):
    """The schedules that graph-schedule judges, one number each."""

    def __init__(self, kernel: ScheduledKernel, name: str) -> None:
        """Raises PassError where the kernel has none."""
        self.kernel, self.name = kernel, name
        self.tried = list(dict.fromkeys(kernel.candidates(name)))
        self.space = PlanSpace((Choice("schedule", tuple(range(len(self.tried)))),))

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
