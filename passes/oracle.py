"""Who judges schedules: the protocol, the analytic bound, and oracles by name.

Passes know no simulator and no device. What does is given to them: `register` an oracle under a name, and give that
name to graph-schedule as its option `oracle`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..dialects.graph.schedules import Schedule
from .errors import PassError

if TYPE_CHECKING:
    from .lower.scheduled import ScheduledKernel


class Oracle(Protocol):
    """Judges schedules of one kernel."""

    def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
        """How long a launch takes with a complete schedule, in microseconds; infinity where it cannot run.

        Only comparisons count: an oracle may leave out what all schedules of a kernel share.
        """
        ...


class AnalyticBound:
    """The estimate in closed form of passes/lower/bound.py."""

    def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
        return kernel.bound(schedule)


BOUND = "bound"
"""The name of the analytic bound, which judges where no other oracle is named."""

_KNOWN: dict[str, Oracle] = {BOUND: AnalyticBound()}


def register(name: str, oracle: Oracle) -> None:
    """Makes an oracle known under a name, in place of one that had it."""
    _KNOWN[name] = oracle


def unregister(name: str) -> None:
    """Forgets an oracle. Raises KeyError where there is none of that name."""
    del _KNOWN[name]


def oracle_of(name: str) -> Oracle:
    """The oracle of a name. Raises PassError."""
    if name not in _KNOWN:
        raise PassError(f"there is no oracle {name!r}; there are {', '.join(_KNOWN)}")
    return _KNOWN[name]
