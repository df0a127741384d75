"""Runs the pipeline pass by pass and judges the module after each, against JAX and against the pass before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from ..backends.interpreter.graph import main_of
from ..backends.simulator import SimulationError, simulate
from ..backends.stepper.products import other_orders
from ..dialects.base import describe
from ..dialects.graph.extents import extents_of
from ..dialects.text import one_line
from ..dialects.text import verify as verify_module
from ..machine import Machine
from ..passes.base import LevelPass
from ..passes.errors import PassError
from ..passes.pipeline import PIPELINE, Stage, all_passes, level_of, remaining, run_stage, states_of
from .bounds import Bound, both
from .compare import Difference, same_bits
from .hostwalk import HostWalk, Memory
from .results import Check, Progress
from .spread import deviations, evened
from .standing import Standing
from .structure import Cache, structure
from .tags import Tags
from .tolerance import roundoff
from .walk import GraphWalk, Settings, Trace, WrongValue

SOURCE = "source"
"""The name of the module that the frontend gives: the state before the first pass."""

CHECKER = "npu-check"
"""The static checker of races and buffers; used after npu-synchronize where the pipeline knows it."""


@dataclass
class Failure:
    """The first thing wrong with a pass. before, after: the module on both sides (after is None where the pass
    raised); golden: the run of `before`; finding: the value, for `wrong value`."""

    stage: str
    kind: str
    level: str
    before: ModuleOp | None
    after: ModuleOp | None
    golden: Trace | None = None
    finding: WrongValue | None = None
    problem: str = ""
    op: Operation | None = None


@dataclass
class ExamineOptions:
    """How much to examine. first: stop at the first failure; accumulated: compare whole programs with the reference
    too; once: run equal kernels and unchanged ops once; only: judge this stage alone, and stop after it;
    values: run programs at all (crashes and hazards need none)."""

    first: bool = False
    accumulated: bool = True
    once: bool = False
    only: str | None = None
    values: bool = True


@dataclass
class ExaminedModule:
    """A module and what is known of it."""

    name: str
    module: ModuleOp
    level: str
    memory: Memory = "typed"
    golden: Trace | None = None


@dataclass
class Examiner:
    """One program with its inputs, its reference (flat results, or None: the source's own level) and its stages.
    further: steps that the caller takes after those of `run`, for `progress`; exact: whether the reference is what the
    program should give bit for bit, so that equal numbers are not open."""

    module: ModuleOp
    inputs: Sequence[Any]
    target: str
    reference: Sequence[Any] | None = None
    stages: Sequence[Stage] = PIPELINE
    options: ExamineOptions = field(default_factory=ExamineOptions)
    cache: Cache = field(default_factory=Cache)
    progress: Progress | None = None
    further: int = 0
    exact: bool = False

    def __post_init__(self) -> None:
        self.machine = Machine.load(self.target)
        self.checks: list[Check] = []
        self.failures: list[Failure] = []
        self.snapshots: dict[str, ModuleOp] = {}
        self.goldens: dict[str, Trace] = {}
        self.tolerances: list[Bound] = []
        self.tags = Tags()
        self.bitwise = True
        self.rounded = ""
        self._standing: Standing | None = None
        self._unmeasured: list[ExaminedModule] = []
        self._extents = extents_of(main_of(self.module))
        self._taken = self._steps = 0

    # -- the stages ----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Fills `checks` and `failures`."""
        module = self.module.clone()
        self.tags.fresh(module)
        state = ExaminedModule(SOURCE, module, level_of(module))
        self.snapshots[SOURCE] = module
        following = remaining(module, "npu", self.stages)
        self._steps = 1 + len(following) + self.further
        self.step(SOURCE)
        self._source(state)
        if state.level == "npu" and "synchronized" in states_of(module):
            self._hazards(SOURCE, state, state)
        for stage in following:
            if self._done():
                return
            self.step(stage.name)
            if stage.name == CHECKER:
                continue  # judges others, see _hazards
            after = self._apply(stage, state)
            if after is None:
                return
            self.snapshots[stage.name] = after.module
            if self.options.only in (None, stage.name):
                self._judge(stage, state, after)
            state = after
            if stage.name == self.options.only:
                return

    def source_only(self) -> None:
        """Runs the source's own level, for its tolerance, and no pass but those that round."""
        module = self.module.clone()
        self.tags.fresh(module)
        state = ExaminedModule(SOURCE, module, level_of(module))
        self._steps = 1 + self.further
        self.step(SOURCE)
        self._source(state)
        following = remaining(module, "npu", self.stages)
        last = max((i for i, stage in enumerate(following) if stage.changes_numerics), default=-1)
        for stage in following[: last + 1]:
            after = self._apply(stage, state)
            if after is None:
                return
            if stage.changes_numerics:
                self._rounded(after)
            state = after

    def step(self, what: str) -> None:
        """Says that a step begins."""
        if self.progress is not None:
            self.progress(what, self._taken, self._steps)
        self._taken += 1

    def _done(self) -> bool:
        return self.options.first and bool(self.failures)

    def _apply(self, stage: Stage, state: ExaminedModule) -> ExaminedModule | None:
        """The module after a stage; None, with a failure noted, where the pass raises or leaves invalid IR."""
        module = state.module.clone()
        try:
            run_stage(stage, module, self.target)
        except Exception as error:
            kind, said = type(error).__name__, one_line(str(error))
            problem = said if isinstance(error, PassError | VerifyException) else f"{kind}: {said[:200]}"
            self._fail(Failure(stage.name, "crash", state.level, state.module, None, problem=problem))
            return None
        try:
            verify_module(module)
        except VerifyException as error:
            self._fail(Failure(stage.name, "invalid", stage.level, state.module, module, problem=str(error)))
            return None
        self.tags.complete(module)
        return ExaminedModule(stage.name, module, stage.level)

    @property
    def hazards(self) -> list[str]:
        """What was found wrong with the order of instructions or with memory."""
        return list(dict.fromkeys(f.problem for f in self.failures if f.kind == "hazard"))

    def hazard(self, stage: str, problem: str) -> None:
        """Takes note of what is wrong with the compiled program."""
        self._fail(Failure(stage, "hazard", "npu", None, None, problem=problem))

    def _fail(self, failure: Failure) -> None:
        self.failures.append(failure)
        if failure.finding is None:
            self.row(failure.stage, failure.level, "typed", [], note=failure.problem)

    # -- values --------------------------------------------------------------------------------------------

    def _source(self, state: ExaminedModule) -> None:
        """The source's own values, and what the whole program may be off."""
        if not self.options.accumulated or not self.options.values:
            return
        if state.level == "npu":
            trace = state.golden = self._host_run(state)
        else:
            settings = Settings(likely=state.level == "graph", once=self.options.once)
            trace = state.golden = GraphWalk(state.module, self.cache, settings).run(self.inputs)
        self.tolerances = trace.result_bounds or [None] * len(trace.results)
        self._unmeasured.append(state)
        if self.reference is None:
            self.reference = trace.results
        memory = "bytes" if self._addressed(state) else "typed"
        differences = self.row(SOURCE, state.level, memory, trace.results)
        worst = max(differences, key=lambda d: d.ratio, default=None)
        if worst is not None and worst.ratio > 1:
            end = _main_end(state.module)
            finding = WrongValue(end, differences.index(worst), (), worst)
            self._fail(Failure("frontend", "wrong value", state.level, None, state.module, trace, finding))

    def _golden(self, state: ExaminedModule) -> Trace:
        """The run of a level that the next pass is judged against."""
        if state.golden is None:
            if state.level == "npu":
                state.golden = self._host_run(state)
            else:
                state.golden = GraphWalk(state.module, self.cache, Settings()).run(self.inputs)
        if self.reference is None:
            self.reference = state.golden.results
        self.goldens[state.name] = state.golden
        return state.golden

    def run_of(self, module: ModuleOp) -> Trace:
        """The values of a graph- or tile-level module on the program's inputs."""
        return GraphWalk(module, self.cache, Settings()).run(self.inputs)

    def _addressed(self, state: ExaminedModule) -> bool:
        return state.level == "npu" and "addressed" in states_of(state.module)

    def _host_run(
        self, state: ExaminedModule, golden: Trace | None = None, memory: Memory | None = None
    ) -> Trace:
        if memory is None:
            memory = "bytes" if self._addressed(state) else "typed"
        walk = HostWalk(state.module, self.machine, self.cache, memory, golden, self.options.once)
        return walk.run(self.inputs)

    def _judge(self, stage: Stage, before: ExaminedModule, after: ExaminedModule) -> None:
        if not self.options.values:
            if "synchronized" in states_of(after.module):
                self._hazards(stage.name, before, after)
            return
        try:
            golden = self._golden(before)
            if after.level == "npu":
                self._judge_npu(stage, before, after, golden)
            elif before.level == "tile":
                self._judge_tile(stage, before, after, golden)
            else:
                settings = Settings(golden=golden, once=self.options.once, changes_numerics=stage.changes_numerics)
                isolated = GraphWalk(after.module, self.cache, settings).run(self.inputs)
                self._note(stage, before, after, golden, isolated)
                if stage.changes_numerics and not self._done():
                    self._rounded(after, isolated)
                else:
                    self._accumulated(after, isolated)
        except VerifyException as error:
            self._fail(
                Failure(stage.name, "crash", after.level, before.module, after.module, problem=str(error))
            )

    def _judge_tile(self, stage: Stage, before: ExaminedModule, after: ExaminedModule, golden: Trace) -> None:
        """A pass from the tile level to itself keeps all bits: those that the module before has, not those that it was
        judged on."""
        if self.checks and structure(before.module) == structure(after.module):
            self._same_row(stage, "typed", exact=True)
        else:
            if golden.replaced:
                golden = before.golden = self.goldens[before.name] = self.run_of(before.module)
            settings = Settings(golden=golden, once=self.options.once)
            trace = GraphWalk(after.module, self.cache, settings).run(self.inputs)
            self._note(stage, before, after, golden, trace)
            self.row(after.name, after.level, "typed", trace.results, trace, exact=True)
            golden = trace
        after.golden = self.goldens[after.name] = golden

    def _same_row(self, stage: Stage, memory: Memory, exact: bool) -> None:
        """The row of a pass that changes nothing."""
        last = next(c for c in reversed(self.checks) if c.memory == memory)
        alone = {"isolated": 0.0, "compared": 0, "numbers_alone": 0, "open_alone": 0}
        self.checks.append(replace(last, stage=stage.name, exact=exact, **alone))

    def _accumulated(self, after: ExaminedModule, isolated: Trace) -> None:
        """The whole program after a graph or tile pass, on its own values."""
        if self.options.once or self._done() or not isolated.replaced:
            # what was right on golden inputs stays golden: the next pass is judged against that; and where each op
            # gave the golden bits, the values are the program's own
            trace = isolated
        else:
            trace = GraphWalk(after.module, self.cache, Settings()).run(self.inputs)
        after.golden = self.goldens[after.name] = trace
        self.row(after.name, after.level, "typed", trace.results, isolated)

    def _rounded(self, after: ExaminedModule, isolated: Trace | None = None) -> None:
        """The whole program after a pass that rounds to narrower types: its values are what later passes are judged
        against, and how far they may be off by the roundings is what they may be from the reference."""
        settings = Settings(likely=self.options.accumulated, once=self.options.once)
        trace = GraphWalk(after.module, self.cache, settings).run(self.inputs)
        after.golden = self.goldens[after.name] = trace
        if self.options.accumulated:
            bounds = trace.result_bounds or [None] * len(trace.results)
            self.tolerances = [both(a, b, "likely") for a, b in zip(self.tolerances, bounds, strict=True)]
            self._unmeasured.append(after)
        self._standing = None
        self.rounded = after.name
        self.row(after.name, after.level, "typed", trace.results, isolated, note=self._overflow(trace))

    def _overflow(self, trace: Trace) -> str:
        """Says which op of a run is the first to leave the range of its type, where results are infinite or NaN for it
        that are finite in the reference; no bound says anything of them."""
        reference = self.counted(self.reference or ())
        pairs = zip(self.counted(trace.results), reference, strict=False)
        lost = sum(int((_finite(want) & ~_finite(x).reshape(np.shape(want))).sum()) for x, want in pairs)
        if not lost:
            return ""
        for key, made in trace.made.items():
            y = trace.values[key]
            known = bool(made.operands) and all(_finite(x).all() for x in made.operands)
            if known and roundoff(np.dtype(y.dtype)) > roundoff(np.dtype(np.float32)) and not _finite(y).all():
                return f"{describe(made.op)} is the first to overflow; {lost} finite numbers of the results are lost"
        return f"{lost} finite numbers of the results are infinite or NaN"

    def _judge_npu(self, stage: Stage, before: ExaminedModule, after: ExaminedModule, golden: Trace) -> None:
        exact = before.level != "graph"
        modes: list[Memory] = ["typed", "bytes"] if self._addressed(after) else ["typed"]
        for memory in modes:
            if self._unchanged(before, after, memory):
                self._same_row(stage, memory, exact)
                continue
            trace = self._host_run(after, golden, memory)
            self._note(stage, before, after, golden, trace)
            self.row(after.name, "npu", memory, trace.results, trace, exact)
            if self._done():
                return
            if memory == "bytes" and trace.findings:
                self.bitwise = False
        # equal bits launch by launch: the golden run is this one's too
        after.golden = golden
        self.goldens[after.name] = golden
        if "synchronized" in states_of(after.module):
            self._hazards(stage.name, before, after)

    def _unchanged(self, before: ExaminedModule, after: ExaminedModule, memory: Memory) -> bool:
        """Whether the instructions of both modules are the same, so that their values are: typed memory has no
        addresses, and flags change no value."""
        if before.level != "npu" or not any(c.memory == memory and c.level == "npu" for c in self.checks):
            return False
        if memory == "bytes" and self._planned(before) != self._planned(after):
            return False
        addressed = memory == "bytes"
        return structure(before.module, addressed) == structure(after.module, addressed)

    def _planned(self, state: ExaminedModule) -> bool:
        return "planned" in states_of(state.module)

    def _hazards(self, name: str, before: ExaminedModule, after: ExaminedModule) -> None:
        """What values cannot show: a deadlock, and where there is a checker a race."""
        problem = ""
        try:
            simulate(after.module, self.machine)
            checker = all_passes().get(CHECKER)
            if checker is not None:
                judge, copy = checker()(), after.module.clone()
                # of a program halfway down it judges what is there
                judge.run(copy) if isinstance(judge, LevelPass) else judge.apply(Context(), copy)
        except (SimulationError, PassError, VerifyException) as error:
            problem = one_line(str(error))
        if problem:
            self._fail(Failure(name, "hazard", "npu", before.module, after.module, problem=problem))

    def _note(
        self, stage: Stage, before: ExaminedModule, after: ExaminedModule, golden: Trace, run: Trace
    ) -> None:
        if run.findings:
            found = run.findings[0]
            failure = Failure(
                stage.name, "wrong value", after.level, before.module, after.module, golden, found
            )
            failure.problem = found.problem
            self.failures.append(failure)

    # -- rows ----------------------------------------------------------------------------------------------

    def row(
        self,
        stage: str,
        level: str,
        memory: str,
        results: Sequence[Any],
        run: Trace | None = None,
        exact: bool = False,
        note: str = "",
    ) -> list[Difference]:
        """Adds a check; gives the difference of each result from the reference. run: the judged one, on golden
        inputs."""
        isolated, compared = (None, 0) if run is None else (run.worst, run.compared + run.proven)
        standing = self._standing_of(results)
        ratio = standing.ratio if self.options.accumulated else 0.0
        values = (isolated, compared, exact, note, standing.numbers, standing.open)
        alone = (0, 0) if run is None else (run.numbers, run.open)
        self.checks.append(
            Check(stage, level, memory, standing.error, standing.tolerance, ratio, *values, *alone)
        )
        return standing.differences

    def _counting(self, i: int) -> tuple[slice, ...] | None:
        """What counts of result i, whose size depends on data, as the reference says; None where all of it does."""
        mine = [e for e in self._extents if e.result == i]
        if not mine or self.reference is None:
            return None
        sizes = {e.dim: int(np.asarray(self.reference[e.by])) for e in mine}
        return tuple(slice(sizes.get(d)) for d in range(max(sizes) + 1))

    def counted(self, results: Sequence[Any]) -> list[Any]:
        """What counts of flat results."""
        found = [(x, self._counting(i)) for i, x in enumerate(results)]
        return [x if counting is None else np.asarray(x)[counting] for x, counting in found]

    def _standing_of(self, results: Sequence[Any]) -> Standing:
        """Results beside the reference; those with the bits of the row before stand as they do. Where some are further
        off than errors that are independent, how far errors move them is measured first."""
        last = self._standing
        if (
            last is not None
            and last.reference is self.reference
            and len(last.results) == len(results)
            and all(
                same_bits(np.asarray(a), np.asarray(b)) for a, b in zip(last.results, results, strict=True)
            )
        ):
            return last
        found = self._compared(results)
        if found.ratio > 1 and self._unmeasured:
            self._measure()
            found = self._compared(results)
        self._standing = found if results else last
        return found

    def _measure(self) -> None:
        """Widens the tolerances by what the roundings of each op, drawn at random, make of the results: where one value
        is used again and again, its error is the same each time and does not even out. Below the graph level only the
        order of sums is open."""
        for state in self._unmeasured:
            spread = deviations(lambda drawn, state=state: self._moved(state, drawn))
            if state.level == "graph":
                pairs = zip(self.tolerances, spread, strict=True)
                self.tolerances = [e if e is None else jnp.maximum(e, s) for e, s in pairs]
            else:
                assert state.golden is not None
                results = map(np.asarray, state.golden.results)
                self.tolerances = [jnp.asarray(evened(s, x)) for s, x in zip(spread, results, strict=True)]
        self._unmeasured.clear()

    def _moved(self, state: ExaminedModule, drawn: np.random.Generator | None) -> Sequence[Any]:
        """The results of a level with errors that are drawn, where they are."""
        if state.level == "graph":
            settings = Settings(record=False, noise=drawn)
            return GraphWalk(state.module, self.cache, settings).run(self.inputs).results
        with nullcontext() if drawn is None else other_orders(drawn):
            if state.level == "npu":
                return self._host_run(state).results
            return GraphWalk(state.module, self.cache, Settings(record=False)).run(self.inputs).results

    def _compared(self, results: Sequence[Any]) -> Standing:
        """Results beside the reference, whatever was found before."""
        known = self.reference if self.reference is not None else ()
        found = Standing(self.reference, results, self.exact)
        for i, x in enumerate(results if self.reference is not None else ()):
            want = known[i] if i < len(known) else None
            bound = self.tolerances[i] if i < len(self.tolerances) else None
            counting = self._counting(i)
            if counting is not None:
                whole = np.shape(x)
                x, want = np.asarray(x)[counting], np.asarray(want)[counting]
                bound = None if bound is None else jnp.broadcast_to(bound, whole)[counting]
            found.add(x, want, bound)
        return found


def _finite(x: Any) -> np.ndarray:
    """Which numbers of an array are finite."""
    array = np.asarray(x)
    return np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


def _main_end(module: ModuleOp) -> Operation:
    end = main_of(module).body.block.last_op
    assert end is not None
    return end
