"""Who judges schedules: the protocol, the analytic bound, and oracles by name.

Passes know no simulator and no device. What does is given to them: `register` an oracle under a name, and give that
name to graph-schedule as its option `oracle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

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


@runtime_checkable
class OracleOfMany(Oracle, Protocol):
    """Judges many schedules of a kernel together in less time than one by one."""

    def each(self, kernel: ScheduledKernel, schedules: Sequence[Schedule]) -> Sequence[float]:
        """What `microseconds` says of each."""
        ...


def judged(oracle: Oracle, kernel: ScheduledKernel, schedules: Sequence[Schedule]) -> Sequence[float]:
    """What an oracle says of each of some schedules."""
    if isinstance(oracle, OracleOfMany):
        return oracle.each(kernel, schedules)
    return [oracle.microseconds(kernel, schedule) for schedule in schedules]


class AnalyticBound:
    """The price in closed form of kernels/price.py."""

    def microseconds(self, kernel: ScheduledKernel, schedule: Schedule) -> float:
        return kernel.bound(schedule)

    def each(self, kernel: ScheduledKernel, schedules: Sequence[Schedule]) -> Sequence[float]:
        return kernel.price_many(schedules).tolist()


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
