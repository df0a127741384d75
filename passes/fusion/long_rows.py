"""Rows that are reduced: whether they fit on chip whole, and whether a kernel may read them in pieces if not.

A kernel that reads rows in pieces walks over them once for each reduction that depends on another, and loads and
computes anew what a walk needs. That pays where it takes less than to store and load what several kernels hand on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Operation, SSAValue

from ...dialects.base import text
from ...dialects.dtypes import dtype_name, size
from ...dialects.elementwise import REDUCTION_FUNCTION
from ...dialects.graph import ArgReduceOp, ElementwiseOp, IotaOp, ReduceOp
from ...dialects.graph.interface import element_of
from ...dialects.npu.types import ROW_BYTES
from ...machine import Machine
from ..forms.access import is_layout
from .dependencies import Group
from .held import Facts, Held

UB_FRACTION = 0.95
"""Share of the unified buffer that tiles are planned to use; the rest absorbs alignment."""

ROW_VALUES = 6
"""Row buffers a fused row reduction is planned with: loads twice buffered, temporaries and the result."""

OTHER_AXES = "they are reduced along different axes, so that they cannot be read in pieces"
NOT_ALONE = "a kernel of other ops cannot read them in pieces"


def why_not_whole(
    group: Group, rows: Collection[int], more: Sequence[Operation], of: Callable[[SSAValue], Facts], machine: Machine
) -> str | None:
    """Why whole rows of what a group holds at once, if the ops `more` join, do not fit on chip: what it loads and what
    others use of it, twice each, what is broadcast to a row, and three temporaries. None where they do."""
    row, run = size([group.domain[a] for a in rows]), 1
    if row == 0:
        return None
    for a in reversed(range(len(group.domain))):
        if a not in rows and group.domain[a] != 1:
            break
        run *= group.domain[a]
    if group.held is None:
        group.held = Held(of)
        for op in group.members:
            group.held.add(op)
    buffers, width = group.held.buffers(row, size(group.domain), more)
    # what is next to each other takes whole blocks, however few elements there are
    taken = row // run * -(-run * width // ROW_BYTES) * ROW_BYTES
    room, need = machine.spaces["ub"].bytes * UB_FRACTION, taken * max(ROW_VALUES, buffers + 3)
    if need <= room:
        return None
    return f"whole rows of {row} elements of all that one kernel would hold take {need:.0f} bytes of {room:.0f}"


def why_not_in_pieces(
    group: Group,
    rows: Collection[int],
    more: Sequence[Operation],
    reduced: Iterable[frozenset[int]],
    of: Callable[[SSAValue], Facts],
    machine: Machine,
) -> str | None:
    """Why a group that the ops `more` join does not read its rows in pieces. None where it may, and where that takes no
    longer than two kernels. reduced: the axes of each reduction of either."""
    wide = frozenset(a for a in rows if group.domain[a] != 1)
    if any(axes & wide not in (frozenset(), wide) for axes in reduced):
        return OTHER_AXES
    added = [op for op in dict.fromkeys(more) if op not in group.inside]
    if not all(isinstance(op, ElementwiseOp | ReduceOp | ArgReduceOp) for op in (*group.members, *added)):
        return NOT_ALONE
    if not group.members:
        return None
    rows_of = LongRows.of(group.domain, wide)

    def kernel(ops: Sequence[Operation], whole: bool, written: Collection[SSAValue] = ()) -> RowKernel:
        return RowKernel(ops, rows_of, whole, frozenset(written), of, machine)

    fits = not group.reduced or why_not_whole(group, group.reduced, (), of, machine) is None
    first = kernel(group.members, fits)
    second = kernel(added, False, first.stored)
    together = kernel([*group.members, *added], False).microseconds
    apart = first.microseconds + second.microseconds
    apart += machine.barrier_microseconds(machine.share_of(machine.vector_cores))
    if together <= apart:
        return None
    return f"to read them in pieces takes {together:.1f} us, and two kernels {apart:.1f}"


def _users(value: SSAValue) -> Iterator[Operation]:
    """The ops that use a value, seen through layout ops."""
    for use in value.uses:
        if is_layout(use.operation):
            for result in use.operation.results:
                yield from _users(result)
        else:
            yield use.operation


@dataclass(frozen=True)
class LongRows:
    """The rows of a domain. many: how many there are; length: of each; run: elements that lie next to each other in
    one; beside: rows whose runs lie next to each other."""

    many: int
    length: int
    run: int
    beside: int

    @staticmethod
    def of(domain: Sequence[int], along: Collection[int]) -> LongRows:
        """Those along some axes."""
        run = beside = 1
        for a in reversed(range(len(domain))):
            if a in along and beside == 1:
                run *= domain[a]
            elif a in along:
                break
            else:
                beside *= domain[a]
        length = int(size([domain[a] for a in along]))
        return LongRows(int(size(domain)) // max(length, 1), length, int(run), 1 if run == length else int(beside))


@dataclass(frozen=True)
class RowKernel:
    """What a kernel of some ops takes, by the bytes that it moves and the numbers that it computes.

    rows: those that it reduces, or that those lie along which do; whole: whether it holds whole rows; written: what the
    kernel before it stored.
    """

    ops: Sequence[Operation]
    rows: LongRows
    whole: bool
    written: frozenset[SSAValue]
    of: Callable[[SSAValue], Facts]
    machine: Machine

    @cached_property
    def inside(self) -> frozenset[Operation]:
        return frozenset(self.ops)

    @cached_property
    def stored(self) -> list[SSAValue]:
        """Results that others use, seen through layout ops."""
        return [r for op in self.ops for r in op.results if any(user not in self.inside for user in _users(r))]

    @cached_property
    def known(self) -> dict[Operation, int]:
        """How many walks have to end before each op can be done; for a reduction, before it is known."""
        found: dict[Operation, int] = {}
        pending = list(self.ops)
        while pending:
            op = pending[-1]
            makers = [m for m, _ in self._makers(op)]
            missing = [m for m in makers if m not in found]
            pending += missing
            if not missing:
                pending.pop()
                reduces = isinstance(op, ReduceOp | ArgReduceOp)
                found[op] = max((found[m] for m in makers), default=0) + reduces
        return found

    def _makers(self, op: Operation) -> list[tuple[Operation, SSAValue]]:
        bases = [self.of(v).base for v in op.operands]
        return [(v.owner, v) for v in bases if isinstance(v.owner, Operation) and v.owner in self.inside]

    def _moves(self, op: Operation) -> bool:
        """Whether an op has something of its own for each piece."""
        return not isinstance(op, ReduceOp | ArgReduceOp) and self.of(op.results[0]).elements > self.rows.many

    def walks(self) -> list[set[Operation]]:
        """The ops of each walk, and what is between walks in one of its own."""
        if self.whole:
            return [set(self.ops)]
        found: dict[int, set[Operation]] = {}
        stored = {r.owner for r in self.stored}
        for op in self.ops:
            moves = self._moves(op)
            if isinstance(op, ReduceOp | ArgReduceOp) or (moves and (op in stored or not self._used(op))):
                self._gather(op, found.setdefault(self.known[op] + moves, set()))
        return [found[walk] for walk in sorted(found)]

    def _used(self, op: Operation) -> bool:
        return any(user in self.inside for r in op.results for user in _users(r))

    def _gather(self, op: Operation, into: set[Operation]) -> None:
        """Adds an op with all that it uses of the same piece."""
        pending = [op]
        while pending:
            op = pending.pop()
            if op not in into:
                into.add(op)
                pending += [maker for maker, _ in self._makers(op) if self._moves(maker)]

    @cached_property
    def microseconds(self) -> float:
        """Its pipes one after the other, as in the analytic bound, and HBM and L2 shared by its cores. Of rows that lie
        side by side, it is the best of how many a core takes at a time."""
        if not any(isinstance(op, ReduceOp | ArgReduceOp) for op in self.ops):
            return self._cut(self.machine.vector_cores, self.rows.many * self.rows.length, 0)
        tried = [1 << n for n in range(self.rows.beside.bit_length())]
        return min(self._beside(n) for n in tried)

    def _beside(self, number: int) -> float:
        """Where a core takes so many rows that lie side by side at a time: rows are not cut among cores."""
        tasks = max(-(-self.rows.many // number), 1)
        cores = tasks / -(-tasks // self.machine.vector_cores)
        return self._cut(cores, self.rows.run * number, min(tasks, self.machine.vector_cores) * number)

    def _cut(self, cores: float, run: int, at_once: int) -> float:
        """On so many cores, `run` elements next to each other, `at_once` rows at a time on all of them."""
        machine, walks = self.machine, self.walks()
        width = max((self.of(v).width for op in self.ops for v in op.operands), default=4)
        load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
        burst, lanes = machine.burst_bytes, ROW_BYTES
        moved = -(-run * width // burst) * burst / (run * width)
        padded = -(-run * width // lanes) * lanes / (run * width)
        each = max(moved / load.bytes_per_cycle, load.run_cycles / (run * width))
        hit = max(each / cores, 1 / machine.l2_bytes_per_cycle)
        miss = max((each + load.miss_cycles) / cores, 1 / machine.hbm_bytes_per_cycle)
        stored = max(moved / store.bytes_per_cycle, store.run_cycles / (run * width)) / cores
        bases = [self._read(walk) for walk in walks]
        share = at_once / max(self.rows.many, 1)
        kept = sum(map(self._bytes, set(self.stored).union(*bases))) * share <= machine.l2_bytes
        cycles = 0.0
        read: set[SSAValue] = set()
        for walk, inputs in zip(walks, bases, strict=True):
            for base in inputs:
                again = base in read and kept
                warm = base in self.written and self._bytes(base) <= machine.l2_bytes
                cycles += self._bytes(base) * (hit if again or warm else miss)
            read |= inputs
            cycles += sum(map(self._computing, walk)) * padded / cores
        for value in self.stored:
            out = self._bytes(value)
            cycles += out * max(stored, 0.0 if out <= machine.l2_bytes else 1 / machine.hbm_bytes_per_cycle)
        return machine.cycles_to_microseconds(cycles)

    def _read(self, walk: Iterable[Operation]) -> set[SSAValue]:
        """The tensors that a walk loads."""
        bases = {self.of(v).base for op in walk for v in op.operands}
        return {
            v for v in bases if not (v.owner in self.inside or self.of(v).splat or isinstance(v.owner, IotaOp))
        }

    def _bytes(self, value: SSAValue) -> int:
        facts = self.of(value)
        return facts.elements * facts.width

    def _computing(self, op: Operation) -> float:
        """Cycles of one core."""
        unit = self.machine.vector
        if isinstance(op, ElementwiseOp):
            name, value = op.FUNCTION.name, op.results[0]
        else:
            assert isinstance(op, ReduceOp | ArgReduceOp)
            name, value = REDUCTION_FUNCTION[text(op.kind)], op.x
        dtype = unit.computes(name, dtype_name(element_of(value)))
        known = next((f for f in (name, "add") if unit.supports(f, dtype)), None)
        elements = int(self.of(value).elements)
        return unit.cycles(known, dtype, elements) if known else elements
