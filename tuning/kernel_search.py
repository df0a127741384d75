"""The search for the best plans of one kernel: a task and its outcome as plain data, so that any process may do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from math import inf, isfinite
from time import monotonic

import numpy as np

from ..dialects import make_context
from ..dialects.graph.schedules import Schedule
from ..dialects.schedule_text import parse_schedule, schedule_text
from ..dialects.text import TextParser
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import Entry
from ..knowledge.goals import PLAIN, Goal
from ..machine import Machine
from ..passes.choose.launches import launches_of
from ..passes.errors import PassError
from ..passes.forms.fingerprint import family
from ..passes.lower.scheduled import ScheduledKernel
from ..passes.lower.spaces import KernelSpace
from ..support.fronts import unbeaten
from .adjusted import AdjustedSpace
from .alone import Judge, LaunchQuestion, Measured, fusion_of
from .search.exact import Found, Plan, exact
from .search.sampled import SEARCHES, run

EXACT = "exact"
"""The search that proves what it finds."""

FEW = 300
"""Plans of a kernel that other searches look at, unless it is said."""

BETTER = 1 - 1e-9
"""A plan is better whose time is less than so much of that of another one."""


FEWER_CORES = 12
"""How often a search is begun again with fewer cores, at most."""


SEARCHED = 0.6
"""The share of its time that the search for plans has: the others are judged in what is left."""

TOGETHER = 6
"""Plans that are judged together: the first ones are whatever time there is."""

FEW_BEGIN = 3
"""Plans on fewer cores that a search begins with."""


@dataclass(frozen=True)
class Asked:
    """How the plans of kernels are looked for.

    judge: who judges the `verify` best plans; goal: what plans are to be good for; fewer: whether plans on fewer cores
    are judged, too, where the goal needs none of them; search, seed, evaluations: how the best ones by the price are
    looked for.
    """

    judge: Judge
    verify: int
    goal: Goal = PLAIN
    fewer: bool = False
    search: str = EXACT
    seed: int = 0
    evaluations: int | None = None


@dataclass(frozen=True)
class KernelTask:
    """What is to be found out of a kernel.

    key: its fingerprint; module: its fusion as a program of its own; taken: its schedule; before: what it takes with
    that, as the judge says; target: the chip; asked: how plans are looked for; slower: how many times its work takes
    what the price says, as was measured; seconds: how long its search takes at most; known: plans that were found
    before, as text, and are judged beside those of the search.
    """

    key: str
    module: str
    taken: str
    before: Measured
    target: str
    asked: Asked
    slower: float = 1.0
    seconds: float | None = None
    known: tuple[str, ...] = ()

    def measured(self, schedules: Sequence[Schedule]) -> list[Measured]:
        """What launches take, as the judge says."""
        return self.asked.judge.measure([LaunchQuestion(self.module, schedule_text(s), self.target) for s in schedules])


@dataclass(frozen=True)
class Judged:
    """A plan as text, and what it takes: of a stage without the start of its cores; value: what its goal makes of
    that, infinity for one that is not good for it."""

    plan: str
    measured: Measured
    value: float

    @property
    def amounts(self) -> tuple[float, float | None]:
        """Microseconds and joules."""
        return self.measured.microseconds, self.measured.joules


@dataclass(frozen=True)
class Side:
    """What was found for a launch by itself, or for a stage of one of several (`joined`).

    before, best: the plan that was there, and the best one that was judged, which may be the same; scaled: what the
    price would have to say of that; priced, bound, certified, evaluations, trace: of the search, as `Found` has
    them; front: of all plans that were judged those of which no other one takes less time and less energy, the
    fastest first; least_watts: what the coolest of them draws, infinity where nobody says.
    """

    joined: bool
    before: Judged
    best: Judged
    scaled: float
    priced: float = 0.0
    bound: float = 0.0
    certified: bool = False
    evaluations: int = 0
    trace: tuple[tuple[int, float], ...] = ()
    front: tuple[Judged, ...] = ()
    least_watts: float = inf

    @property
    def gained(self) -> float:
        """How much less the best one is worth than the one before, as a share of it."""
        if self.best.value >= self.before.value * BETTER or not isfinite(self.best.value):
            return 0.0
        return 1.0 if self.before.value == inf else 1 - self.best.value / self.before.value


@dataclass(frozen=True)
class Outcome:
    """What was found of a kernel. plans: how many its space has; how: how they were looked for, or why not; entries:
    what is to be kept of it."""

    key: str
    name: str
    sides: tuple[Side, Side]
    plans: int
    how: str
    entries: tuple[Entry, ...] = field(default=())

    @property
    def gained(self) -> float:
        """How much less of a launch, as a share."""
        return max(side.gained for side in self.sides)


def known_outcome(key: str, entries: Sequence[Entry], judge: str) -> Outcome | None:
    """What is known of a kernel and need not be searched for again: the proof is there for both sides, by the same
    judge."""
    if len(entries) != 2 or not all(e.certified and e.judge == judge for e in entries):
        return None
    first, second = (
        Side(
            e.joined,
            Judged("", Measured(e.before), e.before),
            Judged(e.plan, Measured(e.microseconds, e.joules or None), e.value),
            e.scaled,
            e.priced,
            e.bound,
            True,
        )
        for e in entries
    )
    return Outcome(key, entries[0].name, (first, second), 0, "known")


def tune_kernel(task: KernelTask) -> Outcome:
    """Searches for the best plans of a kernel. Raises ImportError where a search needs what is not installed."""
    machine, taken = Machine.load(task.target), parse_schedule(task.taken)
    fusion = fusion_of(TextParser(make_context(), task.module).parse_module())
    (plan,) = launches_of(fusion, machine)
    kernel = plan.kernel(plan.stem, None if type(taken) is plan.choices else type(taken)())
    search = _Search(task, kernel, plan.stem, taken)
    how = ": ".join(["the judge cannot run it", *filter(None, [task.before.why])])
    if isfinite(task.before.microseconds):
        try:
            search.space = kernel.space(plan.stem)
            how = f"{task.asked.search}, {task.asked.verify} judged"
        except PassError as error:
            how = f"not searched: {error}"
    if search.space is None:
        return Outcome(task.key, plan.stem, (search.unchanged(False), search.unchanged(True)), 0, how)
    end = None if task.seconds is None else monotonic() + task.seconds
    first = search.side(False, None if task.seconds is None else task.seconds / 2)
    second = search.side(True, None if end is None else max(end - monotonic(), 0.0))
    digest, sizes = family(fusion)

    def entry(side: Side) -> Entry:
        return Entry(
            kernel=task.key,
            price=PRICE,
            goal=task.asked.goal.text,
            joined=side.joined,
            plan=side.best.plan,
            microseconds=side.best.measured.microseconds,
            joules=side.best.measured.joules or 0.0,
            before=side.before.measured.microseconds,
            scaled=side.scaled,
            bound=side.bound,
            priced=side.priced,
            certified=side.certified,
            withdrawn=False,
            judge=task.asked.judge.name,
            how=how,
            name=plan.stem,
            machine=machine.name,
            family=digest,
            sizes=sizes,
        )

    good = [side for side in (first, second) if isfinite(side.best.value)]
    return Outcome(task.key, plan.stem, (first, second), search.space.space.size, how, tuple(map(entry, good)))


class _Search:
    """The search for the plans of one kernel."""

    space: KernelSpace | None = None

    def __init__(self, task: KernelTask, kernel: ScheduledKernel, name: str, taken: Schedule) -> None:
        self.task, self.kernel, self.name, self.taken, self.machine = task, kernel, name, taken, kernel.machine
        start = self._start(taken)
        work = (task.before.microseconds - start) / task.slower
        priced = kernel.bound(taken) - start
        self.scale = priced / work if work > 0 and isfinite(priced) else 1.0
        """The price of work as a share of what the judge says of it."""

    def _start(self, schedule: Schedule) -> float:
        """Microseconds until the cores have begun."""
        return self.kernel.occupancy(schedule).launch_microseconds(self.machine)

    def _judged(self, joined: bool, schedule: Schedule, measured: Measured) -> Judged:
        """What a plan is worth, of which the judge says what a launch takes."""
        us, joules, start = measured.microseconds, measured.joules, self._start(schedule)
        work = us - start
        if joined:
            # what the chip draws while cores start is no part of the stage
            joules = None if joules is None else joules - self.machine.energy.idle_watts * start * 1e-6
            us = work
        return Judged(schedule_text(schedule), Measured(us, joules), self.task.asked.goal.value(us, joules))

    def unchanged(self, joined: bool) -> Side:
        """The plan that is there, of a kernel that is not searched for."""
        taken = self._judged(joined, self.taken, self.task.before)
        return Side(joined, taken, taken, self.task.before.microseconds, front=(taken,))

    def side(self, joined: bool, seconds: float | None) -> Side:
        """What is found for a launch by itself, or for a stage of one of several."""
        assert self.space is not None
        self.space.joined = joined
        taken = self._judged(joined, self.taken, self.task.before)
        judged: dict[Judged, Schedule] = {taken: self.taken}
        end = None if seconds is None else monotonic() + seconds
        first, by_time, evaluations = None, {taken}, 0
        most = self._fewer(judged, None) if taken.value == inf else None
        for _ in range(1 + FEWER_CORES):
            left = None if end is None else max(end - monotonic(), 0.0) * (SEARCHED if self._is_last(most) else 1 / 3)
            found, drafts = self._searched(AdjustedSpace(self.space, self.task.slower, most), left)
            first, evaluations = first or found, evaluations + found.evaluations
            for begin in range(0, len(drafts), TOGETHER):
                some = drafts[begin : begin + TOGETHER]
                for schedule, measured in zip(some, self.task.measured(some), strict=True):
                    judged.setdefault(self._judged(joined, schedule, measured), schedule)
                if end is not None and monotonic() >= end:
                    break
            by_time = by_time if most else {*judged}
            most = self._fewer(judged, most)
            if most is None or (end is not None and monotonic() >= end):
                break
        assert first is not None
        best = min(judged, key=lambda each: each.value)
        if best.value >= taken.value * BETTER:
            best = taken
        return Side(
            joined,
            taken,
            best,
            self._scaled(joined, best, judged[best]),
            first.microseconds if isfinite(first.microseconds) else 0.0,
            first.bound if isfinite(first.bound) else 0.0,
            first.certified and not self.task.asked.goal.energy_share and best in by_time,
            evaluations,
            tuple(first.trace),
            _front(judged),
            min((j.measured.watts for j in judged), default=inf),
        )

    def _scaled(self, joined: bool, best: Judged, schedule: Schedule) -> float:
        """What the price would have to say of a launch with the best plan. Where more than time decides it is what it
        says of the plan that was there: what else the program does is to stay as it is."""
        if not self.task.asked.goal.plain:
            return self.kernel.bound(self.taken)
        start = self._start(schedule)
        work = best.measured.microseconds - (0.0 if joined else start)
        return start + work / self.task.slower * self.scale

    def _is_last(self, most: int | None) -> bool:
        """Whether no other plans are looked at behind those that start so many cores at most."""
        return most == 1 or (self.task.asked.goal.plain and not self.task.asked.fewer)

    def _fewer(self, judged: Mapping[Judged, Schedule], most: int | None) -> int | None:
        """How many cores plans start at most that are looked at next; None where no others are."""
        goal, idle = self.task.asked.goal, self.machine.energy.idle_watts
        assert self.space is not None
        now = most or int(max(self.space.core_counts[1]))
        if self._is_last(now):
            return None
        if goal.energy_share or self.task.asked.fewer:
            return now // 2
        coolest = min((j.measured.watts for j in judged), default=inf)
        if goal.watts is None or coolest == inf or any(isfinite(j.value) for j in judged):
            return None
        # what a core draws is as good as the same however many there are
        share = (goal.watts - idle) / max(coolest - idle, 1e-9)
        return max(1, min(now - 1, int(now * share)))

    def _searched(self, space: AdjustedSpace, seconds: float | None) -> tuple[Found, list[Schedule]]:
        """What a search finds, and the schedules of the plans whose price is least, without the one that is taken."""
        made: dict[Plan, Schedule | None] = {}
        task, inner = self.task, space.inner

        def fits(plan: Plan) -> bool:
            made[plan] = inner.schedule(plan)
            return made[plan] is not None

        start = self._begins(space)
        if task.asked.search == EXACT:
            found = exact(space, fits, start, task.asked.evaluations, seconds, task.asked.verify)
        else:
            found = self._sampled(space, fits, start)
        drafts = [made[plan] for _, plan in found.best]
        if space.most_cores is None:
            drafts += self._known()
        return found, [s for s in dict.fromkeys(drafts) if s is not None and s != self.taken]

    def _known(self) -> Iterator[Schedule]:
        """Plans that were found before, as far as they can be obeyed: a knowledge base may say anything."""
        for text in self.task.known:
            with suppress(ValueError, PassError):
                schedule = parse_schedule(text)
                if type(schedule) is type(self.taken):
                    self.kernel.check(self.name, schedule)
                    yield schedule

    def _begins(self, space: AdjustedSpace) -> list[Plan]:
        """Plans that a search begins with: the one that is there, and where that starts too many cores, the same tiles
        on fewer."""
        numbers = space.inner.numbers(self.taken)
        at, counts = space.inner.core_counts
        if space.most_cores is not None and numbers is None:
            numbers = space.inner.near(self.taken)
        if numbers is None:
            return []
        if space.most_cores is None or counts[numbers[at]] <= space.most_cores:
            return [numbers]
        able = np.flatnonzero(counts <= space.most_cores)
        rows = np.array([(*numbers[:at], i, *numbers[at + 1 :]) for i in able.tolist()], np.int64)
        rows = rows[space.valid(rows)] if len(rows) else rows
        order = np.argsort(space.price(rows), kind="stable") if len(rows) else ()
        return [tuple(rows[i].tolist()) for i in order[:FEW_BEGIN]]

    def _sampled(self, space: AdjustedSpace, fits: Callable[[Plan], bool], start: Sequence[Plan]) -> Found:
        """What a search finds that proves nothing."""
        task = self.task

        def judge(plans: np.ndarray) -> list[float]:
            priced = zip(space.price(plans).tolist(), plans.tolist(), strict=True)
            return [us if isfinite(us) and fits(tuple(plan)) else inf for us, plan in priced]

        search = SEARCHES[task.asked.search](space.space, task.asked.seed, start)
        return run(search, judge, task.asked.evaluations or FEW, keep=task.asked.verify)


def _front(judged: Iterable[Judged]) -> tuple[Judged, ...]:
    """Those of which no other one takes less time and less energy, of equal ones one."""
    known: dict[tuple[float, float], Judged] = {}
    for each in judged:
        us, joules = each.amounts
        if isfinite(us) and joules is not None:
            known.setdefault((us, joules), each)
    ordered = sorted(known)
    return tuple(known[amounts] for amounts in compress(ordered, unbeaten(ordered)))
