"""The host program: addresses in device memory, and who wrote each tensor before it is read.

Launches, copies and host calls run one after the other. Numbers in the host's memory are values: they need no check.
A tensor holds what was written to it until another tensor at the same bytes is written. Loops are walked twice, so
that a tensor that one iteration destroys is missed in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from ....dialects.base import integer, to_ints
from ....dialects.dtypes import shape_in
from ....dialects.graph.donation import donated
from ....dialects.npu import GmType, ViewOp, gm
from ....dialects.npu.host_program import DeviceTensorOp, HostVisitor
from ....dialects.npu.places import addresses_of, frame_of
from ....dialects.npu.streams import Command
from ....dialects.npu.structure import (
    BranchOp,
    CallOp,
    GmAllocOp,
    GmConstantOp,
    LaunchOp,
    LoopOp,
    NpuYieldOp,
    ScalarsOp,
    ToDeviceOp,
    ToHostOp,
)
from ....dialects.open_sizes import is_open
from ....machine import Machine
from .device import KernelSummary
from .finding import Bytes, Finding
from .parts import Part
from .ranges import ByteRange, common, is_empty, is_multiple, may_meet, meeting, never_above


@dataclass(frozen=True)
class Contents:
    """What a tensor holds: nothing yet, its own contents, a part of them, another tensor's, or a function's. `by` is
    the op that made it so, `part` the elements that are there."""

    kind: str
    by: Operation | None = None
    other: SSAValue | None = None
    part: Part | None = None


def call_of(func: FuncOp) -> CallOp | None:
    """A call of a function; None where nobody calls it."""
    module, name = func.parent_op(), func.sym_name.data
    calls = () if module is None else (op for op in module.walk() if isinstance(op, CallOp))
    return next((op for op in calls if op.callee.root_reference.data == name), None)


def outputs_of(func: FuncOp) -> int:
    """How many of a called function's arguments it writes, by a call of it; 0 where nobody calls it."""
    call = call_of(func)
    return 0 if call is None else integer(call.outputs)


def updates_of(func: FuncOp) -> tuple[int, ...]:
    """Which of the tensors that a called function writes hold something before, by a call of it."""
    call = call_of(func)
    return () if call is None else to_ints(call.updates)


WHOLE, NOTHING = Contents("whole"), Contents("nothing")


class HostFunctionCheck(HostVisitor[None]):
    """One function of the host program. `frames`: for each function that is called, the bytes that it and what it calls
    write besides its arguments; `arena`: the size of device memory in use."""

    def __init__(
        self,
        func: FuncOp,
        kernels: dict[str, KernelSummary],
        frames: Mapping[str, tuple[int, int]],
        arena: int,
        machine: Machine,
    ) -> None:
        self.func, self.kernels, self.machine = func, kernels, machine
        self.frames, self.arena = frames, arena
        self.findings: list[Finding] = []
        self.roots: dict[SSAValue, SSAValue] = {}
        self.ranges: dict[SSAValue, tuple[int, int]] = {}
        self.makers: dict[SSAValue, Operation] = {}
        self.neighbours: dict[SSAValue, list[SSAValue]] = {}
        """For each tensor those that share bytes with it, in order."""
        self.states: dict[SSAValue, Contents] = {}
        self.kept: set[SSAValue] = set()
        """Arguments that the function must leave as they are."""
        self.waiting: dict[SSAValue, Part] = {}
        """Which elements tensors have that wait in the host's memory, and do not have all."""

    def run(self) -> list[Finding]:
        """All findings of the function."""
        addresses = addresses_of(self.func)
        block, given = self.func.body.block, len(self.func.body.block.args)
        if addresses is not None:
            for arg, address in zip(block.args, addresses, strict=False):
                self._place(arg, address, self.func)
        else:  # called: its arguments are wherever its callers have them
            given -= outputs_of(self.func)
            for arg in block.args:
                self.roots[arg] = arg
                self.makers[arg] = self.func
        held = {given + o for o in (updates_of(self.func) if addresses is None else ())}
        for i, arg in enumerate(block.args):
            self.states[arg] = WHOLE if i < given or i in held else NOTHING
        donations = donated(self.func) if self.func.arg_attrs is not None else (False,) * given
        self.kept = {arg for arg, free in zip(block.args[:given], donations, strict=False) if not free}
        for op in self.func.walk():
            if isinstance(op, DeviceTensorOp) and op.address is not None:
                self._place(op.result, integer(op.address), op)
                self.states[op.result] = WHOLE if isinstance(op, GmConstantOp) else NOTHING
        self._bounds(self.arena)
        self._neighbours()
        self._together_at_the_start()
        last = self._block(block)
        if last is not None:
            for arg in block.args[given:]:
                self._read(arg, last)
        for arg in block.args[:given]:
            self._unchanged(arg)
        return self.findings

    def _together_at_the_start(self) -> None:
        """Arguments are there at once; what constants share, `constants_apart` says."""
        earlier: set[SSAValue] = set()
        for root in self.func.body.block.args:
            if self.states[root] is WHOLE:
                for other in self.neighbours.get(root, ()):
                    if other in earlier:
                        what = "{first} has a device tensor over another one that is there from the start"
                        where = self._shared(root, other)
                        self.findings.append(Finding("device-overlap", what, self.makers[root], bytes=where))
                earlier.add(root)

    def _unchanged(self, arg: SSAValue) -> None:
        """Nothing was written over an argument that is not donated."""
        state = self.states[arg]
        if arg in self.kept and state.by is not None:
            what = "{first} overwrites an argument that is not donated"
            where = None if state.other is None else self._shared(arg, state.other)
            self.findings.append(Finding("device-overlap", what, state.by, bytes=where))

    # -- addresses -----------------------------------------------------------------------------------------

    def _place(self, root: SSAValue, address: int, op: Operation) -> None:
        self.ranges[root] = (address, address + gm(root).bytes)
        self.roots[root] = root
        self.makers[root] = op

    def _bounds(self, arena: int) -> None:
        align = self.machine.gm_align
        if not is_open(arena):
            arena = min(arena, self.machine.spaces["gm"].bytes)
        frame = frame_of(self.func)
        for root, (start, end) in self.ranges.items():
            where, made = Bytes("gm", start, end), self.makers[root]
            if not (never_above(0, start) and never_above(end, arena)):
                what = f"{{first}} leaves the arena of {arena} bytes"
                self.findings.append(Finding("device-bounds", what, made, bytes=where))
            if not is_multiple(start, align):
                what = f"{{first}} does not start at a multiple of {align} bytes"
                self.findings.append(Finding("misaligned", what, made, bytes=where))
            if frame is None or not isinstance(made, GmAllocOp) or is_empty((start, end)):
                continue
            if not (never_above(frame[0], start) and never_above(end, frame[1])):
                what = f"{{first}} leaves the frame of {{second}}, bytes {frame[0]}..{frame[1] - 1}"
                self.findings.append(Finding("device-bounds", what, made, self.func, where))

    def _neighbours(self) -> None:
        """Pairs of tensors that share bytes."""
        for one, other in meeting([(s, e, root) for root, (s, e) in self.ranges.items()]):
            self.neighbours.setdefault(one, []).append(other)
            self.neighbours.setdefault(other, []).append(one)

    def _shared(self, a: SSAValue, b: SSAValue) -> Bytes:
        return Bytes("gm", *common(self.ranges[a], self.ranges[b]))

    # -- contents ------------------------------------------------------------------------------------------

    def _read(self, value: SSAValue, op: Operation, seen: Callable[[], Part] | None = None) -> None:
        """seen: which elements are read, None for all of them."""
        if not isinstance(value.type, GmType):
            return
        root = self.roots[value]
        state = self.states[root]
        if state.kind == "whole" or not gm(root).bytes:
            return
        if state.part is not None and seen is not None and state.part.covers(seen()):
            return
        found: Finding
        if state.kind == "nothing":
            what = "{first} reads a device tensor that nothing wrote, {second}"
            found = Finding("device-uninitialised", what, op, self.makers[root])
        elif state.kind == "part":
            assert state.by is not None
            assert state.part is not None
            at = [int(i) for i in np.unravel_index(state.part.missing(), gm(root).shape or (1,))]
            what = f"{{first}} leaves element {at} of a tensor unwritten, which {{second}} reads"
            found = Finding("uncovered", what, state.by, op)
        elif state.kind == "frame":
            assert state.by is not None
            what = "{first} runs a function that overwrites a device tensor that {second} still reads"
            found = Finding("device-overlap", what, state.by, op)
        else:
            assert state.by is not None and state.other is not None
            what = "{first} overwrites a device tensor that {second} still reads"
            where = self._shared(root, state.other)
            found = Finding("device-overlap", what, state.by, op, where)
        self.findings.append(found)
        self.states[root] = WHOLE  # once is enough

    def _write(self, value: SSAValue, op: Operation, part: Part | None = None) -> None:
        root = self.roots[value]
        old = self.states[root]
        if root in self.kept:
            self.kept.remove(root)  # once is enough
            self.findings.append(Finding("in-place", "{first} writes an argument that is not donated", op))
        if part is not None and old.kind == "part":
            assert old.part is not None
            part = part | old.part
        if part is None or part.whole:
            self.states[root] = WHOLE
        elif old.kind in ("nothing", "part"):
            self.states[root] = Contents("part", op, None, part)
        gone = Contents("other", op, root)
        for other in self.neighbours.get(root, ()):
            if self.states[other].kind != "nothing":
                self.states[other] = gone

    def _apart(self, written: SSAValue, used: Mapping[SSAValue, int], op: Operation) -> None:
        """What an op writes shares no bytes with other tensors that it uses (`_used`)."""
        a = self.roots[written]
        met = [b for b in self.neighbours.get(a, ()) if b in used]
        for b in sorted(met, key=used.__getitem__):
            what = "{first} writes a device tensor over another one that it uses"
            self.findings.append(Finding("device-overlap", what, op, bytes=self._shared(a, b)))

    def _used(self, values: Iterable[SSAValue]) -> dict[SSAValue, int]:
        """The tensors behind some operands of an op, numbered."""
        roots = (self.roots[value] for value in values if value in self.roots)
        return {root: number for number, root in enumerate(dict.fromkeys(roots))}

    # -- ops -----------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> Operation | None:
        last = None
        for op in block.ops:
            self.visit(op)
            last = op
        return last

    def passive(self, op: Operation) -> None:
        pass

    def foreign(self, op: Operation) -> None:
        pass

    def view(self, op: ViewOp) -> None:
        self.roots[op.result] = self.roots[op.source]

    def tensor(self, op: DeviceTensorOp) -> None:
        if isinstance(op, GmAllocOp):
            self.states[op.result] = NOTHING

    def command(self, op: Command) -> None:
        for value in op.reads():
            self._read(value, op)
        self._written(op, None)

    def _written(self, op: Command, part: Part | None) -> None:
        """What a command writes: all of it, or a part."""
        used = self._used((*op.reads(), *op.written()))
        for value in op.written():
            self._apart(value, used, op)
        for value in op.written():
            self._write(value, op, part)

    def to_host(self, op: ToHostOp) -> None:
        """What a tensor lacks that only waits in the host's memory, it lacks when it comes back."""
        part = self.states[self.roots[op.source]].part
        if part is None or not op.parks:
            self.waiting.pop(op.result, None)
            self.command(op)
        else:
            self.waiting[op.result] = part

    def to_device(self, op: ToDeviceOp) -> None:
        self._written(op, self.waiting.get(op.source))

    def scalars(self, op: ScalarsOp) -> None:
        pass  # numbers of the host are values

    def yields(self, op: NpuYieldOp) -> None:
        self._leave(op)

    def returns(self, op: ReturnOp) -> None:
        self._leave(op)

    def _leave(self, op: ReturnOp | NpuYieldOp) -> None:
        for value in op.operands:
            self._read(value, op)

    def _misfit(self, op: LaunchOp | CallOp, what: str, target: Operation | None = None) -> None:
        self.findings.append(Finding("bad-call", what, op, target))

    def launch(self, op: LaunchOp) -> None:
        name = op.callee.root_reference.data
        summary = self.kernels.get(name)
        if summary is None:
            self._misfit(op, f"{{first}} launches @{name}, which does not exist")
            return
        kernel = summary.kernel.op
        if len(op.operands) != len(summary.types):
            what = (
                f"{{first}} gives {len(op.operands)} tensors to {{second}}, which takes {len(summary.types)}"
            )
            self._misfit(op, what, kernel)
            return
        for key, mine, its in (
            ("outputs", op.outputs, kernel.outputs),
            ("workspaces", op.workspaces, kernel.workspaces),
        ):
            if integer(mine) != integer(its):
                what = f"{{first}} has {integer(mine)} {key}, {{second}} has {integer(its)}"
                self._misfit(op, what, kernel)
                return
        for i, (value, kind) in enumerate(zip(op.operands, summary.types, strict=True)):
            passed = value.type
            if isinstance(passed, TensorType):  # a number, which lies in the launch's arguments
                passed = GmType.of(shape_in(passed), passed.element_type)
            if passed != kind:
                self._misfit(
                    op, f"{{first}} gives {value.type} for argument {i} of {{second}}, {kind}", kernel
                )
                return
        for i in sorted(summary.writes):
            if isinstance(op.operands[i].type, TensorType):
                self._misfit(
                    op, f"{{first}} gives a number for argument {i} of {{second}}, which writes it", kernel
                )
                return
        used = [i for i in range(len(op.operands)) if i in summary.reads or i in summary.writes]
        for i in used:
            if i in summary.needs or (i in summary.reads and i not in summary.writes):
                self._read(op.operands[i], op, partial(summary.seen, i))
        roots = self._used(op.operands[i] for i in used)
        same: dict[SSAValue, list[int]] = {}
        for i in used:
            if op.operands[i] in self.roots:
                same.setdefault(self.roots[op.operands[i]], []).append(i)
        for i in summary.writes:
            self._apart(op.operands[i], roots, op)
            for j in same[self.roots[op.operands[i]]]:
                fault = self._together(summary, op, i, j) if i != j else None
                self.findings += [fault] if fault is not None else []
        for i in sorted(summary.writes):
            self._write(op.operands[i], op, summary.parts.get(i))

    def _together(self, summary: KernelSummary, op: LaunchOp, written: int, used: int) -> Finding | None:
        """What is wrong with a launch that has one tensor as two arguments, the first of which it writes."""
        if used in summary.writes or used in summary.needs or written in summary.needs:
            what = "{first} gives its kernel one tensor twice, to write and to use"
            return Finding("core-race", what, op)
        return summary.in_place.fault(used, written, op)

    def call(self, op: CallOp) -> None:
        name = op.callee.root_reference.data
        callee = called_function(op)
        if callee is not None and self._misfitting(op, callee):
            return
        if name not in self.frames:
            what = "{first} calls a function that has no frame in device memory"
            self.findings.append(Finding("device-bounds", what, op, callee))
            return
        for value in op.reads():
            self._read(value, op)
        used = self._used(op.operands)
        for value in op.written():
            self._apart(value, used, op)
        given = {self.roots[v] for v in op.inputs()}
        for value in op.written():
            if self.roots[value] in given:
                what = "{first} gives a function one tensor twice, to write and to use"
                self.findings.append(Finding("device-overlap", what, op))
            given.add(self.roots[value])
        frame = self.frames[name]
        for root, (low, high) in self.ranges.items():
            if may_meet(frame, (low, high)):
                if root in used:
                    what = "{first} gives a function a tensor in the memory that it works in"
                    self.findings.append(Finding("device-overlap", what, op, bytes=Bytes("gm", low, high)))
                elif self.states[root].kind != "nothing":
                    self.states[root] = Contents("frame", op)
        for value in op.written():
            self._write(value, op)

    def _misfitting(self, op: CallOp, callee: FuncOp) -> bool:
        """Whether a call does not fit its function; says so."""
        takes, given = [a.type for a in callee.body.block.args], [v.type for v in op.operands]
        if len(given) != len(takes):
            what = f"{{first}} gives {len(given)} tensors to {{second}}, which takes {len(takes)}"
            self._misfit(op, what, callee)
        elif integer(op.outputs) != outputs_of(callee):
            what = f"{{first}} has {integer(op.outputs)} outputs, another call of {{second}} {outputs_of(callee)}"
            self._misfit(op, what, callee)
        elif to_ints(op.updates) != updates_of(callee):
            mine, its = list(to_ints(op.updates)), list(updates_of(callee))
            self._misfit(op, f"{{first}} updates outputs {mine}, another call of {{second}} {its}", callee)
        else:
            for i, (mine, its) in enumerate(zip(given, takes, strict=True)):
                if mine != its:
                    self._misfit(op, f"{{first}} gives {mine} for argument {i} of {{second}}, {its}", callee)
                    return True
            return False
        return True

    def loop(self, op: LoopOp) -> None:
        least, most = rounds(op)
        ends: list[dict[SSAValue, Contents]] = []
        for number in range(most):
            if number >= least:  # it may also end before this round
                ends.append(dict(self.states))
            for region in op.regions:
                block = region.block
                for arg, value in zip(op.state_args(block), op.state, strict=False):
                    self.roots[arg] = self.roots[value]
                last = self._block(block)
                if region is op.body and last is not None:
                    for value, target in zip(last.operands, op.state, strict=False):
                        if self.roots[value] is not self.roots[target]:
                            self._write(target, last)
        if ends:
            self._join([*ends, self.states])

    def branch(self, op: BranchOp) -> None:
        before = dict(self.states)
        after: list[dict[SSAValue, Contents]] = []
        for region in op.branches:
            self.states = dict(before)
            self._block(region.block)
            after.append(self.states)
        self._join(after)
        for value in op.outputs:
            self._write(value, op)

    def _join(self, ways: Sequence[Mapping[SSAValue, Contents]]) -> None:
        """Goes on after one of several ways: a tensor is whole where it is so after each of them."""
        found: dict[SSAValue, Contents] = {}
        for states in ways:
            for root, state in states.items():
                if found.get(root, WHOLE).kind == "whole":
                    found[root] = state
        self.states = found


def rounds(op: LoopOp) -> tuple[int, int]:
    """The fewest and the most rounds of a loop that are walked: two stand for more."""
    if op.trip_count is None:
        return 0, 2
    count = integer(op.trip_count)
    least = sum(never_above(n, count) for n in (1, 2))
    return least, 2 if is_open(count) else least


def called_function(op: CallOp) -> FuncOp | None:
    """The function that a call runs."""
    module = op.parent_op()
    while module is not None and not isinstance(module, ModuleOp):
        module = module.parent_op()
    if module is None:
        return None
    name = op.callee.root_reference.data
    return next((f for f in module.ops if isinstance(f, FuncOp) and f.sym_name.data == name), None)


def constants_apart(functions: Sequence[FuncOp]) -> list[Finding]:
    """Constants of functions that work in one arena lie over no argument and no other tensor: they must be there still
    when the program runs again."""
    ranges: list[tuple[int, int, _Held]] = []
    for func in functions:
        for at, arg in zip(addresses_of(func) or (), func.body.block.args, strict=False):
            ranges.append((at, at + gm(arg).bytes, _Held((at, at + gm(arg).bytes), func, False)))
        for op in func.walk():
            if isinstance(op, DeviceTensorOp) and op.address is not None:
                first = integer(op.address)
                range_ = (first, first + gm(op.result).bytes)
                ranges.append((*range_, _Held(range_, op, isinstance(op, GmConstantOp))))
    found = []
    for one, other in meeting(ranges):
        if one.fixed or other.fixed:
            first, second = (other, one) if other.fixed else (one, other)
            where = Bytes("gm", *common(one.range, other.range))
            found.append(
                Finding("device-overlap", "{first} shares bytes with {second}", first.op, second.op, where)
            )
    return found


class _Held(NamedTuple):
    """A tensor of device memory: where it is, what made it, and whether it must stay there."""

    range: ByteRange
    op: Operation
    fixed: bool
