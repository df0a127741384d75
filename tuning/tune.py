"""`tw.tune`: the best plan of each kernel of a program, proven where it can be, and kept.

The price drafts and a judge verifies: a search over all plans of a kernel finds the few whose price is least, with a
proof where its budget is enough, and the judge (the simulator, unless another one is given) says what these take. The
program is compiled again with what was found, and keeps of it what makes the whole program better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from ..api.compiling import compile as compile_program
from ..api.options import Options
from ..api.plans import base_of, forget
from ..api.program import CompileError, Program
from ..api.sizes.dynamic import DynamicProgram
from ..backends.report import Report
from ..knowledge.base import KnowledgeBase
from ..knowledge.goals import LATENCY, Goal
from ..machine import DEFAULT_TARGET
from ..passes.alternatives import alternatives as every_alternative
from ..passes.plans import fingerprints_asked
from ..support.amounts import seconds_in
from .alone import Judge, SimulatorJudge
from .kernel_search import EXACT, Asked
from .limits import power_limit_in
from .profile import Profile, read_profile
from .recorder import Recorder
from .report import ProgramCosts, TuneReport
from .run import Plans, ProgramKernels, Progress, Tuning
from .search.sampled import SEARCHES
from .subgraphs import Whole
from .workers import Workers


@dataclass(frozen=True)
class Tuned:
    """program: the tuned one; report: what was found; store: the knowledge base, None where there is none; options:
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
    at: Mapping[str, int] | None = None,
    budget: str | float = "60s",
    objective: str = LATENCY,
    power_limit: str | float | None = None,
    oracle: Judge | None = None,
    profile: str | Path | Profile | None = None,
    store: str | Path | None = None,
    verify: int = 24,
    evaluations: int | None = None,
    search: str = EXACT,
    seed: int = 0,
    workers: Workers = 1,
    alternatives: int = 0,
    front: int = 0,
    explain: bool = False,
    progress: Progress | None = None,
    **kwargs: Any,
) -> Tuned:
    """Searches for the best plan of each kernel of a program.

    source, args, kwargs, target, options: as for `tw.compile`. at: the sizes of a program with open ones: what it
    takes with them is to be least, and kernels are tuned for the largest sizes of the version that they have. budget:
    how long the searches take at most, as seconds or as text such as "300s" or "5m"; one compilation before and a few
    after them come on top. objective: `latency`, the microseconds of a call; `throughput`, those of the busiest
    queue, which is what calls behind each other take; `energy`, its joules; `edp`, joules times microseconds; or
    `memory`, the most bytes of device memory. power_limit: the most watts that a launch may draw on the mean, as a
    number or as text such as "150W". oracle: who judges the few best plans of each kernel. profile: a trace with
    names and durations of launches, or the path of one: what took longest there is searched for first, and work
    counts as long as it was measured to take. store: a knowledge base, in which plans are looked up first and kept,
    those of each kernel as soon as they are found; what is certified there is not searched for again; None: the one
    of the options, so that of TILEWRIGHT_PLANS or the user's own; empty: none. verify: how many plans of a kernel the
    oracle judges, those of the least price first, as far as its time allows. evaluations: prices and bounds of each
    search that are asked for at most, so that the result does not depend on how fast the machine is. search: `exact`,
    which proves what it finds, or `genetic`, `tree`, `tpe` or `random`, which look at few plans of each kernel (300
    unless `evaluations` says otherwise); seed: of what these draw. workers: processes that search, or the address of
    a Dask cluster. alternatives: how many programs are compiled without some alternatives of the compiler, or with
    other decisions about a few fusions, to see whether the whole is better so. front: how many programs are compiled
    between the fastest and the one that takes least energy. explain: whether the report says why of each kernel
    (`TunedKernel.why`); its launch is simulated again for that, before and after.

    Raises CompileError, and KnowledgeError where the store cannot be written.
    """
    begin = monotonic()
    asked = options or Options()
    seconds, limit = _checked(budget, search, verify, evaluations, power_limit)
    try:
        goal = Goal.of(objective, limit)
    except ValueError as error:
        raise CompileError(f"tune: {error}") from None
    if profile is not None and oracle is not None:
        raise CompileError("tune: a profile corrects what is modelled, and an oracle measures: give one of the two")
    given = asked.plans if isinstance(asked.plans, str | Path | None) else ""
    base = base_of(given if store is None else store)
    chip = target or DEFAULT_TARGET

    def compiled(instead: Plans | None, whole: Whole, binding: bool) -> ProgramKernels:
        known = None if instead is None else base
        recorder = Recorder(chip, known, goal, instead or {}, binding, alternatives > 0, dict(whole.decided))
        plain = replace(asked, plans=recorder, cache="", without={*asked.without, *whole.without})
        try:
            with fingerprints_asked() as names:
                program = compile_program(source, *args, target=target, options=plain, **kwargs)
                report = _report_at(program, at)
        finally:
            forget(recorder)
        return ProgramKernels(program, report, recorder.kernels, names, recorder.decisions)

    how = Asked(oracle or SimulatorJudge(), verify, goal, front > 0, search, seed, evaluations)
    progress = progress or (lambda _: None)
    found = read_profile(profile) if isinstance(profile, str | Path) else profile
    run = Tuning(compiled, how, base, objective, found, seconds, workers, progress)
    run.search()
    whole = run.whole([each.name for each in every_alternative() if asked.may(each.name)], alternatives)
    points = run.front(front)
    run.check_power()
    report = TuneReport(
        run.rows(explain),
        ProgramCosts.of(run.first.report),
        ProgramCosts.of(run.best.report),
        monotonic() - begin,
        run.chip,
        objective,
        limit,
        whole.without,
        points,
        run.decided,
    )
    again = asked.plans if base is None else base.path
    options = replace(asked, without={*asked.without, *whole.without}, plans=again, plans_for=goal.text)
    return Tuned(run.best.program, report, base, options)


def _report_at(program: Program, at: Mapping[str, int] | None) -> Report:
    """The report of a program, at the sizes that are given where some are open. Raises CompileError."""
    if not isinstance(program, DynamicProgram):
        if at is not None:
            raise CompileError(f"tune: at= is for programs with open sizes, and {program.source.name} has none")
        return program.report()
    if at is None:
        sizes = ", ".join(program.symbols)
        raise CompileError(f"tune: {program.name} has open sizes: {sizes}; say for which it is tuned, with at=")
    return program.report(at)


def _checked(
    budget: str | float, search: str, verify: int, evaluations: int | None, power_limit: str | float | None
) -> tuple[float, float | None]:
    """The seconds of a budget, and the watts of a limit. Raises CompileError for what cannot be asked for."""
    if search not in (EXACT, *SEARCHES):
        raise CompileError(f"tune: there is no search {search!r}; there are {', '.join((EXACT, *SEARCHES))}")
    for name, number in (("verify", verify), ("evaluations", 1 if evaluations is None else evaluations)):
        if number < 1:
            raise CompileError(f"tune: {name} must be at least 1, not {number}")
    try:
        seconds = seconds_in(budget)
    except ValueError as error:
        raise CompileError(f"tune: budget: {error}") from None
    return seconds, power_limit_in("tune", power_limit)
