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

from ..api.compiling import compile as compile_program
from ..api.options import Options
from ..api.plans import forget
from ..api.program import CompileError, Program
from ..api.sizes.dynamic import DynamicProgram
from ..dialects.schedule_text import parse_schedule, schedule_text
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import KnowledgeBase
from ..machine import DEFAULT_TARGET
from ..passes.alternatives import alternatives as every_alternative
from ..passes.known_plans import KnownPlan
from ..support.amounts import seconds_in
from ..support.files import write_plot
from .alone import Judge, Question, SimulatorJudge
from .kernel_search import BETTER, EXACT, KernelTask, Outcome, known_outcome, tune_kernel
from .recorder import Kernel, Recorder
from .search.sampled import SEARCHES
from .subgraphs import faster_without
from .why import explained
from .workers import Workers, done

Progress = Callable[[str], object]

Plans = Mapping[str, Sequence[KnownPlan]]
"""Plans that are known of kernels, by fingerprint."""

MOST_ALONE = 8
"""Kernels whose plans are tried one by one where all together are not faster."""


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
        why: Which bottleneck the better plan removed, or what holds the kernel where none was found, in sentences
            (why.py); empty where nobody asked.
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
    why: str = ""


@dataclass(frozen=True)
class TuneReport:
    """What tuning did. before, after: microseconds of the whole program; without: the alternatives that it is faster
    without, of those that were looked at."""

    kernels: tuple[TunedKernel, ...]
    before: float
    after: float
    seconds: float
    target: str
    without: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "target": self.target,
            "before_us": self.before,
            "after_us": self.after,
            "seconds": self.seconds,
            "without": [*self.without],
            "kernels": [{**vars(k), "trace": [list(each) for each in k.trace]} for k in self.kernels],
        }

    def plot(self, path: str | Path) -> None:
        """Draws the best price of each kernel against the plans that were priced, as a share of the first one. Raises
        CompileError where the file cannot be written."""
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        for kernel in (k for k in self.kernels if k.trace):
            first = kernel.trace[0][1]
            last = max(kernel.evaluations, kernel.trace[-1][0] + 1)
            at = [*(n for n, _ in kernel.trace), last]
            best = [*(us / first for _, us in kernel.trace), kernel.trace[-1][1] / first]
            axes.step(at, best, where="post", label=f"{kernel.name}, {kernel.priced:.1f} us")
        axes.set_xscale("log")
        axes.set_xlabel("plans priced")
        axes.set_ylabel("best price, of the first one")
        axes.grid(color="#e3e7ee")
        if any(k.trace for k in self.kernels):
            axes.legend(fontsize=8)
        try:
            write_plot(path, figure, 120)
        except OSError as error:
            raise CompileError(f"tune: {path}: {error.strerror}") from None
        finally:
            pyplot.close(figure)

    def __str__(self) -> str:
        share = f", {1 - self.after / self.before:.1%} less" if self.after < self.before else ""
        searched = [k for k in self.kernels if k.evaluations]
        proven = sum(k.certified for k in self.kernels)
        head = f"{self.before:.1f} us before, {self.after:.1f} us after{share}, on {self.target}"
        said = f"{head}: {len(self.kernels)} kernels, {len(searched)} searched, {proven} proven, {self.seconds:.1f} s"
        return f"{said}; without {', '.join(self.without)}" if self.without else said


@dataclass(frozen=True)
class Tuned:
    """program: the tuned one; report: what was found; store: the knowledge base, None where none was given; options:
    those with which `tw.compile` makes the same program, where there is a store."""

    program: Program
    report: TuneReport
    store: KnowledgeBase | None
    options: Options


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
    search: str = EXACT,
    seed: int = 0,
    workers: Workers = 1,
    alternatives: int = 0,
    explain: bool = False,
    progress: Progress | None = None,
    **kwargs: Any,
) -> Tuned:
    """Searches for the best plan of each kernel of a program.

    source, args, kwargs, target, options: as for `tw.compile`. budget: how long the searches take at most, as seconds
    or as text such as "300s" or "5m"; one compilation before and a few after them come on top. oracle: who judges the
    few best plans of each kernel. store: a knowledge base, in which plans are looked up first and kept, those of each
    kernel as soon as they are found; what is certified there is not searched for again. verify: how many plans of a
    kernel the oracle judges. evaluations: prices and bounds of each search that are asked for at most, so that the
    result does not depend on how fast the machine is. search: `exact`, which proves what it finds, or `genetic`,
    `tree`, `tpe` or `random`, which look at few plans of each kernel (300 unless `evaluations` says otherwise); seed:
    of what these draw. workers: processes that search, or the address of a Dask cluster. alternatives: how many
    programs are compiled without some alternatives of the compiler, to see whether the whole is faster so. explain:
    whether the report says why of each kernel (`TunedKernel.why`); its launch is simulated again for that, before and
    after.

    Raises CompileError, and KnowledgeError where the store cannot be written.
    """
    begin = monotonic()
    seconds = _checked(budget, search, verify, evaluations)
    say = progress or (lambda _: None)
    judge, asked = oracle or SimulatorJudge(), options or Options()
    chip = target or DEFAULT_TARGET
    base = None if store is None else KnowledgeBase(store)

    def compiled(instead: Plans, without: Sequence[str] = ()) -> tuple[Program, Recorder]:
        recorder = Recorder(chip, base, instead)
        plain = replace(asked, plans=recorder, cache="", without={*asked.without, *without})
        try:
            program = compile_program(source, *args, target=target, options=plain, **kwargs)
        finally:
            forget(recorder)
        if isinstance(program, DynamicProgram):
            raise CompileError("tune: sizes are open: tune the program for sizes that it is called with")
        return program, recorder

    say("compiling")
    program, recorder = compiled({})
    chip, kernels = program.target, [*recorder.kernels.values()]
    found = {k.key: o for k in kernels if (o := _known(k, base, judge)) is not None}
    left = _ordered([k for k in kernels if k.key not in found], judge, chip)
    tasks = [
        KernelTask(
            k.key,
            k.module,
            schedule_text(k.taken),
            k.microseconds,
            chip,
            judge,
            verify,
            search,
            seed,
            evaluations,
            share,
        )
        for k, share in zip(left, _shares(left, seconds, workers), strict=True)
    ]
    try:
        for number, outcome in done(tune_kernel, tasks, workers):
            found[tasks[number].key] = outcome
            say(f"{len(found)} of {len(kernels)} kernels")
            if base is not None:
                base.add(outcome.entries)
    except ImportError as error:
        raise CompileError(f"tune: {error.name} is not installed: pip install 'tilewright[tune]'") from None
    say("compiling with what was found")
    first = program.report().microseconds
    gains = {k.key: found[k.key].gained * k.launches for k in kernels if found[k.key].gained > 0}
    best = _fastest(compiled, program, {key: _plans(found[key]) for key in gains}, gains)
    without: tuple[str, ...] = ()
    if alternatives:
        known = {key: _plans(found[key]) for key in gains}
        names = [each.name for each in every_alternative() if asked.may(each.name)]
        best, without = _without(lambda out: compiled(known, out)[0], names, best, alternatives, seed, say)
    said = {k.key: explained(k.module, schedule_text(k.taken), chip, found[k.key]) for k in kernels if explain}
    made = [_row(k, found[k.key], said.get(k.key, "")) for k in kernels]
    rows = sorted(made, key=lambda row: -row.before * row.launches)
    after, seconds = best.report().microseconds, monotonic() - begin
    report = TuneReport(tuple(rows), first, after, seconds, chip, without)
    options = replace(asked, without={*asked.without, *without}, plans=store)
    return Tuned(best, report, base, options)


def _checked(budget: str | float, search: str, verify: int, evaluations: int | None) -> float:
    """The seconds of a budget. Raises CompileError for what cannot be asked for."""
    if search not in (EXACT, *SEARCHES):
        raise CompileError(f"tune: there is no search {search!r}; there are {', '.join((EXACT, *SEARCHES))}")
    for name, number in (("verify", verify), ("evaluations", 1 if evaluations is None else evaluations)):
        if number < 1:
            raise CompileError(f"tune: {name} must be at least 1, not {number}")
    try:
        return seconds_in(budget)
    except ValueError as error:
        raise CompileError(f"tune: budget: {error}") from None


def _known(kernel: Kernel, base: KnowledgeBase | None, judge: Judge) -> Outcome | None:
    """What a knowledge base has of a kernel, where that need not be searched for again."""
    return None if base is None else known_outcome(kernel.key, base.find(kernel.key, PRICE), judge.name)


def _ordered(kernels: Sequence[Kernel], judge: Judge, target: str) -> list[Kernel]:
    """Kernels, those first that take most of a program."""

    def weight(kernel: Kernel) -> float:
        question = Question(kernel.module, schedule_text(kernel.taken), target)
        (us,) = judge.microseconds([question])
        kernel.microseconds = us
        return us * kernel.launches if isfinite(us) else 0.0

    return sorted(kernels, key=weight, reverse=True)


def _shares(kernels: Sequence[Kernel], seconds: float, workers: Workers) -> list[float]:
    """How many seconds each kernel has: half of them are dealt evenly, and half by what kernels take."""
    weights = [k.microseconds * k.launches if isfinite(k.microseconds) else 0.0 for k in kernels]
    whole, total = sum(weights) or 1.0, seconds * (workers if isinstance(workers, int) else 1)
    return [min(total * (0.5 / len(kernels) + 0.5 * weight / whole), seconds) for weight in weights]


def _plans(outcome: Outcome) -> list[KnownPlan]:
    """The plans of a kernel that are better than the one before."""
    return [KnownPlan(parse_schedule(side.plan), side.scaled) for side in outcome.sides if side.gained > 0]


def _row(kernel: Kernel, outcome: Outcome, why: str) -> TunedKernel:
    alone, joined = outcome.sides
    return TunedKernel(
        outcome.name,
        kernel.launches,
        alone.before,
        alone.after,
        joined.before,
        joined.after,
        alone.priced,
        alone.bound,
        alone.certified and joined.certified,
        alone.evaluations + joined.evaluations,
        outcome.plans,
        alone.plan,
        outcome.how,
        alone.trace,
        why,
    )


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


def _without(
    compiled: Callable[[Sequence[str]], Program],
    names: Sequence[str],
    program: Program,
    most: int,
    seed: int,
    say: Progress,
) -> tuple[Program, tuple[str, ...]]:
    """The program without those alternatives that it is faster without, and which these are."""
    made: dict[tuple[str, ...], Program] = {(): program}

    def judged(without: tuple[str, ...]) -> float:
        say(f"without {', '.join(without)}")
        try:
            made[without] = compiled(without)
        except CompileError:
            return inf
        return made[without].report().microseconds

    found = faster_without(names, judged, most, program.report().microseconds, seed)
    return made[found.without], found.without
