"""Kernels for sort: whole rows in the unified buffer, some rows at a time."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Attribute, OpResult, SSAValue

from ....dialects.base import describe, to_ints
from ....dialects.dtypes import itemsize, size
from ....dialects.graph import FusionOp, SortOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import Pipe, padded_bytes
from ....kernels.builder import dense, gm_of
from ....kernels.graph import OwnAxis
from ....kernels.indexed import WORD, Sort
from ....kernels.stage import BoxDim, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter
from ....machine import Machine
from ...fusion.long_rows import UB_FRACTION
from ..boxes import BoxKernel
from ..schedule import choose_tile


def fitting_slots(rows: int, n: int, keep: int, elements: Sequence[Attribute], machine: Machine) -> int:
    """How many slots (2, 1, or 0: it does not fit) each buffer may have to sort so many rows at once: operands,
    results, and two lists of (key, place)."""
    room = machine.spaces["ub"].bytes * UB_FRACTION
    return next((slots for slots in (2, 1) if sorted_bytes(rows, n, keep, elements, slots) <= room), 0)


def sorted_bytes(rows: int, n: int, keep: int, elements: Sequence[Attribute], slots: int) -> int:
    """Bytes of ub to sort so many rows at once, with so many slots for operands and results."""
    held = sum(padded_bytes([rows, n], e) + padded_bytes([rows, keep], e) for e in elements)
    return slots * held + padded_bytes([rows, 4 * n], WORD)


class SortKernel(BoxKernel):
    """A kernel over (rows, the sorted dimension)."""

    whole = frozenset({1})

    def __init__(self, op: SortOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op = op
        self.args: list[SSAValue] = [*fusion.body.block.args]
        self.yielded = list(fusion.yielded(0).values)
        self.elements = [element_of(x) for x in op.xs]
        *outer, n = shape_of(op.xs[0])
        self.keep, self.domain = op.kept(), [size(outer), n]
        self.width = max(map(itemsize, self.elements))
        self.tensors = [gm_of(a) for a in self.args], [gm_of(v) for v in self.yielded]
        self.buffers = max(fitting_slots(1, n, self.keep, self.elements, machine), 1)

    def ub_bytes(self, tile: Sequence[int]) -> int:
        return sorted_bytes(tile[0], self.domain[1], self.keep, self.elements, self.slots)

    def refusal(self, tile: Sequence[int]) -> str | None:
        return None if tile[1] == self.domain[1] else "a row is sorted whole"

    def work(self, tile: Sequence[int]) -> VectorWork:
        rows, n = self.domain
        every = (copy_cycles("load", dense(self.domain, e), tile, self.machine) for e in self.elements)
        # each merge of lists twice as long reads and writes all keys with their places
        merged = size((rows, 4 * n)) * itemsize(WORD) / self.machine.vector.repeat_bytes * n.bit_length()
        return VectorWork({Pipe.MTE2: sum(every), Pipe.V: merged})

    def too_large(self) -> str:
        return f"{describe(self.op)}: a row of {self.domain[1]} does not fit ub of {self.machine.name}"

    def choose(self, cores: int) -> list[tuple[Sequence[int], int]]:
        tile = choose_tile(self.domain, self.whole, self.fits, self.width, cores)
        return [] if tile is None else [(tile, cores)]

    def write(self, w: StageWriter) -> None:
        op, (rows, n) = self.op, self.domain
        kept, work = w.own([OwnAxis("kept", self.keep), OwnAxis("worked in", 4 * n)])
        box = BoxDim(rows, n, 0), BoxDim(n, 1, 1)
        loaded = [
            w.load(StageLoadBox(self.args.index(x), box), e, (0, 1))
            for x, e in zip(op.xs, self.elements, strict=True)
        ]
        sort = Sort(to_ints(op.keys), to_ints(op.descending), to_ints(op.total), work)
        made, _ = w.put(sort, self.elements, frozenset({0, kept}), loaded, (0, kept))
        for i, value in enumerate(self.yielded):
            assert isinstance(value, OpResult)
            w.store(i, [BoxDim(rows, self.keep, 0), BoxDim(self.keep, 1, kept)], (made, value.index))
