"""`tw.tune`: the best plan of each kernel of a program, proven where it can be, and kept.

The price drafts and a judge verifies: a search over all plans of a kernel finds the few whose price is least, with a
proof where its budget is enough, and the judge (the simulator, unless another one is given) says what these take. The
program is compiled again with what was found, and keeps of it what makes the whole program faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from ..api.compiling import compile as compile_program
from ..api.options import Options
from ..api.program import CompileError, Program
from ..api.sizes.dynamic import DynamicProgram
from ..dialects.graph.schedules import Schedule
from ..dialects.schedule_text import parse_schedule, schedule_text
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import Entry, KnowledgeBase
from ..machine import DEFAULT_TARGET, Machine
from ..passes.choose.launches import launches_of
from ..passes.errors import PassError
from ..passes.forms.fingerprint import family
from ..passes.known_plans import KnownPlan
from ..passes.lower.spaces import KernelSpace
from ..support.amounts import seconds_in
from .alone import Judge, Question, SimulatorJudge, fusion_of, text_of
from .recorder import Kernel, Recorder
from .search.exact import Found, Plan, exact
from .search.sampled import SEARCHES, run

Progress = Callable[[str], object]

EXACT = "exact"
"""The search that proves what it finds."""

FEW = 300
"""Plans of a kernel that other searches look at, unless it is said."""

BETTER = 1 - 1e-9
"""A plan is better whose time is less than so much of that of another one."""

SHARE = 0.5
"""The share of the time that is left which one kernel may take at most, if others come behind it."""


@dataclass(frozen=True)
class TunedKernel:
    """What tuning found of one kernel.

    Attributes:
        name: What it is called by itself.
        launches: How many launches of the program are this kernel.
        before, after: Microseconds of a launch by itself, before and after, as the judge says.
        work_before, work_after: The same without the start of the cores, of the plan that is best for a stage of a
            launch of several.
        priced: Microseconds of the best plan by the price.
        bound: Microseconds by the price that no plan takes less than; 0 where nothing is proven.
        certified: Whether it is proven, of both, that no plan has a lower price.
        evaluations: Prices and bounds that were asked for; 0 where it was known.
        plans: How many plans the space has.
        schedule: Its plan for a launch by itself, as text.
        how: How the plan was found.
        trace: The best price after so many prices, each time it changed.
    """

    name: str
    launches: int
    before: float
    after: float
    work_before: float
    work_after: float
    priced: float
    bound: float
    certified: bool
    evaluations: int
    plans: int
    schedule: str
    how: str
    trace: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TuneReport:
    """What tuning did. before, after: microseconds of the whole program."""

    kernels: tuple[TunedKernel, ...]
    before: float
    after: float
    seconds: float
    target: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.target,
            "before_us": self.before,
            "after_us": self.after,
            "seconds": self.seconds,
            "kernels": [{**vars(k), "trace": [list(each) for each in k.trace]} for k in self.kernels],
        }

    def __str__(self) -> str:
        share = f", {1 - self.after / self.before:.1%} less" if self.after < self.before else ""
        searched = [k for k in self.kernels if k.evaluations]
        proven = sum(k.certified for k in self.kernels)
        head = f"{self.before:.1f} us before, {self.after:.1f} us after{share}, on {self.target}"
        return f"{head}: {len(self.kernels)} kernels, {len(searched)} searched, {proven} proven, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Tuned:
    """program: the tuned one; report: what was found; store: the knowledge base, None where none was given."""

    program: Program
    report: TuneReport
    store: KnowledgeBase | None


def tune(
    source: Any,
    *args: Any,
    target: str | None = None,
    options: Options | None = None,
    budget: str | float = "60s",
    oracle: Judge | None = None,
    store: str | Path | None = None,
    verify: int = 6,
    evaluations: int | None = None,
    search: str = "exact",
    seed: int = 0,
    progress: Progress | None = None,
    **kwargs: Any,
) -> Tuned:
    """Searches for the best plan of each kernel of a program.

    source, args, kwargs, target, options: as for `tw.compile`. budget: how long it takes at most, as seconds or as text
    such as "300s" or "5m"; one compilation before and a few after it come on top. oracle: who judges the few best plans
    of each kernel. store: a knowledge base, in which plans are looked up first and kept; what is certified there is not
    searched for again. verify: how many plans of a kernel the oracle judges. evaluations: prices and bounds of a kernel
    that are asked for at most, so that the result does not depend on how fast the machine is. search: `exact`, which
    proves what it finds, or `genetic`, `tree`, `tpe` or `random`, which look at few plans of each kernel (300 unless
    `evaluations` says otherwise); seed: of what these draw.

    Raises CompileError.
    """
    begin = monotonic()
    if search not in (EXACT, *SEARCHES):
        raise CompileError(f"tune: there is no search {search!r}; there are {', '.join((EXACT, *SEARCHES))}")
    try:
        end = begin + seconds_in(budget)
    except ValueError as error:
        raise CompileError(f"tune: budget: {error}") from None
    say = progress or (lambda _: None)
    judge, asked = oracle or SimulatorJudge(), options or Options()
    chip = target or DEFAULT_TARGET
    base = None if store is None else KnowledgeBase(store)

    def compiled(instead: Plans) -> tuple[Program, Recorder]:
        recorder = Recorder(chip, base, instead)
        plain = replace(asked, plans=recorder, cache="")
        program = compile_program(source, *args, target=target, options=plain, **kwargs)
        if isinstance(program, DynamicProgram):
            raise CompileError("tune: sizes are open: tune the program for sizes that it is called with")
        return program, recorder

    say("compiling")
    program, recorder = compiled({})
    chip, kernels = program.target, [*recorder.kernels.values()]
    found = _Tuner(chip, judge, verify, evaluations, base, search, seed).all(kernels, end, say)
    say("compiling with what was found")
    first = program.report().microseconds
    gains = {k.key: found[k.key].gained * k.launches for k in kernels if found[k.key].gained > 0}
    best = _fastest(compiled, program, {key: found[key].known for key in gains}, gains)
    if base is not None:
        base.add(entry for each in found.values() for entry in each.entries)
    rows = sorted((found[k.key].row(k) for k in kernels), key=lambda row: -row.before * row.launches)
    report = TuneReport(tuple(rows), first, best.report().microseconds, monotonic() - begin, chip)
    return Tuned(best, report, base)


Plans = Mapping[str, Sequence[KnownPlan]]
"""Plans that are known of kernels, by fingerprint."""


def _fastest(
    compiled: Callable[[Plans], tuple[Program, Recorder]],
    program: Program,
    better: Plans,
    gains: Mapping[str, float],
) -> Program:
    """The program with all better plans, or, where that is not faster, with those that make it so, the one that gains
    most first."""
    if not better:
        return program
    least = program.report().microseconds
    everything, _ = compiled(better)
    if everything.report().microseconds < least * BETTER:
        return everything
    best, kept = program, dict[str, Sequence[KnownPlan]]()
    for key in sorted(better, key=lambda k: -gains[k])[:MOST_ALONE] if len(better) > 1 else ():
        tried, _ = compiled({**kept, key: better[key]})
        if tried.report().microseconds < least * BETTER:
            best, kept, least = tried, {**kept, key: better[key]}, tried.report().microseconds
    return best


MOST_ALONE = 8
"""Kernels whose plans are tried one by one where all together are not faster."""


@dataclass(frozen=True)
class _Side:
    """What was found for a launch by itself, or for a stage of one of several (`joined`): the best plan that was judged
    and what it takes, before and after."""

    joined: bool
    schedule: Schedule
    before: float
    after: float
    scaled: float
    search: Found

    @property
    def gained(self) -> float:
        """Microseconds of a launch."""
        return self.before - self.after if self.after < self.before * BETTER else 0.0


@dataclass(frozen=True)
class _Result:
    """What was found of a kernel: for a launch by itself, and for a stage of one of several; and what is new of it."""

    name: str
    sides: tuple[_Side, _Side]
    plans: int
    how: str
    entries: tuple[Entry, ...] = ()

    @property
    def gained(self) -> float:
        """Microseconds of a launch."""
        return max(side.gained for side in self.sides)

    @property
    def known(self) -> list[KnownPlan]:
        """The plans that are better than the one before."""
        return [KnownPlan(side.schedule, side.scaled) for side in self.sides if side.gained > 0]

    def row(self, kernel: Kernel) -> TunedKernel:
        alone, joined = self.sides
        return TunedKernel(
            self.name,
            kernel.launches,
            alone.before,
            alone.after,
            joined.before,
            joined.after,
            alone.search.microseconds,
            alone.search.bound,
            alone.search.certified and joined.search.certified,
            alone.search.evaluations + joined.search.evaluations,
            self.plans,
            schedule_text(alone.schedule),
            self.how,
            tuple(alone.search.trace),
        )


@dataclass
class _Tuner:
    """Tunes kernels one by one."""

    target: str
    judge: Judge
    verify: int
    evaluations: int | None
    base: KnowledgeBase | None
    search: str
    seed: int

    def all(self, kernels: Sequence[Kernel], end: float, say: Progress) -> dict[str, _Result]:
        """What is found of each kernel before the time is over: the one that takes longest first."""
        machine, found = Machine.load(self.target), dict[str, _Result]()
        times = {k.key: self._judged(k, [k.taken])[0] for k in kernels}
        order = sorted(kernels, key=lambda k: -times[k.key] * k.launches if isfinite(times[k.key]) else 0.0)
        for number, kernel in enumerate(order):
            left = max(end - monotonic(), 0.0)
            say(f"kernel {number + 1} of {len(order)}")
            share = left if number == len(order) - 1 else left * SHARE
            found[kernel.key] = self._one(kernel, machine, times[kernel.key], share)
        return found

    def _judged(self, kernel: Kernel, schedules: Sequence[Schedule]) -> list[float]:
        text = text_of(kernel.module)
        return self.judge.microseconds([Question(text, schedule_text(s), self.target) for s in schedules])

    def _one(self, kernel: Kernel, machine: Machine, before: float, seconds: float) -> _Result:
        fusion, taken = fusion_of(kernel.module), kernel.taken
        (plan,) = launches_of(fusion, machine)
        asked = None if type(taken) is plan.choices else type(taken)()
        lowered = plan.kernel(plan.stem, asked)
        start = lowered.occupancy(taken).launch_microseconds(machine)
        known = self._known(kernel)
        if known is not None:
            return _Result(plan.stem, known, 0, "known")
        sides = before, before - start
        none = tuple(_Side(bool(i), taken, us, us, before, Found()) for i, us in enumerate(sides))
        if not isfinite(before):
            return _Result(plan.stem, none, 0, "the judge cannot run it")  # pyright: ignore[reportArgumentType]
        try:
            space = lowered.space(plan.stem)
        except PassError as error:
            return _Result(plan.stem, none, 0, f"not searched: {error}")  # pyright: ignore[reportArgumentType]
        priced = lowered.bound(taken) - start
        scale = priced / (before - start) if before > start and isfinite(priced) else 1.0

        def side(joined: bool, seconds: float) -> _Side:
            space.joined = joined
            search, drafts = self._searched(space, taken, seconds)
            starts = [lowered.occupancy(s).launch_microseconds(machine) for s in drafts]
            work = [us - each for us, each in zip(self._judged(kernel, drafts), starts, strict=True)]
            times = [us + (0.0 if joined else each) for us, each in zip(work, starts, strict=True)]
            i = min(range(len(drafts)), key=times.__getitem__, default=-1)
            if i < 0 or times[i] >= sides[joined] * BETTER:
                return _Side(joined, taken, sides[joined], sides[joined], start + (before - start) * scale, search)
            return _Side(joined, drafts[i], sides[joined], times[i], starts[i] + work[i] * scale, search)

        both = side(False, seconds / 2), side(True, seconds / 2)
        how = f"{self.search}, {self.verify} judged"
        digest, sizes = family(fusion)

        def entry(side: _Side) -> Entry:
            return Entry(
                kernel=kernel.key,
                price=PRICE,
                joined=side.joined,
                plan=schedule_text(side.schedule),
                microseconds=side.after,
                before=side.before,
                scaled=side.scaled,
                bound=side.search.bound if isfinite(side.search.bound) else 0.0,
                priced=side.search.microseconds if isfinite(side.search.microseconds) else 0.0,
                certified=side.search.certified,
                judge=self.judge.name,
                how=how,
                name=plan.stem,
                machine=machine.name,
                family=digest,
                sizes=sizes,
            )

        return _Result(plan.stem, both, space.space.size, how, tuple(map(entry, both)))

    def _known(self, kernel: Kernel) -> tuple[_Side, _Side] | None:
        """What is known of a kernel and need not be searched for again: the proof is there for both, by the same
        judge."""
        entries = [] if self.base is None else self.base.find(kernel.key, PRICE)
        if len(entries) != 2 or not all(e.certified and e.judge == self.judge.name for e in entries):
            return None
        first, second = (
            _Side(e.joined, parse_schedule(e.plan), e.before, e.microseconds, e.scaled, Found((), e.priced, e.bound))
            for e in entries
        )
        return first, second

    def _searched(self, space: KernelSpace, taken: Schedule, seconds: float) -> tuple[Found, list[Schedule]]:
        """What a search finds, and the schedules of the plans whose price is least, without the one that is taken."""
        made: dict[Plan, Schedule | None] = {}

        def fits(plan: Plan) -> bool:
            made[plan] = space.schedule(plan)
            return made[plan] is not None

        start = [n for n in (space.numbers(taken),) if n is not None]
        keep = max(self.verify, 1)
        if self.search == EXACT:
            search = exact(space, fits, start, self.evaluations, seconds, keep)
        else:
            search = self._sampled(space, fits, start, keep)
        drafts = (made[plan] for _, plan in search.best)
        return search, [s for s in drafts if s is not None and s != taken]

    def _sampled(
        self, space: KernelSpace, fits: Callable[[Plan], bool], start: Sequence[Plan], keep: int
    ) -> Found:
        """What a search finds that proves nothing."""

        def judge(plans: np.ndarray) -> list[float]:
            priced = zip(space.price(plans).tolist(), plans.tolist(), strict=True)
            return [us if isfinite(us) and fits(tuple(plan)) else inf for us, plan in priced]

        try:
            made = SEARCHES[self.search](space.space, self.seed, start)
        except ImportError:
            raise CompileError("tune: search: tpe needs optuna: pip install 'tilewright[tune]'") from None
        return run(made, judge, self.evaluations or FEW, keep=keep)
