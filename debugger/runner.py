"""A run of a program that stops at breakpoints and faults, and is taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from xdsl.dialects import func
from xdsl.ir import Operation

from ..backends.stepper import Race, StepFault, StepProgram, StepRun
from ..backends.stepper.cores import SteppedCore
from ..backends.stepper.launch import SteppedLaunch
from ..dialects.base import source_of
from ..dialects.npu import NpuOp
from ..dialects.npu.structure import KernelOp
from ..dialects.sizes import Sizes
from .breakpoints import Breakpoint, Code, Touch, parse, touches_of
from .errors import DebugError
from .expressions import Expression
from .listing import Listing
from .lookahead import Arrival
from .scopes import GM, NameScope
from .texts import array_text, core_text, mark_text

NO_SIZES: Sizes = {}

Reason = Literal["step", "breakpoint", "fault", "end", "interrupt"]


@dataclass(frozen=True)
class Stop:
    """Where a program stopped, and why. text: as the prompt shows it; breakpoint: that was hit; fault: that was met."""

    reason: Reason
    text: str
    breakpoint: Breakpoint | None = None
    fault: StepFault | None = None

    def __str__(self) -> str:
        return self.text


class Runner:
    """A program of the npu level on some arguments, run one instruction at a time.

    It begins before the first instruction. `run`, `step`, `next`, `finish` and `resume` go on and give the `Stop`;
    a fault of the program (a race, a read of what nothing wrote, an access out of bounds, a deadlock) is a stop, too.
    `back` runs it again up to an earlier instruction: runs are the same each time. What cannot be done raises
    DebugError.
    """

    def __init__(
        self, program: StepProgram, arrays: Sequence[Any], sizes: Sizes = NO_SIZES, name: str = "the program"
    ) -> None:
        """arrays: of `@main`'s arguments. Raises TypeError where they do not fit."""
        self.program, self.sizes, self.name = program, sizes, name
        self.arrays = [np.array(x) for x in arrays]
        self.breakpoints: list[Breakpoint] = []
        self._made = 0
        self._listings: dict[Operation, Listing] = {}
        kernels = program.functions.kernels
        self.code = Code(
            {kernel: self.listing(op) for kernel, op in kernels.items()},
            {kernel: [i for i in op.walk() if isinstance(i, NpuOp)] for kernel, op in kernels.items()},
            list(program.machine.spaces),
        )
        self.is_interrupted = False
        """Whether a run stops before its next instruction."""
        self.is_running = False
        self._begin()

    def _begin(self) -> None:
        self.session: StepRun = self.program.session(self.arrays, self.sizes)
        self.position = 0
        """How many instructions it came to: the number of the one that it is at."""
        self.fault: StepFault | None = None
        self.launches: list[tuple[SteppedLaunch, int]] = []
        """The launches that began, with the number of the first instruction of each."""
        self._seen: dict[SteppedCore, Arrival] = {}
        self._line: str | None = None
        self._lines: dict[SteppedCore, str | None] = {}
        self._is_new_launch = self._is_new_line = False
        for each in self.breakpoints:
            each.held = False

    # -- where it is ---------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the program ran to its end."""
        return self.session.is_over

    @property
    def has_begun(self) -> bool:
        return self.position > 0 or self.is_over or self.fault is not None

    @property
    def core(self) -> SteppedCore | None:
        """The core that a fault is on, or whose instruction is next; None where the host program runs."""
        running, session = self.session.running, self.session
        if running is None:
            return None
        if self.fault is not None and session.core is not None and session.core.node.op is not self.fault.op:
            for core in running.running:
                if getattr(core, "node", None) is not None and core.node.op is self.fault.op:
                    return core
        return session.core

    def listing(self, op: Operation) -> Listing:
        """The text of the kernel or function that an op is in."""
        top = op
        while not isinstance(top, KernelOp | func.FuncOp) and (parent := top.parent_op()) is not None:
            top = parent
        if top not in self._listings:
            self._listings[top] = Listing(top)
        return self._listings[top]

    @property
    def op(self) -> Operation:
        """The instruction that is next or that a fault is at; or the command of the host program."""
        core = self.core
        if core is None:
            return self.session.command
        return core.node.op

    def scope(self, in_main: bool = False) -> NameScope:
        """Where names are looked up."""
        core = None if in_main else self.core
        op = self.op if core is not None else self.session.command
        return NameScope(self.session, self.listing(op), core, op)

    # -- running -------------------------------------------------------------------------------------------

    def run(self) -> Stop:
        """Runs from the beginning to the first stop."""
        if self.has_begun:
            self._begin()
        return self._go(lambda core: False)

    def resume(self) -> Stop:
        """Runs on to the next stop: the debugger's `continue`."""
        return self._go(lambda core: False)

    def step(self, count: int = 1) -> Stop:
        """Runs to the next instruction, of whichever core, or `count` of them on."""
        end = self.position + count
        return self._go(lambda core: self.position >= end)

    def next(self, count: int = 1) -> Stop:
        """Runs to the next instruction of this core, or `count` of them on: of the block after it, where it has no
        more."""
        left = count

        def is_there(core: SteppedCore) -> bool:
            nonlocal left, here
            if here is None or core is here or core.block != here.block:
                left, here = left - 1, core
            return left <= 0

        here = self.session.core
        return self._go(is_there)

    def finish(self) -> Stop:
        """Runs to the end of this launch: to the first instruction of the next one."""
        here = self.session.running
        if here is None:
            raise DebugError("no launch runs: 'run' or 'step' begins the program")
        return self._go(lambda core: core.launch is not here)

    def back(self, count: int | None = None) -> Stop:
        """Runs again up to the beginning of this launch, where it is there already of the one before; or up to `count`
        instructions earlier."""
        if count is not None:
            target = self.position - count
        else:
            bound = self.position + (self.is_over or self.fault is not None)
            target = max((first for _, first in self.launches if first < bound), default=0)
        if target < 1:
            raise DebugError(
                "there is no instruction before that" if self.has_begun else "the program has not begun"
            )
        self._begin()
        while self.position < target:
            if self._advance() is None:
                break
        return Stop("step", self.here())

    def results(self) -> list[np.ndarray]:
        """The results of `@main`. Raises DebugError before the end, and StepFault for one that nothing wrote."""
        if not self.is_over:
            raise DebugError("the program is not over: 'continue' runs it to its end")
        return self.session.results()

    def _go(self, is_there: Callable[[SteppedCore], bool]) -> Stop:
        if self.fault is not None:
            raise DebugError(
                "the program stopped at a fault: 'back' goes to the launch, 'run' to the beginning"
            )
        if self.is_over:
            raise DebugError("the program is over: 'back' goes to the last launch, 'run' to the beginning")
        self.is_interrupted, self.is_running = False, True
        try:
            return self._run_on(is_there)
        finally:
            self.is_running = False

    def _run_on(self, is_there: Callable[[SteppedCore], bool]) -> Stop:
        while True:
            touches, ran = self._touches_behind(), self.session.core
            before = self._host_writes()
            try:
                core = self._advance()
            except StepFault as error:
                self.fault = error
                return Stop("fault", self.fault_text(error), fault=error)
            hits = self._hits_behind(ran, touches) + self._hits_of_host(before)
            if core is not None:
                hits += self._hits_at(core)
            if hits:
                for each, _ in hits:
                    each.hits += 1
                why = "\n".join(f"breakpoint {each.number}, {each.text}{said}" for each, said in hits)
                return Stop("breakpoint", f"{why}\n{self.here()}", hits[0][0])
            if core is None:
                return Stop("end", self.here())
            if is_there(core):
                return Stop("step", self.here())
            if self.is_interrupted:
                return Stop("interrupt", f"interrupted\n{self.here()}")

    def _advance(self) -> SteppedCore | None:
        """Runs the instruction that it is at, and comes to the next one."""
        session = self.session
        if session.core is not None:
            core = session.core
            self._seen[core] = (core.node, tuple(core.env))
        core = session.advance()
        if core is None:
            return None
        self.position += 1
        self._is_new_launch = not self.launches or self.launches[-1][0] is not core.launch
        if self._is_new_launch:
            self.launches.append((core.launch, self.position))
            self._seen, self._lines = {}, {}
        line = source_of(core.node.op)
        self._is_new_line = self._lines.get(core) != line
        self._lines[core] = line
        return core

    # -- breakpoints ---------------------------------------------------------------------------------------

    def break_at(self, where: str = "", when: str = "") -> Breakpoint:
        """Makes a breakpoint. where: `exp`, `mmad` or another instruction, `model.py:12`, `@exp_0`, `%5`, `ub+4096` or
        `gm+1024..2047` with `read` or `write` behind it or without; when: `nan`, `inf`, `outside -1..1` or an
        expression such as `%5 > 100`. Either may be empty."""
        text = f"{where} if {when}".strip() if when else where
        scope = self.scope() if self.session.core is not None else None
        made = parse(self._made + 1, text, self.code, scope)
        self._made += 1
        self.breakpoints.append(made)
        return made

    def delete(self, number: int) -> None:
        """Removes a breakpoint."""
        kept = [b for b in self.breakpoints if b.number != number]
        if len(kept) == len(self.breakpoints):
            known = ", ".join(str(b.number) for b in kept)
            raise DebugError(f"there is no breakpoint {number}{f'; there are {known}' if known else ''}")
        self.breakpoints = kept

    def _touches_behind(self) -> list[Touch]:
        """What the instruction that it is at is going to write, where a breakpoint asks for it."""
        event = self.session.event
        if event is None or not any(b.is_behind for b in self.breakpoints):
            return []
        return touches_of(event, self.listing(event.op))

    def _hits_behind(self, ran: SteppedCore | None, touches: Sequence[Touch]) -> list[tuple[Breakpoint, str]]:
        """The breakpoints that an instruction hits by what it wrote."""
        found = list[tuple[Breakpoint, str]]()
        writes = [t for t in touches if t.write and t.values is not None and t.values.size]
        if ran is None or not writes:
            return found
        op = self._seen[ran][0].op if ran in self._seen else None
        if op is None:
            return found
        listing, kernel = self.listing(op), ran.launch.plan.name
        for each in (b for b in self.breakpoints if b.is_behind):
            condition = each.condition
            assert condition is not None
            if not each.is_at(op, kernel, True, True) or (each.kernel and each.kernel != kernel):
                continue
            if each.kind in ("address", "value") and not each.touches(touches, listing):
                continue
            if condition.expression is not None:
                names = set(condition.expression.names)
                if any(names & t.names for t in writes) and self._holds(condition.expression, ran, op):
                    found.append((each, f": after {listing.said(op)}"))
                continue
            for touch in writes:
                assert touch.values is not None
                where = condition.of_values(touch.values)
                if where.any():
                    found.append((each, f": {_said_values(touch, where)}, written by {listing.said(op)}"))
                    break
        return found

    def _hits_at(self, core: SteppedCore) -> list[tuple[Breakpoint, str]]:
        """The breakpoints that it comes to with the instruction that is next."""
        op, kernel, found = core.node.op, core.launch.plan.name, list[tuple[Breakpoint, str]]()
        touches: list[Touch] | None = None
        for each in self.breakpoints:
            if each.is_behind or not each.is_at(op, kernel, self._is_new_launch, self._is_new_line):
                continue
            if each.needs_accesses:
                event = self.session.event
                if touches is None and event is not None:
                    touches = touches_of(event, self.listing(op))
                if not each.touches(touches or (), self.listing(op)):
                    continue
            if each.condition is not None:
                assert each.condition.expression is not None
                held, each.held = each.held, self._holds(each.condition.expression, core, op)
                if not each.held or (held and each.kind in ("any", "kernel")):
                    continue
            found.append((each, ""))
        return found

    def _holds(self, expression: Expression, core: SteppedCore, op: Operation) -> bool:
        """Whether a condition is true on a core; not where a name stands for nothing there."""
        scope = NameScope(self.session, self.listing(op), core, op)
        try:
            return expression.holds({name: scope.find(name).values for name in expression.names})
        except DebugError:
            return False

    def _host_writes(self) -> Mapping[int, np.ndarray]:
        """For breakpoints at device memory, who wrote there last."""
        device, found = self.session.device, {}
        for each in self.breakpoints:
            if (
                each.kind == "address"
                and each.span is not None
                and each.span.space == GM
                and each.access != "read"
            ):
                part = slice(each.span.start // device.granule, -(-each.span.end // device.granule))
                found[each.number] = device.writer[part].copy()
        return found

    def _hits_of_host(self, before: Mapping[int, np.ndarray]) -> list[tuple[Breakpoint, str]]:
        """The breakpoints at device memory that commands of the host program wrote since."""
        found = list[tuple[Breakpoint, str]]()
        if not before:
            return found
        now = self._host_writes()
        for each in self.breakpoints:
            if each.number in before and not np.array_equal(before[each.number], now[each.number]):
                mark = self.session.device.log[int(now[each.number].max())]
                if mark is not None and mark.core is None:
                    found.append((each, f": written by {mark_text(mark, self.listing)}"))
        return found

    # -- what is said of it ----------------------------------------------------------------------------------

    def here(self) -> str:
        """Where it is, in two lines: the core and its indices, and the instruction."""
        if self.is_over:
            count = len(self.session.program.functions.main.function_type.outputs)
            return (
                f"{self.name} is over after {self.position} instructions: {count} result{'s' * (count != 1)}"
            )
        if not self.has_begun:
            return f"{self.name} has not begun: 'run' or 'step' does it"
        scope, place = self.scope(), source_of(self.op)
        at = f"{place}: " if place else ""
        if scope.core is None:
            return f"the host program\n{at}{scope.listing.said(self.op)}"
        pipe = scope.core.section.pipes[scope.core.node.queue]
        number = len(self.launches)
        head = f"instruction {self.position}, launch {number}: {core_text(scope, scope.core)}"
        return f"{head}\n{at}{scope.listing.said(self.op)} on {pipe}"

    def fault_text(self, error: StepFault) -> str:
        lines = [str(error)]
        if isinstance(error, Race) and error.before is not None:
            lines.append(
                f"the other one: {self.listing(error.before).said(error.before)}{_placed(error.before)}"
            )
        return "\n".join([*lines, self.here()])


def _placed(op: Operation) -> str:
    place = source_of(op)
    return f" ({place})" if place else ""


def _said_values(touch: Touch, where: np.ndarray) -> str:
    """`%5[0, 3] = nan, and 4 more`."""
    assert touch.values is not None
    first = tuple(int(i) for i in np.argwhere(where)[0])
    count = int(where.sum())
    name = min(touch.names, default=touch.space)
    place = f"[{', '.join(map(str, first))}]" if first else ""
    more = f", and {count - 1} more" if count > 1 else ""
    return f"{name}{place} = {array_text(touch.values[first])}{more}"
