"""Plans from a knowledge base, as graph-schedule asks for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from math import log
from pathlib import Path

from ..dialects.graph import FusionOp
from ..dialects.graph.schedules import Schedule
from ..dialects.schedule_text import parse_schedule
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import DECISIONS, Entry, KnowledgeBase, Plans
from ..knowledge.file_plans import FilePlans
from ..knowledge.goals import LATENCY, PLAIN, Goal
from ..knowledge.shipped import ShippedPlans
from ..machine import Machine
from ..passes.decisions import Decision
from ..passes.forms.fingerprint import family, fingerprint
from ..passes.known_plans import KnownPlan, PlanSource, register, unregister

VARIABLE = "TILEWRIGHT_PLANS"
"""The environment variable that names the knowledge base where options name none."""

MOST_NEAR = 4
"""Plans of kernels of other sizes that are tried, at most."""


class KnownPlans:
    """The plans of a knowledge base that are good for a goal, and, of kernels that it has not, those that Tilewright
    comes with: of the same kernels alone, as plans that are made to fit are not judged by more than their price."""

    def __init__(self, base: KnowledgeBase, goal: Goal = PLAIN, file: FilePlans | None = None) -> None:
        """file: those that came with a program: they count where the knowledge base has none."""
        self.base, self.goal, self.file = base, goal, file
        self.bases: tuple[Plans, ...] = (base, *([] if file is None else [file]), ShippedPlans())
        self.found: dict[str, Sequence[KnownPlan] | None] = {}
        """What was found so far, by the fingerprints of kernels."""
        self.families: dict[str, Sequence[Entry]] = {}
        """The same of kernels that differ in sizes alone."""
        self.decisions: dict[str, str] | None = None
        """The options that are known of decisions, by their keys, once they are read."""

    @property
    def name(self) -> str:
        """What passes call it: another name where it knows something else."""
        file = "" if self.file is None else f"+{self.file.digest}"
        return f"{self.base.path}@{self.base.stamp()}{file} {self.goal.text}"

    @property
    def binding(self) -> bool:
        """Whether plans are good for something else than time, which alone is judged."""
        return not self.goal.plain

    def find(self, fusion: FusionOp, machine: Machine) -> Sequence[KnownPlan] | None:
        key = fingerprint(fusion, machine)
        if key not in self.found:
            self.found[key] = self._read(key)
        return self.found[key]

    def _read(self, key: str) -> Sequence[KnownPlan] | None:
        for base in self.bases:
            entries = base.find(key, PRICE, self.goal.text)
            if not entries:
                continue
            found: list[KnownPlan] = []
            for entry in (e for e in entries if not e.withdrawn):
                try:
                    found.append(KnownPlan(parse_schedule(entry.plan), entry.scaled))
                except ValueError as error:
                    base.warn(f"the plan of {entry.name!r} is left out: {error}")
            return found
        return None

    def near(self, fusion: FusionOp, machine: Machine) -> Sequence[Schedule]:
        own, sizes = family(fusion)
        if own not in self.families:
            self.families[own] = self.base.family(own, PRICE, self.goal.text, machine.name)
        alike = self.families[own]
        others = [e for e in alike if len(e.sizes) == len(sizes) and e.sizes != sizes and not e.withdrawn]

        def far(entry: Entry) -> float:
            return sum(abs(log(max(a, 1) / max(b, 1))) for a, b in zip(entry.sizes, sizes, strict=True))

        found: dict[Schedule, None] = {}
        for entry in sorted(others, key=lambda e: (far(e), e.joined))[:MOST_NEAR]:
            with suppress(ValueError):
                found[parse_schedule(entry.plan)] = None
        return [*found]

    def refuse(self, fusion: FusionOp, why: str) -> None:
        self.base.warn(f"a plan is left out: {why}")

    @property
    def records(self) -> bool:
        return False

    def chosen(self, fusion: FusionOp, schedules: Sequence[Schedule], machine: Machine) -> None:
        pass

    @property
    def explores(self) -> bool:
        return False

    def decides(self, machine: Machine) -> bool:
        return bool(self._known_decisions(machine.name))

    def decided(self, decision: Decision) -> str:
        return (self.decisions or {}).get(decision.key, decision.default)

    def _known_decisions(self, machine: str) -> dict[str, str]:
        if self.decisions is None:
            asked = DECISIONS, PRICE, self.goal.text, machine
            found = [*([] if self.file is None else self.file.family(*asked)), *self.base.family(*asked)]
            self.decisions = {e.kernel: e.plan for e in found if not e.withdrawn}
        return self.decisions

    def entries(self, keys: Iterable[str]) -> list[Entry]:
        """What is known of kernels and decisions, by their fingerprints and keys."""
        found: list[Entry] = []
        for key in sorted(keys):
            found += next((own for base in self.bases if (own := base.find(key, PRICE, self.goal.text))), [])
        return found


def base_of(given: str | Path | None) -> KnowledgeBase | None:
    """The knowledge base that options name, or else the environment, or else the user's own one; None where one of them
    is an empty name."""
    said = os.environ.get(VARIABLE) if given is None else str(given)
    if said is None:
        return KnowledgeBase(own_path())
    return KnowledgeBase(said) if said else None


def own_path() -> Path:
    """Where plans of a user are kept: `tilewright/plans.sqlite` in the folder of XDG_DATA_HOME, as the XDG Base
    Directory Specification has it."""
    said = os.environ.get("XDG_DATA_HOME", "")
    folder = Path(said) if os.path.isabs(said) else Path.home() / ".local" / "share"
    return folder / "tilewright" / "plans.sqlite"


def plans_named(given: str | Path | PlanSource | None, goal: str = LATENCY) -> str:
    """The name by which passes know the plans that options name: another one after each change of the file."""
    source = plans_of(given, goal)
    if source is None:
        return ""
    name = source.name if isinstance(source, KnownPlans) else _name_of(source)
    register(name, source)
    return name


def plans_of(given: str | Path | PlanSource | None, goal: str, file: FilePlans | None = None) -> PlanSource | None:
    """Who knows the plans that options name, with those of a file where these are a knowledge base; None for nobody."""
    if not (given is None or isinstance(given, str | Path)):
        return given
    base = base_of(given)
    return None if base is None else KnownPlans(base, Goal.parse(goal), file)


def forget(source: PlanSource) -> None:
    """Has passes know a source no longer that options named."""
    with suppress(KeyError):
        unregister(_name_of(source))


def _name_of(source: PlanSource) -> str:
    return f"{type(source).__name__} {id(source):x}"
