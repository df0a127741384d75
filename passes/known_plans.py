"""Plans that are known before they are searched for: the protocol, and sources of them by name.

Passes know no file and no search. What does is given to them: `register` a source under a name, and give that name to
graph-schedule as its option `plans`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from ..dialects.graph import FusionOp
from ..dialects.graph.schedules import Schedule
from ..machine import Machine
from .decisions import Decision
from .errors import PassError


class KnownPlan(NamedTuple):
    """A complete schedule of a fusion that is one launch, and what the launch takes with it by itself, in microseconds
    as the price has them: it is judged beside the schedules that graph-schedule tries."""

    schedule: Schedule
    microseconds: float


@runtime_checkable
class PlanSource(Protocol):
    """Knows plans of fusions. binding: whether what it knows of a kernel is taken, and not judged beside what
    graph-schedule tries: it may be good for something else than time."""

    @property
    def binding(self) -> bool: ...

    def find(self, fusion: FusionOp, machine: Machine) -> Sequence[KnownPlan] | None:
        """What is known of a fusion, as graph-schedule has it before it looks for a schedule: no plans where none is
        worth it, and None where nothing is known."""
        ...

    def near(self, fusion: FusionOp, machine: Machine) -> Sequence[Schedule]:
        """Schedules that are known of fusions which differ from this one in sizes alone, the nearest ones."""
        ...

    def refuse(self, fusion: FusionOp, why: str) -> None:
        """Is told that what it found cannot be obeyed, and why, as a sentence."""
        ...

    @property
    def records(self) -> bool:
        """Whether it is to be told which schedules fusions get."""
        ...

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule], machine: Machine) -> None:
        """Is told which schedules a fusion gets, one for each launch, where it records them."""
        ...

    def decides(self, machine: Machine) -> bool:
        """Whether it is to be asked for decisions."""
        ...

    @property
    def explores(self) -> bool:
        """Whether decisions have options, too, that graph-schedule does not look at by itself."""
        ...

    def decided(self, decision: Decision) -> str:
        """The name of the option to take: the default where nothing is known. Where the option is none of those of the
        decision, and graph-schedule does not know it either, the default is taken."""
        ...


_KNOWN: dict[str, PlanSource] = {}


def register(name: str, source: PlanSource) -> None:
    """Makes a source known under a name, in place of one that had it."""
    _KNOWN[name] = source


def unregister(name: str) -> None:
    """Forgets a source. Raises KeyError where there is none of that name."""
    del _KNOWN[name]


def source_of(name: str) -> PlanSource | None:
    """The source of a name; None for the empty one. Raises PassError."""
    if not name:
        return None
    if name not in _KNOWN:
        raise PassError(f"there is no source of plans {name!r}; there are {', '.join(_KNOWN) or 'none'}")
    return _KNOWN[name]
