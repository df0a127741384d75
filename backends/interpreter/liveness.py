"""Which on-chip buffers a loop must carry from one iteration to the next.

A loop carries only buffers that an iteration reads before it writes them, or that are read after the loop. The live
ranges of the others lie within one iteration: their values pass directly from def to use, and XLA can compile the whole
chain as one loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from ...dialects.affine import Expr
from ...dialects.npu import AllocOp, BufferType, MmadOp, SlotOp, SyncOp
from ...dialects.npu.interface import NpuOp, buffer
from ..functions.loops import bounds
from ..functions.scope import most, span_of

ZERO: Expr = Expr()


@dataclass(frozen=True)
class Slot:
    """One slot of an alloc: `number` modulo the number of slots."""

    alloc: SSAValue
    number: Expr = ZERO

    def differs(self, other: Slot) -> bool:
        """True if the two are never the same slot (of one alloc)."""
        apart = self.number - other.number
        return not apart.terms and apart.constant != 0


def slot_of(value: SSAValue, known: Mapping[SSAValue, int]) -> Slot:
    """The slot that a buffer operand names; indices in `known` are folded in."""
    owner = value.owner
    if isinstance(owner, AllocOp):
        return Slot(value)
    if not isinstance(owner, SlotOp):
        raise VerifyException(f"{value.type} comes from neither npu.alloc nor npu.slot")
    slots = buffer(owner.source).slots
    if slots == 1:
        return Slot(owner.source)
    (number,) = owner.linear()
    number = number.substitute(known)
    terms = {v: _within(c, slots) for v, c in number.terms}
    return Slot(owner.source, Expr(_within(number.constant, slots), terms))


def _within(number: int, slots: int) -> int:
    """A part of a slot's number, modulo the number of slots; an open one as it is."""
    return number % slots if type(number) is int else number


@dataclass(frozen=True)
class Cell:
    """What a loop carries of an alloc: one slot, or where it is None all of them."""

    alloc: SSAValue
    slot: Slot | None


@dataclass
class Carried:
    """For each loop: what it carries, and all allocs that it writes."""

    cells: dict[Operation, tuple[Cell, ...]] = field(default_factory=dict)
    written: dict[Operation, frozenset[SSAValue]] = field(default_factory=dict)


def runs_once(trips: int) -> bool:
    """Whether a loop runs once, whatever its open sizes are."""
    return span_of(trips) == (1, 1)


def perfect_nest(
    loop: scf.ForOp, known: Mapping[SSAValue, int], silent: Collection[Operation] = ()
) -> list[scf.ForOp]:
    """`loop` and the loops inside it, outermost first, as long as each body does nothing but run the next one.

    A loop whose index is `known` (it is batched) does not belong to a nest; `silent` ops do nothing. A nest is run as
    one loop: XLA compiles a counter, a test and copies for every loop there is.
    """
    nest = [loop]
    while True:
        acting = [op for op in nest[-1].body.block.ops if not isinstance(op, IDLE) and op not in silent]
        inner = acting[0] if len(acting) == 1 else None
        if not isinstance(inner, scf.ForOp) or most(bounds(inner)[2]) < 2 or inner.body.block.args[0] in known:
            return nest
        nest.append(inner)


IDLE = (SlotOp, SyncOp, scf.YieldOp)
"""Ops in a loop's body that compute nothing."""


@dataclass
class _Effects:
    """Of a sequence of ops: slots read before they are written, slots surely written, all slots touched."""

    exposed: set[Slot] = field(default_factory=set)
    killed: set[Slot] = field(default_factory=set)
    touched: set[Slot] = field(default_factory=set)
    written: set[SSAValue] = field(default_factory=set)


def carried(ops: Sequence[Operation], known: Mapping[SSAValue, int]) -> Carried:
    """The carried buffers of all loops in a section's ops; `known` are indices with one value. A loop
    whose own index is known runs once, for all its iterations (see batching): each has buffers of its
    own."""
    result = Carried()
    if not any(isinstance(op, scf.ForOp) for op in ops):
        return result
    constants = {
        inner.result: inner.value.value.data
        for op in ops
        for inner in op.walk()
        if isinstance(inner, arith.ConstantOp) and isinstance(inner.value, IntegerAttr)
    }
    _visit(list(ops), {**known, **constants}, set(), result)
    return result


def _visit(
    ops: list[Operation], known: dict[SSAValue, int], live_out: set[SSAValue], result: Carried
) -> None:
    for i, op in enumerate(ops):
        if not isinstance(op, scf.ForOp):
            continue
        first, _, trips = bounds(op)
        if not most(trips):
            continue
        after = _effects(ops[i + 1 :], known)
        live = {s.alloc for s in after.exposed}
        live |= {a for a in live_out if buffer(a).slots > 1 or Slot(a) not in after.killed}
        body = list(op.body.block.ops)
        if op.body.block.args[0] in known:
            _visit(body, known, live, result)
            continue
        if runs_once(trips):
            _visit(body, {**known, op.body.block.args[0]: first}, live, result)
            continue
        body = list(perfect_nest(op, known)[-1].body.block.ops)
        inside = _effects(body, known)
        needed = (live | {s.alloc for s in inside.exposed}) & inside.written
        defined = _defined(op)
        cells = []
        for alloc in sorted(needed, key=lambda a: _position(a)):
            slots = {s for s in inside.touched if s.alloc is alloc}
            only = next(iter(slots)) if len(slots) == 1 else None
            if only is not None and not defined.isdisjoint(only.number.variables):
                only = None
            cells.append(Cell(alloc, only))
        result.cells[op] = tuple(cells)
        result.written[op] = frozenset(inside.written)
        # loops of a nest by themselves, too: sections that take turns may share the outer ones alone
        _visit(list(op.body.block.ops), known, needed, result)


def _position(alloc: SSAValue) -> int:
    """A stable order for allocs of one section."""
    assert isinstance(alloc.owner, Operation)
    block = alloc.owner.parent
    assert block is not None
    return block.get_operation_index(alloc.owner)


def _defined(loop: scf.ForOp) -> set[SSAValue]:
    """All values that a loop defines inside."""
    out: set[SSAValue] = set()
    for op in loop.walk():
        for region in op.regions:
            for block in region.blocks:
                out.update(block.args)
        if op is not loop:
            out.update(op.results)
    return out


def _effects(ops: Sequence[Operation], known: Mapping[SSAValue, int]) -> _Effects:
    out = _Effects()
    for op in ops:
        if isinstance(op, scf.ForOp):
            _loop_effects(op, known, out)
        elif isinstance(op, NpuOp):
            for v in _reads(op, known):
                slot = slot_of(v, known)
                out.touched.add(slot)
                if slot not in out.killed:
                    out.exposed.add(slot)
            for v in op.writes():
                if isinstance(v.type, BufferType):
                    slot = slot_of(v, known)
                    out.touched.add(slot)
                    out.killed.add(slot)
                    out.written.add(slot.alloc)
    return out


def _loop_effects(loop: scf.ForOp, known: Mapping[SSAValue, int], out: _Effects) -> None:
    """Add a loop's effects. Its first iteration reads what comes from before the loop, unless the slot
    moves."""
    first, _, trips = bounds(loop)
    least, greatest = span_of(trips)
    if not greatest:
        return
    block = loop.body.block
    if block.args[0] in known:
        inner = _effects(list(block.ops), known)
        out.exposed |= inner.exposed - out.killed
        out.killed |= inner.killed
        out.touched |= inner.touched
        out.written |= inner.written
        return
    begin = _effects(list(block.ops), {**known, block.args[0]: first})
    general = _effects(list(block.ops), known) if greatest > 1 else begin
    out.exposed |= begin.exposed - out.killed
    defined = _defined(loop)
    out.exposed |= {s for s in general.exposed if not defined.isdisjoint(s.number.variables)}
    if least:  # else it may not run at all
        out.killed |= begin.killed
    out.touched |= general.touched
    out.written |= general.written


def _reads(op: NpuOp, known: Mapping[SSAValue, int]) -> list[SSAValue]:
    """The buffers whose contents an instruction uses; not the accumulator where it is about to be reset."""
    found = [v for v in op.reads() if isinstance(v.type, BufferType)]
    if isinstance(op, MmadOp):
        (step,) = op.linear()
        if step.substitute(known) == ZERO:
            found.remove(op.acc)
    return found
