"""The search for the best plans of one kernel: a task and its outcome as plain data, so that any process may do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from time import monotonic

import numpy as np

from ..dialects import make_context
from ..dialects.graph.schedules import Schedule
from ..dialects.schedule_text import parse_schedule, schedule_text
from ..dialects.text import TextParser
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import Entry
from ..machine import Machine
from ..passes.choose.launches import launches_of
from ..passes.errors import PassError
from ..passes.forms.fingerprint import family
from ..passes.lower.scheduled import ScheduledKernel
from ..passes.lower.spaces import KernelSpace
from .alone import Judge, Question, fusion_of
from .search.exact import Found, Plan, exact
from .search.sampled import SEARCHES, run

EXACT = "exact"
"""The search that proves what it finds."""

FEW = 300
"""Plans of a kernel that other searches look at, unless it is said."""

BETTER = 1 - 1e-9
"""A plan is better whose time is less than so much of that of another one."""


@dataclass(frozen=True)
class KernelTask:
    """What is to be found out of a kernel.

    key: its fingerprint; module: its fusion as a program of its own; taken: its schedule; before: what it
    takes with that, in microseconds, as the judge says; target: the chip; judge: who
    judges the `verify` best plans; search, seed, evaluations, seconds: how the best ones by the price are looked for.
    """

    key: str
    module: str
    taken: str
    before: float
    target: str
    judge: Judge
    verify: int
    search: str = EXACT
    seed: int = 0
    evaluations: int | None = None
    seconds: float | None = None

    def times(self, schedules: Sequence[Schedule]) -> list[float]:
        """Microseconds of launches, as the judge says."""
        return self.judge.microseconds([Question(self.module, schedule_text(s), self.target) for s in schedules])


@dataclass(frozen=True)
class Side:
    """What was found for a launch by itself, or for a stage of one of several (`joined`).

    plan: the best one that was judged; before, after: what it takes, and the one before did, in microseconds; scaled:
    what the price would have to say of it; priced, bound, certified, evaluations, trace: of the search, as `Found` has
    them.
    """

    joined: bool
    plan: str
    before: float
    after: float
    scaled: float
    priced: float = 0.0
    bound: float = 0.0
    certified: bool = False
    evaluations: int = 0
    trace: tuple[tuple[int, float], ...] = ()

    @property
    def gained(self) -> float:
        """Microseconds of a launch."""
        return self.before - self.after if self.after < self.before * BETTER else 0.0


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
        """Microseconds of a launch."""
        return max(side.gained for side in self.sides)


def unchanged(task: KernelTask, name: str, start: float, how: str) -> Outcome:
    """A kernel that is not searched for. start: microseconds until its cores have begun."""
    work = task.before - start
    alone = Side(False, task.taken, task.before, task.before, task.before)
    stage = Side(True, task.taken, work, work, task.before)
    return Outcome(task.key, name, (alone, stage), 0, how)


def known_outcome(key: str, entries: Sequence[Entry], judge: str) -> Outcome | None:
    """What is known of a kernel and need not be searched for again: the proof is there for both sides, by the same
    judge."""
    if len(entries) != 2 or not all(e.certified and e.judge == judge for e in entries):
        return None
    first, second = (
        Side(e.joined, e.plan, e.before, e.microseconds, e.scaled, e.priced, e.bound, True) for e in entries
    )
    return Outcome(key, entries[0].name, (first, second), 0, "known")


def tune_kernel(task: KernelTask) -> Outcome:
    """Searches for the best plans of a kernel. Raises ImportError where a search needs what is not installed."""
    machine, taken = Machine.load(task.target), parse_schedule(task.taken)
    fusion = fusion_of(TextParser(make_context(), task.module).parse_module())
    (plan,) = launches_of(fusion, machine)
    kernel = plan.kernel(plan.stem, None if type(taken) is plan.choices else type(taken)())
    start = kernel.occupancy(taken).launch_microseconds(machine)
    if not isfinite(task.before):
        return unchanged(task, plan.stem, start, "the judge cannot run it")
    try:
        search = _Search(task, kernel, kernel.space(plan.stem), taken, start)
    except PassError as error:
        return unchanged(task, plan.stem, start, f"not searched: {error}")
    end = None if task.seconds is None else monotonic() + task.seconds
    first = search.side(False, None if task.seconds is None else task.seconds / 2)
    second = search.side(True, None if end is None else max(end - monotonic(), 0.0))
    how = f"{task.search}, {task.verify} judged"
    digest, sizes = family(fusion)

    def entry(side: Side) -> Entry:
        return Entry(
            kernel=task.key,
            price=PRICE,
            joined=side.joined,
            plan=side.plan,
            microseconds=side.after,
            before=side.before,
            scaled=side.scaled,
            bound=side.bound,
            priced=side.priced,
            certified=side.certified,
            judge=task.judge.name,
            how=how,
            name=plan.stem,
            machine=machine.name,
            family=digest,
            sizes=sizes,
        )

    return Outcome(task.key, plan.stem, (first, second), search.size, how, (entry(first), entry(second)))


class _Search:
    """The search for the plans of one kernel, whose cores have begun after `start` microseconds."""

    def __init__(
        self,
        task: KernelTask,
        kernel: ScheduledKernel,
        space: KernelSpace,
        taken: Schedule,
        start: float,
    ) -> None:
        self.task, self.kernel, self.space, self.taken = task, kernel, space, taken
        self.before, self.start, self.size = task.before, start, space.space.size
        priced = kernel.bound(taken) - start
        work = task.before - start
        self.scale = priced / work if work > 0 and isfinite(priced) else 1.0

    def side(self, joined: bool, seconds: float | None) -> Side:
        """What is found for a launch by itself, or for a stage of one of several."""
        self.space.joined = joined
        found, drafts = self._searched(seconds)
        starts = [self.kernel.occupancy(s).launch_microseconds(self.kernel.machine) for s in drafts]
        work = [us - each for us, each in zip(self.task.times(drafts), starts, strict=True)]
        times = [us + (0.0 if joined else each) for us, each in zip(work, starts, strict=True)]
        before = self.before - self.start * joined
        best = min(range(len(drafts)), key=times.__getitem__, default=-1)
        plan, after, scaled = self.taken, before, self.start + (self.before - self.start) * self.scale
        if best >= 0 and times[best] < before * BETTER:
            plan, after, scaled = drafts[best], times[best], starts[best] + work[best] * self.scale
        return Side(
            joined,
            schedule_text(plan),
            before,
            after,
            scaled,
            found.microseconds if isfinite(found.microseconds) else 0.0,
            found.bound if isfinite(found.bound) else 0.0,
            found.certified,
            found.evaluations,
            tuple(found.trace),
        )

    def _searched(self, seconds: float | None) -> tuple[Found, list[Schedule]]:
        """What a search finds, and the schedules of the plans whose price is least, without the one that is taken."""
        made: dict[Plan, Schedule | None] = {}
        task, space = self.task, self.space

        def fits(plan: Plan) -> bool:
            made[plan] = space.schedule(plan)
            return made[plan] is not None

        start = [n for n in (space.numbers(self.taken),) if n is not None]
        if task.search == EXACT:
            found = exact(space, fits, start, task.evaluations, seconds, task.verify)
        else:
            found = self._sampled(fits, start)
        drafts = (made[plan] for _, plan in found.best)
        return found, [s for s in drafts if s is not None and s != self.taken]

    def _sampled(self, fits: Callable[[Plan], bool], start: Sequence[Plan]) -> Found:
        """What a search finds that proves nothing."""
        task = self.task

        def judge(plans: np.ndarray) -> list[float]:
            priced = zip(self.space.price(plans).tolist(), plans.tolist(), strict=True)
            return [us if isfinite(us) and fits(tuple(plan)) else inf for us, plan in priced]

        search = SEARCHES[task.search](self.space.space, task.seed, start)
        return run(search, judge, task.evaluations or FEW, keep=task.verify)
