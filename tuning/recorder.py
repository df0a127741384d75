"""Which kernels a program has, and with which plans: what graph-schedule asks of a source of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from ..api.plans import KnownPlans
from ..dialects.graph import FusionOp
from ..dialects.graph.schedules import Schedule
from ..knowledge.base import KnowledgeBase
from ..knowledge.goals import PLAIN, Goal
from ..machine import Machine
from ..passes.decisions import Decision
from ..passes.forms.fingerprint import fingerprint
from ..passes.known_plans import KnownPlan
from .alone import UNKNOWN, Measured, module_of


@dataclass
class RecordedKernel:
    """A kernel of a program. module: its fusion as the text of a program of its own; taken: the schedule that the
    fusion gets; launches: how many fusions are this kernel; before: what one takes by itself, once that was
    judged."""

    key: str
    module: str
    taken: Schedule
    launches: int = 0
    before: Measured = UNKNOWN


@dataclass
class Recorder:
    """A source of plans: those of `instead`, by fingerprint, and those of a knowledge base; and a record of the kernels
    of a program that are one launch with whole sums, and of its decisions where it explores. decided_so: the options of
    decisions that are taken, by key."""

    target: str
    base: InitVar[KnowledgeBase | None] = None
    goal: InitVar[Goal] = PLAIN
    instead: Mapping[str, Sequence[KnownPlan]] = field(default_factory=dict[str, Sequence[KnownPlan]])
    binding: bool = False
    explores: bool = False
    decided_so: Mapping[str, str] = field(default_factory=dict[str, str])
    kernels: dict[str, RecordedKernel] = field(default_factory=dict[str, RecordedKernel])
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])

    def __post_init__(self, base: KnowledgeBase | None, goal: Goal) -> None:
        self.known = None if base is None else KnownPlans(base, goal)

    def find(self, fusion: FusionOp, machine: Machine) -> Sequence[KnownPlan] | None:
        own = self.instead.get(fingerprint(fusion, machine)) if self.instead else None
        if own is not None:
            return own
        return None if self.known is None else self.known.find(fusion, machine)

    def near(self, fusion: FusionOp, machine: Machine) -> Sequence[Schedule]:
        return () if self.known is None else self.known.near(fusion, machine)

    def refuse(self, fusion: FusionOp, why: str) -> None:
        pass

    @property
    def records(self) -> bool:
        return True

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule], machine: Machine) -> None:
        if len(schedules) != 1 or schedules[0].parts is not None:
            return
        key = fingerprint(fusion, machine)
        if key not in self.kernels:
            self.kernels[key] = RecordedKernel(key, str(module_of(fusion, self.target)), schedules[0])
        self.kernels[key].launches += 1

    def decides(self, machine: Machine) -> bool:
        return self.explores or bool(self.decided_so) or (self.known is not None and self.known.decides(machine))

    def decided(self, decision: Decision) -> str:
        self.decisions[decision.key] = decision
        own = self.decided_so.get(decision.key)
        if own is not None:
            return own
        return decision.default if self.known is None else self.known.decided(decision)
