"""A section of a kernel, compiled once into flat nodes that the clock of a core can run fast.

What a section does to its core depends on its environment (grid coordinates, unit, loop indices) in two ways
only: how its transfers are clipped at the edges of tensors, and which slot of a multi-buffer's flags it uses.
A scope (a section or a loop) therefore has a `key`: environments with equal keys cost the same, cycle for
cycle. That is what lets equal cores be simulated once and loops be extrapolated. Ops other than transfers
must cost the same whatever their indices are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from ...dialects import npu as ops
from ...dialects.affine import Expr, Range
from ...dialects.base import describe, integer, text
from ...dialects.npu import GmType, NpuOp, buffer, structure
from ...machine import Machine
from .affine import Clip, TransferRow, steady_runs
from .errors import SimulationError
from .nodes import (
    BARRIER,
    LOOP,
    PIPE_BARRIER,
    SET_CROSS,
    SUMS,
    UNIT_BYTES,
    Env,
    Sums,
    TimedCross,
    TimedFlag,
    TimedInstruction,
    TimedNode,
)
from .validity import Validity


class TimedBody:
    """What a loop and a section share: what they contain, and the key that tells environments apart."""

    def __init__(self) -> None:
        self.body: list[TimedNode] = []
        self.rows: dict[TransferRow, None] = {}
        self.counters: dict[tuple[Expr[int], int], None] = {}
        self.bounds: dict[Expr[int], None] = {}
        self.channels: dict[int, None] = {}
        self.inside: set[int] = set()
        self.weight = 0
        self.sends: set[int] = set()
        self.awaits: set[int] = set()
        self._clips: list[Clip] = []
        self._phases: list[tuple[Expr[int], int]] = []
        self._outer_bounds: list[Expr[int]] = []

    def absorb(self, node: TimedNode) -> None:
        """Append a node and take over what it contains."""
        self.body.append(node)
        self.weight += 1
        if isinstance(node, TimedInstruction):
            self.rows |= dict.fromkeys(node.rows)
            if node.sums is not None:
                if node.sums.counter.terms:
                    self.counters[node.sums.counter, node.sums.slots] = None
                self.channels |= dict.fromkeys(node.sums.channels)
        elif isinstance(node, TimedFlag):
            if node.counter.terms:
                self.counters[node.counter, node.slots] = None
            self.channels |= dict.fromkeys(range(node.channel, node.channel + node.slots))
        elif isinstance(node, TimedCross):
            (self.sends if node.kind == SET_CROSS else self.awaits).add(node.event)
        elif isinstance(node, TimedLoop):
            self.rows |= node.rows
            self.counters |= node.counters
            self.bounds |= node.bounds
            self.channels |= node.channels
            self.inside |= node.inside | {node.variable}
            self.sends |= node.sends
            self.awaits |= node.awaits
            self.weight += node.weight * node.typical_trips

    def close(self, ranges: Sequence[Range], own: int | None) -> None:
        """Work out the key, once all nodes are in."""
        fixed = self.inside if own is None else self.inside | {own}
        clips = {}
        for row in self.rows:
            if row.offset.without(fixed).terms:
                clip = Clip(row, fixed, None, ranges)
                clips[clip.identity()] = clip
        self._clips = list(clips.values())
        phases = {(c.without(fixed), slots): None for c, slots in self.counters}
        self._phases = [p for p in phases if p[0].terms]
        self._outer_bounds = [b for b in (b.without(fixed) for b in self.bounds) if b.terms]

    def key(self, env: Env) -> tuple[object, ...]:
        """Environments with equal keys cost the same from here inwards."""
        return (
            *[clip.key(env) for clip in self._clips],
            *[counter.evaluate(env) % slots for counter, slots in self._phases],
            *[bound.evaluate(env) for bound in self._outer_bounds],
        )


class TimedLoop(TimedBody, TimedNode):
    """scf.for."""

    def __init__(
        self, op: scf.ForOp, number: int, variable: int, bounds: tuple[Expr[int], Expr[int]], step: int
    ) -> None:
        TimedBody.__init__(self)
        TimedNode.__init__(self, LOOP, op)
        self.number, self.variable, self.step = number, variable, step
        self.lower, self.upper = bounds
        self.bounds |= dict.fromkeys(b for b in bounds if b.terms)
        self.typical_trips = 1
        self.period = 1
        self.crosses_inside = False
        self._moving: list[Clip] = []
        self._ragged = False

    @property
    def crosses(self) -> bool:
        return self.crosses_inside

    def seal(self, ranges: Sequence[Range]) -> None:
        """Work out key, period and clipping, once the body is in."""
        self.close(ranges, self.variable)
        self.crosses_inside = any(node.crosses for node in self.body)
        self._ragged = any(variable == self.variable for bound in self.bounds for variable, _ in bound.terms)
        low, high = ranges[self.variable]
        self.typical_trips = (high - low) // self.step + 1 if high >= low else 0
        moving = {}
        for row in self.rows:
            clip = Clip(row, self.inside, self.variable, ranges)
            if clip.coefficient:
                moving[clip.identity()] = clip
        self._moving = list(moving.values())
        for counter, slots in self.counters:
            stride = counter.coefficient(self.variable) * self.step
            self.period = math.lcm(self.period, slots // math.gcd(stride, slots))

    def extent(self, env: Env) -> tuple[int, int]:
        """First index and number of trips."""
        first = self.lower.evaluate(env)
        return first, max(0, -(-(self.upper.evaluate(env) - first) // self.step))

    def runs(self, env: Env, first: int, trips: int) -> list[tuple[int, int, bool]]:
        """(start, count, steady) pieces of the trips; in a steady one all trips cost the same."""
        if self._ragged:
            return [(0, trips, False)]
        return steady_runs([clip.steady(env, first, self.step) for clip in self._moving], trips)


def _issued(nodes: Sequence[TimedNode], env: Env) -> tuple[int, int]:
    count = cycles = 0
    for node in nodes:
        if isinstance(node, TimedLoop):
            first, trips = node.extent(env)
            env[node.variable] = first
            inner = _issued(node.body, env)
            count, cycles = count + trips * inner[0], cycles + trips * inner[1]
        else:
            count, cycles = count + 1, cycles + node.issue
    return count, cycles


def _slots(node: TimedNode) -> int:
    """Multi-buffers and flags of several slots whose place depends on an index."""
    if isinstance(node, TimedFlag):
        return 1 if node.slots > 1 and node.counter.terms else 0
    if isinstance(node, TimedInstruction):
        return len({v for v in node.op.operands if isinstance(v.owner, ops.SlotOp)})
    return 0


class TimedSection(TimedBody):
    """The program of one kind of core."""

    def __init__(self, op: structure.SectionOp, grid: Sequence[int], machine: Machine) -> None:
        super().__init__()
        self.op = op
        self.core = text(op.core)
        self.units = integer(op.units)
        self.works: list[TimedInstruction] = []
        self.loops = 0
        self.variables = self._outside = len(grid) + 1
        self.allocs: list[ops.AllocOp] = []
        self._sums: dict[SSAValue, int] = {}
        self._validity = Validity()
        self._open: list[int] = []
        self._fillers: dict[SSAValue, list[tuple[TimedInstruction, TimedBody, frozenset[int]]]] = {}
        self.machine = machine
        self._ranges: list[Range] = [(0, g - 1) for g in grid] + [(0, self.units - 1)]
        kernel = op.parent_block()
        assert kernel is not None
        self._values: dict[SSAValue, Expr[int]] = {
            arg: Expr.of(i) for i, arg in enumerate(kernel.args[: len(grid)])
        }
        self._behind: dict[SSAValue, frozenset[int]] = {}
        """For numbers that the scalar unit reads, the index variables that change which number it is."""
        self._operands: dict[SSAValue, int] = {arg: i for i, arg in enumerate(kernel.args[len(grid) :])}
        self._values[op.body.block.args[0]] = Expr.of(len(grid))
        for outside in kernel.ops:
            if not isinstance(outside, structure.SectionOp):
                self._build(outside, self)
        self._fill(op.body.block, self)
        self.close(self._ranges, None)

    def environment(self, point: Sequence[int], unit: int) -> Env:
        """The environment of one core at a grid point."""
        return [*point, unit, *[0] * (self.variables - len(point) - 1)]

    def slot(self, value: SSAValue, env: Sequence[int]) -> tuple[ops.AllocOp, int]:
        """The allocation behind a buffer and the slot of it that an environment selects."""
        owner = value.owner
        if isinstance(owner, ops.SlotOp):
            alloc, _ = self.slot(owner.source, env)
            indices = [self._index(v, owner) for v in owner.index_operands()]
            (counter,) = owner.linear_over(indices)
            return alloc, counter.evaluate(env) % buffer(alloc.result).slots
        assert isinstance(owner, ops.AllocOp)
        return owner, 0

    def shares(self, work: TimedInstruction) -> bool:
        """Whether cores side by side read the same bytes with an instruction."""
        fixed = self._ranges[: self._outside]
        return not work.writes and any(high and v not in work.moves_with for v, (_, high) in enumerate(fixed))

    def sharers(self, work: TimedInstruction, cores: int) -> float:
        """How many of the first `cores` cores read the same bytes with an instruction, on the mean."""
        if work.writes:
            return 1.0
        stride, distinct = 1, 1
        for variable, (_, high) in reversed([*enumerate(self._ranges[: self._outside])]):
            if variable in work.moves_with:
                distinct *= min(high + 1, -(-cores // stride))
            stride *= high + 1
        return max(1.0, min(cores, stride) / distinct)

    def issued(self, env: Env) -> tuple[int, int]:
        """(instructions that the scalar unit issues, flags included; its cycles) with the trips of an environment."""
        return _issued(self.body, env)

    def _fill(self, block: Block, scope: TimedBody) -> None:
        for op in block.ops:
            self._build(op, scope)

    def _index(self, value: SSAValue, op: Operation) -> Expr[int]:
        found = self._values.get(value)
        if found is None:
            raise SimulationError(f"{describe(op)} uses an index that the simulator cannot follow")
        return found

    def _build(self, op: Operation, scope: TimedBody) -> None:
        if isinstance(op, arith.ConstantOp):
            if isinstance(op.value, IntegerAttr):
                self._values[op.result] = Expr(op.value.value.data)
        elif isinstance(op, ops.AllocOp):
            self.allocs.append(op)
        elif isinstance(op, ops.ViewOp):
            self._operands[op.result] = self._operands[op.source]
        elif isinstance(op, scf.ForOp):
            scope.absorb(self._loop(op))
        elif isinstance(op, ops.SyncOp):
            indices = [self._index(v, op) for v in op.index_operands()]
            (counter,) = op.linear_over(indices)
            self._put(scope, TimedFlag(op, counter, self.machine))
        elif isinstance(op, ops.SetCrossOp | ops.WaitCrossOp):
            self._put(scope, TimedCross(op, self.machine))
        elif isinstance(op, ops.BarrierOp):
            self._put(scope, TimedNode(BARRIER, op))
        elif isinstance(op, ops.PipeBarrierOp):
            self._put(scope, TimedNode(PIPE_BARRIER, op))
        elif isinstance(op, NpuOp):
            work = self._work(op)
            self._put(scope, work)
            self._guard(op, work, scope)
            if isinstance(op, ops.IndexOp):
                self._values[op.result] = Expr(integer(op.low))
                self._behind[op.result] = frozenset(v for row in work.indices for v, _ in row.terms)
        elif not isinstance(op, ops.SlotOp | scf.YieldOp):
            raise SimulationError(f"{describe(op)} is not an instruction the simulator knows")

    def _put(self, scope: TimedBody, node: TimedNode) -> None:
        node.issue = self.machine.scalar_cycles(self.core, _slots(node))
        scope.absorb(node)

    def _loop(self, op: scf.ForOp) -> TimedLoop:
        lower, upper, step = (self._index(v, op) for v in (op.lb, op.ub, op.step))
        if step.terms or step.constant < 1:
            raise SimulationError(f"{describe(op)} needs a positive constant step")
        low, high = lower.span(self._ranges)[0], upper.span(self._ranges)[1] - 1
        loop = TimedLoop(op, self.loops, self.variables, (lower, upper), step.constant)
        if not lower.terms and high >= low:
            high = low + (high - low) // step.constant * step.constant
        self._ranges.append((low, high))
        self._values[op.body.block.args[0]] = Expr.of(self.variables)
        self.variables += 1
        self.loops += 1
        self._open.append(loop.variable)
        self._fill(op.body.block, loop)
        self._open.pop()
        loop.seal(self._ranges)
        return loop

    def _guard(self, op: NpuOp, work: TimedInstruction, scope: TimedBody) -> None:
        """What brings an operand to a product is not needed where all rows or columns of the other one lie outside:
        a chip's program ends its loops there, ours walks on over nothing."""
        if isinstance(op, ops.LoadNd2NzOp | ops.LoadL0Op):
            here = (work, scope, frozenset([*range(self._outside), *self._open]))
            before = (
                self._fillers.get(ops.whole_buffer(op.source), []) if isinstance(op, ops.LoadL0Op) else []
            )
            self._fillers[ops.whole_buffer(op.dest)] = [*before, here]
        elif isinstance(op, ops.MmadOp):
            right = [op.b, *([] if op.index is None else [op.index])]
            for operand, other, axis in ((op.a, op.b, 1), *((v, op.a, 0) for v in right)):
                row = self._validity.of(other)[axis]
                for filler, home, variables in (
                    self._fillers.get(ops.whole_buffer(operand), []) if row is not None else []
                ):
                    assert row is not None
                    if {v for v, _ in row.offset.terms} <= variables:
                        filler.guard(row)
                        home.rows[row] = None

    def _work(self, op: NpuOp) -> TimedInstruction:
        indices = [self._index(v, op) for v in op.index_operands()]
        rows: list[TransferRow] = []
        box: list[TransferRow] = []
        if isinstance(op, ops.TransferOp):
            offsets = op.linear_over(indices)
            shape = zip(offsets, op.box_sizes, op.box_steps, op.view.shape, strict=True)
            for offset, count, step, extent in shape:
                box.append(TransferRow(offset, count, step, extent))
                if offset.terms:
                    rows.append(box[-1])
        operand = None
        for value in op.main_operands():
            if isinstance(value.type, GmType):
                operand = self._operands[value]
        moving = [row for row in rows if not row.never_clips(self._ranges)]
        clipped = [row if row in moving else None for row in box]
        self._validity.scope = frozenset([*range(self._outside), *self._open])
        counted = self._validity.follow(op, clipped, indices, self._ranges)
        behind = frozenset[int]().union(*(self._behind.get(v, ()) for v in op.index_operands()))
        work = TimedInstruction(op, len(self.works), self.machine, indices, moving, operand, counted, behind)
        work.sums = self._sums_of(op)
        self.works.append(work)
        return work

    def _sums_of(self, op: NpuOp) -> Sums | None:
        """The accumulator of a product or a drain that has a unit flag."""
        value = op.flagged_sums()
        if value is None:
            return None
        slot, alloc = value.owner, ops.whole_buffer(value)
        counter: Expr[int] = Expr()
        if isinstance(slot, ops.SlotOp):
            (counter,) = slot.linear_over([self._index(v, slot) for v in slot.index_operands()])
        kind = buffer(alloc)
        channel = self._sums.setdefault(alloc, SUMS + 2 * sum(buffer(v).slots for v in self._sums))
        return Sums(channel, counter, kind.slots, max(kind.slot_bytes // UNIT_BYTES, 1), not isinstance(op, ops.MmadOp))
