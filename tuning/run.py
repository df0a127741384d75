"""One run of tuning: kernels are searched for, and programs compiled with what is found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from time import monotonic

import numpy as np

from ..api.program import CompileError, Program
from ..backends.report import Report
from ..dialects.schedule_text import parse_schedule, schedule_text
from ..kernels.price import VERSION as PRICE
from ..knowledge.base import DECISIONS, Entry, KnowledgeBase
from ..knowledge.goals import ENERGY, LATENCY, MEMORY, PRODUCT, THROUGHPUT, Goal
from ..knowledge.shipped import ShippedPlans
from ..passes.alternatives import alternatives
from ..passes.choose.rewrites import TAKEN
from ..passes.decisions import Decision
from ..passes.known_plans import KnownPlan
from .alone import LaunchQuestion, SimulatorJudge
from .kernel_search import BETTER, Asked, KernelTask, Outcome, known_outcome, tune_kernel
from .limits import check_idle
from .profile import Profile
from .recorder import RecordedKernel
from .report import DecidedOtherwise, ProgramCosts, TunedKernel, front_of
from .subgraphs import Whole, best_whole
from .why import explained
from .workers import Workers, done

Progress = Callable[[str], object]

Plans = Mapping[str, Sequence[KnownPlan]]
"""Plans that are known of kernels, by fingerprint."""

WITH_ALL = Whole()
"""A program as the price has it."""

MOST_ALONE = 8
"""Kernels whose plans are tried one by one where all together are not better."""

MOST_ROUNDS = 4
"""How often kernels are searched for that a program has with the plans found so far, at most, where plans are taken
for something else than time."""

LEAST_SLOWER = 0.05
"""Of what is modelled, the least that work is taken to last where a profile says so."""

LESS_THAN_A_BYTE = 1e-9
"""Of programs that need as much memory the faster one is better."""


class ProgramKernels:
    """A program, what it takes, its kernels by their fingerprints, the fingerprints of kernels by the names it has for
    them, and the decisions that were made by their keys."""

    def __init__(
        self,
        program: Program,
        report: Report,
        kernels: Mapping[str, RecordedKernel],
        names: Mapping[str, str],
        decisions: Mapping[str, Decision],
    ) -> None:
        self.program, self.report, self.kernels, self.names = program, report, kernels, names
        self.decisions = decisions


class Tuning:
    """One run of `tune`. compiled: the program with these plans, and else with what is known, or with none at all,
    with other decisions and without alternatives, and whether these plans are taken whatever else is faster; asked: how
    plans are looked for."""

    def __init__(
        self,
        compiled: Callable[[Plans | None, Whole, bool], ProgramKernels],
        asked: Asked,
        base: KnowledgeBase | None,
        objective: str,
        profile: Profile | None,
        seconds: float,
        workers: Workers,
        say: Progress,
    ) -> None:
        self.compiled, self.asked, self.base, self.objective = compiled, asked, base, objective
        self.goal, self.workers, self.say = asked.goal, workers, say
        self.end, self.begin = monotonic() + seconds, monotonic()
        say("compiling")
        self.first = self.best = compiled(None, WITH_ALL, False)
        self.end += monotonic() - self.begin  # the searches have all of it
        self.chip = self.first.program.target
        if self.goal.watts is not None:
            check_idle("tune", self.goal.watts, [self.chip])
        self.kernels: dict[str, RecordedKernel] = dict(self.first.kernels)
        self.measured: dict[str, float] = {} if profile is None else self._measured(profile)
        """Microseconds of a launch in the profile, by fingerprint."""
        self.slower = {key: self._slower(key) for key in self.measured}
        """How many times the work of a kernel takes what is modelled, as measured."""
        self.found: dict[str, Outcome] = {}
        self.decided: tuple[DecidedOtherwise, ...] = ()
        """Decisions with which the program is better, but not by the price."""
        self.costs: list[ProgramCosts] = [ProgramCosts.of(self.first.report)]

    # -- what was measured -------------------------------------------------------------------------------------

    def _measured(self, profile: Profile) -> dict[str, float]:
        """Microseconds of a launch of each kernel that a profile has. Raises CompileError where it has none."""
        found: dict[str, list[float]] = {}
        for name, key in self.first.names.items():
            if name in profile.microseconds:
                found.setdefault(key, []).append(profile.microseconds[name])
        if not found:
            ours = ", ".join(sorted(self.first.names)[:8])
            raise CompileError(f"tune: {profile.source}: no launch has the name of a kernel of the program: {ours}")
        return {key: sum(each) / len(each) for key, each in found.items()}

    def _slower(self, key: str) -> float:
        own = [k for k in self.first.report.kernels if self.first.names.get(k.name) == key and k.launches]
        work = sum(k.microseconds - k.launch_microseconds for k in own)
        start, launches = sum(k.launch_microseconds for k in own), sum(k.launches for k in own)
        measured = self.measured[key] * launches - start
        return max(measured / work, LEAST_SLOWER) if work > 0 else 1.0

    def value(self, made: ProgramKernels) -> float:
        """What is to be least of a program."""
        report = made.report
        more = sum(
            (self.slower.get(made.names.get(k.name, ""), 1.0) - 1) * (k.microseconds - k.launch_microseconds)
            for k in report.kernels
        )
        us = report.microseconds + more
        values = {
            LATENCY: us,
            THROUGHPUT: max(report.queues.values(), default=0.0) + more,
            ENERGY: report.energy_joules,
            PRODUCT: report.energy_joules * us,
            MEMORY: report.memory.arena_bytes + us * LESS_THAN_A_BYTE,
        }
        return inf if self._hot(made) else values[self.objective]

    def _hot(self, made: ProgramKernels) -> list[str]:
        """The kernels that draw more than the limit, the worst first."""
        if self.goal.watts is None:
            return []
        hot = [k for k in made.report.kernels if k.watts > self.goal.watts * (1 + 1e-9)]
        return [k.name for k in sorted(hot, key=lambda k: -k.watts)]

    # -- searching ---------------------------------------------------------------------------------------------

    def search(self) -> None:
        """Searches for the plans of kernels, and compiles the program with them."""
        now = self.first
        for _ in range(1 if self.goal.plain else MOST_ROUNDS):
            if not self._search_new(now):
                break
            self.say("compiling with what was found")
            plans = self.plans()
            if self.goal.plain:
                self.best, kept = self._fastest(plans)
                self._note(plans, kept)
                return
            now = self.made(plans)
        # the last one has all plans, as the next compilation will
        self.best = min(self.first, now, key=self.value)

    def _search_new(self, now: ProgramKernels) -> bool:
        """Searches for the plans of kernels that were not searched for yet; whether there were any."""
        new = [kernel for key, kernel in now.kernels.items() if key not in self.found]
        self.kernels.update((kernel.key, kernel) for kernel in new)
        for kernel in new:
            if (known := self._known(kernel)) is not None:
                self.found[kernel.key] = known
        left = self._ordered([k for k in new if k.key not in self.found])
        seconds = max(self.end - monotonic(), 0.0)
        tasks = [
            KernelTask(
                k.key,
                k.module,
                schedule_text(k.taken),
                k.before,
                self.chip,
                self.asked,
                self.slower.get(k.key, 1.0),
                share,
                tuple(dict.fromkeys(e.plan for e in self._entries(k.key))),
            )
            for k, share in zip(left, self._shares(left, seconds), strict=True)
        ]
        try:
            for number, outcome in done(tune_kernel, tasks, self.workers):
                self.found[tasks[number].key] = outcome
                self.say(f"{len(self.found)} of {len(self.kernels)} kernels")
                if self.base is not None:
                    self.base.add(outcome.entries)
        except ImportError as error:
            raise CompileError(f"tune: {error.name} is not installed: pip install 'tilewright[tune]'") from None
        return bool(new)

    def _entries(self, key: str) -> Sequence[Entry]:
        """What is known of a kernel."""
        bases = () if self.base is None else (self.base, ShippedPlans())
        found = (base.find(key, PRICE, self.goal.text) for base in bases)
        return next((entries for entries in found if entries), ())

    def _known(self, kernel: RecordedKernel) -> Outcome | None:
        """What is known of a kernel, where that need not be searched for again."""
        if self.slower or self.asked.fewer:
            return None
        return known_outcome(kernel.key, self._entries(kernel.key), self.asked.judge.name)

    def _ordered(self, kernels: Sequence[RecordedKernel]) -> list[RecordedKernel]:
        """Kernels, those first that take most of a program, as measured where that is known."""
        questions = [LaunchQuestion(k.module, schedule_text(k.taken), self.chip) for k in kernels]
        times = self.asked.judge.measure(questions)
        if times and all(m.microseconds == inf and m.why for m in times):
            raise CompileError(f"tune: {self.asked.judge.name} measured none of the kernels: {times[0].why}")
        for kernel, measured in zip(kernels, times, strict=True):
            kernel.before = measured
            if measured.joules is None and isfinite(measured.microseconds) and not self.goal.plain:
                raise CompileError(
                    f"tune: the oracle says nothing of joules, which {self.goal.text!r} asks for: have it write them "
                    "beside microseconds"
                )
        return sorted(kernels, key=lambda k: (k.key in self.measured, self._weight(k)), reverse=True)

    def _weight(self, kernel: RecordedKernel) -> float:
        """Microseconds of a program that a kernel is."""
        us = self.measured.get(kernel.key, kernel.before.microseconds)
        return us * kernel.launches if isfinite(us) else 0.0

    def _shares(self, kernels: Sequence[RecordedKernel], seconds: float) -> list[float]:
        """How many seconds each kernel has: half of them are dealt evenly, and half by what kernels take."""
        weights = [self._weight(k) for k in kernels]
        whole, total = sum(weights) or 1.0, seconds * (self.workers if isinstance(self.workers, int) else 1)
        return [min(total * (0.5 / len(kernels) + 0.5 * weight / whole), seconds) for weight in weights]

    def plans(self) -> dict[str, list[KnownPlan]]:
        """Of each kernel the plans that are better than the one before; where time alone does not decide, all that
        are good."""
        found: dict[str, list[KnownPlan]] = {}
        for key, outcome in self.found.items():
            good = [s for s in outcome.sides if (s.gained > 0 if self.goal.plain else isfinite(s.best.value))]
            if good:
                found[key] = [KnownPlan(parse_schedule(s.best.plan), s.scaled) for s in good]
        return found

    def made(self, plans: Plans, whole: Whole = WITH_ALL, binding: bool | None = None) -> ProgramKernels:
        """The program with these plans of the kernels that were searched for, and otherwise as is said. binding:
        whether plans are taken whatever else is faster; None: where time alone does not decide."""
        only = {key: plans.get(key, ()) for key in self.found}
        found = self.compiled(only, whole, not self.goal.plain if binding is None else binding)
        self.costs.append(ProgramCosts.of(found.report))
        return found

    def _fastest(self, better: Mapping[str, list[KnownPlan]]) -> tuple[ProgramKernels, Mapping[str, list[KnownPlan]]]:
        """The program with all better plans, or, where that is not better, with those that make it so, the one that
        gains most first; and which plans these are."""
        kept: dict[str, list[KnownPlan]] = {}
        if not better:
            return self.first, kept
        least = self.value(self.first)
        everything = self.made(better)
        if self.value(everything) < least * BETTER:
            return everything, better
        best = self.first
        gains = {key: self.found[key].gained * self._weight(self.kernels[key]) for key in better}
        for key in sorted(better, key=lambda k: -gains[k])[:MOST_ALONE] if len(better) > 1 else ():
            tried = self.made({**kept, key: better[key]})
            if self.value(tried) < least * BETTER:
                best, kept, least = tried, {**kept, key: better[key]}, self.value(tried)
        return best, kept

    def _note(self, better: Iterable[str], kept: Collection[str]) -> None:
        """Notes of plans whether they make the program better: those that do not are kept as what was found, but the
        next compilation does not take them."""
        if self.base is None:
            return
        noted = [
            replace(e, withdrawn=key not in kept)
            for key in better
            for e in self._entries(key)
            if e.withdrawn != (key not in kept)
        ]
        if noted:
            self.base.add(noted, always=True)

    # -- whole programs ----------------------------------------------------------------------------------------

    def whole(self, names: Sequence[str], most: int) -> Whole:
        """Takes the program with what it is better with than with what the price takes; what that is. names: the
        alternatives that may be left out; most: how many programs are compiled."""
        if not most:
            return WITH_ALL
        made: dict[Whole, ProgramKernels] = {}
        plans = self.plans()

        def judged(whole: Whole) -> float:
            self.say(whole.said)
            try:
                made[whole] = self.made(plans, whole)
            except CompileError:
                return inf
            return self.value(made[whole])

        decisions = {key: d for key, d in self.best.decisions.items() if len(d.options) > 1}
        taken = {d.kind for d in decisions.values() if d.default == TAKEN}
        idle = {each.name for each in alternatives() if each.rewrites and each.name not in taken}
        considered, now = [name for name in names if name not in idle], self.value(self.best)
        found = best_whole(considered, [*decisions.values()], judged, most, now, self.asked.seed).best
        if found in made:
            self.best = made[found]
            for key, option in found.decided:
                d = decisions[key]
                self.decided += (DecidedOtherwise(d.kind, d.about, d.default, option),)
            if self.base is not None and found.decided:
                self.base.add([self._entry(decisions[key], option) for key, option in found.decided], always=True)
        return found

    def _entry(self, decision: Decision, option: str) -> Entry:
        """A decision with which the program is better, as a knowledge base keeps it."""
        report = self.best.report
        return Entry(
            kernel=decision.key,
            price=PRICE,
            goal=self.goal.text,
            joined=False,
            plan=option,
            microseconds=report.microseconds,
            joules=report.energy_joules,
            before=self.first.report.microseconds,
            scaled=0.0,
            bound=0.0,
            priced=0.0,
            certified=False,
            withdrawn=False,
            judge=SimulatorJudge.name,
            how="whole programs",
            name=f"{decision.kind} of {decision.about}: {option}",
            machine=self.chip,
            family=DECISIONS,
            sizes=(),
        )

    def front(self, count: int) -> tuple[ProgramCosts, ...]:
        """What programs take whose plans are between the fastest ones and those of least energy, and all others that
        were compiled: those that no other one beats."""
        if not count:
            return ()
        for share in np.linspace(0, 1, count).tolist():
            goal = Goal(share, self.goal.watts)
            self.say(f"between time and energy: {share:.0%}")
            plans: dict[str, list[KnownPlan]] = {}
            for key, outcome in self.found.items():
                alone = outcome.sides[0]
                best = min(alone.front, key=lambda j: goal.value(*j.amounts), default=None)
                if best is not None:
                    plans[key] = [KnownPlan(parse_schedule(best.plan), alone.scaled)]
            self.made(plans, binding=True)
        return front_of(self.costs)

    def check_power(self) -> None:
        """Raises CompileError where the program does not keep a limit of power."""
        hot = self._hot(self.best)
        if not hot:
            return
        report = next(k for k in self.best.report.kernels if k.name == hot[0])
        outcome = self.found.get(self.best.names.get(report.name, ""))
        least = min((s.least_watts for s in outcome.sides), default=inf) if outcome is not None else inf
        said = f"no plan that was judged draws less than {least:.0f} W" if isfinite(least) else "it is not tuned"
        raise CompileError(
            f"tune: power_limit: {self.goal.watts:g} W cannot be kept: {report.name} ({report.source or 'no source'}) "
            f"draws {report.watts:.0f} W, and {said}; more budget, or a higher limit, may help"
        )

    def rows(self, explain: bool) -> tuple[TunedKernel, ...]:
        """What was found of each kernel, and why where that is asked for, those first that take most of the program."""
        names: dict[str, list[str]] = {}
        for name, key in self.best.names.items():
            names.setdefault(key, []).append(name)
        rows = [self._row(k, self.found[k.key], names.get(k.key, []), explain) for k in self.kernels.values()]
        return tuple(sorted(rows, key=lambda row: -max(row.before, row.measured) * row.launches))

    def _row(self, kernel: RecordedKernel, outcome: Outcome, names: Sequence[str], explain: bool) -> TunedKernel:
        alone, joined = outcome.sides
        return TunedKernel(
            name=outcome.name,
            launches=kernel.launches,
            before=alone.before.measured.microseconds,
            after=alone.best.measured.microseconds,
            work_before=joined.before.measured.microseconds,
            work_after=joined.best.measured.microseconds,
            priced=alone.priced,
            bound=alone.bound,
            certified=alone.certified and joined.certified,
            evaluations=alone.evaluations + joined.evaluations,
            plans=outcome.plans,
            schedule=alone.best.plan,
            how=outcome.how,
            trace=alone.trace,
            joules_before=alone.before.measured.joules or 0.0,
            joules_after=alone.best.measured.joules or 0.0,
            measured=self.measured.get(kernel.key, 0.0),
            kernels=tuple(names),
            front=tuple((j.measured.microseconds, j.measured.joules or 0.0, j.plan) for j in alone.front),
            why=explained(kernel.module, schedule_text(kernel.taken), self.chip, outcome) if explain else "",
        )
