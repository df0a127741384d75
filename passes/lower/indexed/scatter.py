"""Kernels for scatter: a part of the target stays in the unified buffer while all updates are read.

Every element belongs to one core, so nothing is stored twice and the order of the updates is kept. Parts are long along
the rows, since each further part along them reads all updates again. In a batch of scatters a part consists of whole
batches and reads only their updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, SSAValue

from ....dialects.base import describe, text
from ....dialects.dtypes import dtype_name, itemsize
from ....dialects.graph import FusionOp, ScatterOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.scatter import combining, row_cycles
from ....dialects.npu.types import Pipe
from ....kernels.builder import gm_of, may_repeat
from ....kernels.indexed import ScatterRows
from ....kernels.loops import AxisLoop
from ....kernels.stage import BoxDim, Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork
from ....kernels.writer import StageWriter
from ....machine import Machine
from ...fusion.long_rows import UB_FRACTION
from ..boxes import BoxKernel

LONGEST_PART = 1024
"""Updates that are loaded at once, at most."""


def parts_of(
    rows: int, columns: int, updates: int, width: int, machine: Machine, groups: int = 1
) -> tuple[int, int, int] | None:
    """(rows, columns, updates at once) of a tile: few passes over the updates for the busiest core,
    then few columns to a core. None where nothing fits, or no whole group."""
    cores, block = machine.vector_cores, max(1, 32 // width)
    shares = [max(-(-columns // n), min(columns, block)) for n in range(1, cores + 1)]
    best = _best_part(rows, columns, updates, width, machine, groups, {*shares})
    if best is not None:
        return best
    while shares[-1] > block:  # rows too long for one part to each core
        shares.append(-(-shares[-1] // 2))
    return _best_part(rows, columns, updates, width, machine, groups, {*shares[cores:]})


def _best_part(
    rows: int, columns: int, updates: int, width: int, machine: Machine, groups: int, cuts: Iterable[int]
) -> tuple[int, int, int] | None:
    """The best of the parts of so many columns as `cuts` says; None where none fits."""
    room, block = machine.spaces["ub"].bytes * UB_FRACTION, max(1, 32 // width)
    best: tuple[tuple[float, int], tuple[int, int, int]] | None = None
    for wide in sorted({min(-(-c // block) * block, columns) for c in cuts}):
        line = wide * width if columns == 1 else -(-wide * width // 32) * 32
        chunk = min(updates, LONGEST_PART, max(1, int(room / 4 // (2 * (line + 4)))))
        # a part has two buffers where it is read and two where updates meet it
        high = min(rows, int(room - 2 * (chunk * (line + 4) + 64)) // (4 * line) - 64 // line)
        met = updates
        if groups > 1:
            shared = -(-groups * -(-columns // wide) // machine.vector_cores)
            whole = min(high // (rows // groups), shared)
            high, met = whole * (rows // groups), whole * (updates // groups)
            chunk = min(chunk, met)
        if high < 1:
            continue
        tiles = -(-rows // high) * -(-columns // wide)
        busiest = -(-tiles // machine.vector_cores)
        score = (busiest * part_cycles(high, line, met, machine), wide)
        if best is None or score < best[0]:
            best = (score, (high, wide, chunk))
    return None if best is None else best[1]


def part_cycles(high: int, line: int, met: int, machine: Machine) -> float:
    """Cycles of one core for a part of so many rows of `line` bytes that so many updates meet."""
    each = machine.row_instructions * machine.vector_issue_cycles + line / machine.vector.repeat_bytes
    return met * each + high * line / machine.burst_bytes


class ScatterKernel(BoxKernel):
    """A kernel over (rows and columns of the target, updates): a part of the target meets the updates in order."""

    in_order = frozenset({2})

    def __init__(self, op: ScatterOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op = op
        self.args: list[SSAValue] = [*fusion.body.block.args]
        (self.rows, self.columns), (self.count,) = shape_of(op.x), shape_of(op.index)
        self.element, self.width = element_of(op.x), itemsize(element_of(op.x))
        self.domain = [self.rows, self.columns, self.count]
        self.tensors = [gm_of(a) for a in self.args], [gm_of(op.result)]

    def choose(self, cores: int) -> list[tuple[Sequence[int], int]]:
        shape = self.rows, self.columns, self.count, self.width, self.machine
        tile = parts_of(*shape, self.op.runs()) or parts_of(*shape)
        return [] if tile is None else [(tile, cores)]

    def _met(self, high: int) -> int:
        """The updates that meet a part of so many rows: those of its own groups where it has whole ones."""
        groups = self.op.runs()
        if groups == 1:
            return self.count
        whole, rest = divmod(high, self.rows // groups)
        return self.count if rest else min(whole * (self.count // groups), self.count)

    def ub_bytes(self, tile: Sequence[int]) -> int:
        high, wide, chunk = tile
        line = wide * self.width if self.columns == 1 else -(-wide * self.width // 32) * 32
        # a part has two buffers where it is read and two where updates meet it
        return self.slots * (2 * line * high + chunk * (line + 4))

    def work(self, tile: Sequence[int]) -> VectorWork:
        high, wide, _ = tile
        tiles = -(-self.rows // high) * -(-self.columns // wide)
        each = part_cycles(high, wide * self.width, self._met(high), self.machine)
        return VectorWork({Pipe.MTE2: tiles * each})

    def too_large(self) -> str:
        return f"{describe(self.op)}: one row does not fit ub of {self.machine.name}"

    def pieces(self, tile: Sequence[int]) -> Sequence[AxisLoop]:
        trips = -(-self._met(tile[0]) // tile[2])
        return [AxisLoop(2, trips)] if may_repeat(trips) else []

    def beside(self, tile: Sequence[int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        met = self._met(tile[0])
        return {0: [(2, met)]} if met < self.count else {}

    def write(self, w: StageWriter) -> None:
        op, flat = self.op, self.columns == 1

        def box(axis: int, n: int) -> tuple[BoxDim, ...]:
            return (
                (BoxDim(n, 1, axis),) if flat else (BoxDim(n, self.columns, axis), BoxDim(self.columns, 1, 1))
            )

        def load(value: SSAValue, axis: int, n: int) -> Ref:
            op = StageLoadBox(self.args.index(value), box(axis, n))
            return w.load(op, self.element, [d.axis for d in op.box if d.axis is not None])

        target = load(op.x, 0, self.rows)
        index = StageLoadBox(self.args.index(op.index), (BoxDim(self.count, 1, 2),), fill=-1)
        into = w.load(index, i32, (2,))
        updates, shape = load(op.updates, 2, self.count), w.shape(target)
        scattered = ScatterRows(text(op.kind), 0, 2, self.count)
        made = w.put(scattered, [self.element], frozenset(shape), [target, into, updates], shape)
        w.store(0, box(0, self.rows), made)


def scatter_cycles(
    rows: int, columns: int, updates: int, element: Attribute, kind: str, machine: Machine, copies: int = 1
) -> float | None:
    """Cycles of the busiest core for a scatter in parts that all updates pass by, or for one into each of some copies,
    which its share of the updates pass by; None where no row, or no copy, fits."""
    width = itemsize(element)
    tile = parts_of(rows * copies, columns, updates, width, machine, copies)
    if tile is None:
        return None
    high, wide, _ = tile
    each = row_cycles(machine, combining(kind), dtype_name(element), wide)
    loaded = wide * width / machine.moves["gm", "ub"].bytes_per_cycle
    tiles = -(-rows * copies // high) * -(-columns // wide)
    met = updates // copies * max(high // rows, 1) if copies > 1 else updates
    return -(-tiles // machine.vector_cores) * met * max(each, loaded)
