"""The host program: addresses in device memory, and who wrote each tensor before it is read.

Launches, copies and host calls run one after the other. Numbers in the host's memory are values: they need no check.
A tensor holds what was written to it until another
tensor at the same bytes is written. Loops are walked twice, so that what one iteration destroys shows in the
next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, TensorType
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from ....dialects.base import integer, to_ints
from ....dialects.npu import GmType, gm
from ....dialects.npu.ops import ViewOp
from ....dialects.npu.structure import (
    BranchOp,
    CopyOp,
    GmAllocOp,
    GmConstantOp,
    HostCallOp,
    LaunchOp,
    LoopOp,
    NpuYieldOp,
    ToDeviceOp,
    ToHostOp,
)
from ....machine import Machine
from .device import Summary
from .finding import Bytes, Finding


@dataclass(frozen=True)
class State:
    """What a tensor holds: nothing yet, its own contents, a part of them, or another tensor's. `by` is the op
    that made it so, `part` the elements (flat, bool) that are there."""

    kind: str
    by: Operation | None = None
    other: SSAValue | None = None
    part: np.ndarray | None = None


WHOLE, NOTHING = State("whole"), State("nothing")


class HostProgram:
    """One function of the host program."""

    def __init__(self, func: FuncOp, kernels: dict[str, Summary], machine: Machine) -> None:
        self.func, self.kernels, self.machine = func, kernels, machine
        self.findings: list[Finding] = []
        self.roots: dict[SSAValue, SSAValue] = {}
        self.ranges: dict[SSAValue, tuple[int, int]] = {}
        self.makers: dict[SSAValue, Operation] = {}
        self.neighbours: dict[SSAValue, list[SSAValue]] = {}
        self.states: dict[SSAValue, State] = {}

    def run(self) -> list[Finding]:
        """All findings of the function."""
        arena = self.func.attributes.get("npu.arena_bytes")
        addresses = self.func.attributes.get("npu.addresses")
        assert isinstance(arena, IntegerAttr) and isinstance(addresses, DenseArrayBase)
        block = self.func.body.block
        for arg, address in zip(block.args, to_ints(addresses), strict=False):
            self._place(arg, address, self.func)
            self.states[arg] = WHOLE
        for op in self.func.walk():
            if isinstance(op, GmAllocOp | GmConstantOp) and op.address is not None:
                self._place(op.result, integer(op.address), op)
                self.states[op.result] = WHOLE if isinstance(op, GmConstantOp) else NOTHING
        self._bounds(min(integer(arena), self.machine.spaces["gm"].bytes))
        self._neighbours()
        self._block(block)
        return self.findings

    # -- addresses -----------------------------------------------------------------------------------------

    def _place(self, root: SSAValue, address: int, op: Operation) -> None:
        self.ranges[root] = (address, address + gm(root).bytes)
        self.roots[root] = root
        self.makers[root] = op

    def _bounds(self, arena: int) -> None:
        align = self.machine.gm_align
        for root, (start, end) in self.ranges.items():
            where = Bytes("gm", start, end)
            if start < 0 or end > arena:
                what = f"{{first}} leaves the arena of {arena} bytes"
                self.findings.append(Finding("device-bounds", what, self.makers[root], bytes=where))
            if start % align:
                what = f"{{first}} does not start at a multiple of {align} bytes"
                self.findings.append(Finding("misaligned", what, self.makers[root], bytes=where))

    def _neighbours(self) -> None:
        """Pairs of tensors that share bytes."""
        live: list[tuple[int, SSAValue]] = []
        for start, end, root in sorted(
            ((s, e, r) for r, (s, e) in self.ranges.items() if e > s), key=lambda t: t[:2]
        ):
            live = [(e, r) for e, r in live if e > start]
            for _, other in live:
                self.neighbours.setdefault(root, []).append(other)
                self.neighbours.setdefault(other, []).append(root)
            live.append((end, root))

    def _shared(self, a: SSAValue, b: SSAValue) -> Bytes:
        (s, e), (t, f) = self.ranges[a], self.ranges[b]
        return Bytes("gm", max(s, t), min(e, f))

    # -- contents ------------------------------------------------------------------------------------------

    def _read(self, value: SSAValue, op: Operation) -> None:
        if not isinstance(value.type, GmType):
            return
        root = self.roots[value]
        state = self.states[root]
        if state.kind == "whole" or not gm(root).bytes:
            return
        found: Finding
        if state.kind == "nothing":
            found = Finding("device-uninitialised", "{first} reads a device tensor that nothing wrote", op)
        elif state.kind == "part":
            assert state.by is not None
            assert state.part is not None
            at = [int(i) for i in np.unravel_index(int(np.argmin(state.part)), gm(root).shape or (1,))]
            what = f"{{first}} leaves element {at} of a tensor unwritten, which {{second}} reads"
            found = Finding("uncovered", what, state.by, op)
        else:
            assert state.by is not None and state.other is not None
            what = "{first} overwrites a device tensor that {second} still reads"
            where = self._shared(root, state.other)
            found = Finding("device-overlap", what, state.by, op, where)
        self.findings.append(found)
        self.states[root] = WHOLE  # once is enough

    def _write(self, value: SSAValue, op: Operation, part: np.ndarray | None = None) -> None:
        root = self.roots[value]
        old = self.states[root]
        if part is not None and old.kind == "part":
            assert old.part is not None
            part = part | old.part
        if part is None or part.all():
            self.states[root] = WHOLE
        elif old.kind in ("nothing", "part"):
            self.states[root] = State("part", op, None, part)
        for other in self.neighbours.get(root, ()):
            if self.states[other].kind != "nothing":
                self.states[other] = State("other", op, root)

    def _apart(self, written: SSAValue, used: SSAValue, op: Operation) -> None:
        """What an op writes shares no bytes with other tensors that it uses."""
        a, b = self.roots[written], self.roots.get(used)
        if b is not None and a is not b and b in self.neighbours.get(a, ()):
            what = "{first} writes a device tensor over another one that it uses"
            self.findings.append(Finding("device-overlap", what, op, bytes=self._shared(a, b)))

    # -- ops -----------------------------------------------------------------------------------------------

    def _block(self, block: Block) -> Operation | None:
        last = None
        for op in block.ops:
            self._op(op)
            last = op
        return last

    def _op(self, op: Operation) -> None:
        if isinstance(op, ViewOp):
            self.roots[op.result] = self.roots[op.source]
        elif isinstance(op, GmAllocOp):
            self.states[op.result] = NOTHING
        elif isinstance(op, LaunchOp):
            self._launch(op)
        elif isinstance(op, CopyOp):
            self._read(op.source, op)
            self._apart(op.dest, op.source, op)
            self._write(op.dest, op)
        elif isinstance(op, ToHostOp):
            self._read(op.source, op)
        elif isinstance(op, ToDeviceOp):
            self._write(op.dest, op)
        elif isinstance(op, HostCallOp):
            split = len(op.operands) - integer(op.outputs)
            for value in op.operands[:split]:
                self._read(value, op)
            for value in op.operands[split:]:
                self._write(value, op)
        elif isinstance(op, LoopOp):
            self._loop(op)
        elif isinstance(op, BranchOp):
            self._branch(op)
        elif isinstance(op, ReturnOp | NpuYieldOp):
            for value in op.operands:
                if isinstance(value.type, GmType):
                    self._read(value, op)

    def _launch(self, op: LaunchOp) -> None:
        summary = self.kernels.get(op.callee.root_reference.data)
        if summary is None:
            return
        for value, kind in zip(op.operands, summary.types, strict=False):
            passed = value.type
            if isinstance(passed, TensorType):  # a number, which lies in the launch's arguments
                passed = GmType.of(passed.get_shape(), passed.element_type)
            if passed != kind:
                what = f"{{first}} gives its kernel {value.type} where it takes {kind}"
                self.findings.append(Finding("bad-call", what, op))
                return
        used = [i for i in range(len(op.operands)) if i in summary.reads or i in summary.writes]
        for i in used:
            if i in summary.needs or (i in summary.reads and i not in summary.writes):
                self._read(op.operands[i], op)
        for i in summary.writes:
            for j in used:
                if i == j:
                    continue
                self._apart(op.operands[i], op.operands[j], op)
                if self.roots[op.operands[i]] is self.roots.get(op.operands[j]):
                    what = "{first} gives its kernel one tensor twice, to write and to use"
                    self.findings.append(Finding("core-race", what, op))
        for i in sorted(summary.writes):
            self._write(op.operands[i], op, summary.parts.get(i))

    def _loop(self, op: LoopOp) -> None:
        for _ in range(2):
            for region in op.regions:
                block = region.block
                for arg, value in zip(block.args, op.state, strict=False):
                    self.roots[arg] = self.roots[value]
                last = self._block(block)
                if region is op.body and last is not None:
                    for value, target in zip(last.operands, op.state, strict=False):
                        if self.roots[value] is not self.roots[target]:
                            self._write(target, last)

    def _branch(self, op: BranchOp) -> None:
        before = dict(self.states)
        after: list[dict[SSAValue, State]] = []
        for region in op.branches:
            self.states = dict(before)
            self._block(region.block)
            after.append(self.states)
        self.states = before
        for states in after:
            for root, state in states.items():
                if state.kind != "whole" and before.get(root, NOTHING).kind == "whole":
                    self.states[root] = state
        for value in op.outputs:
            self._write(value, op)
