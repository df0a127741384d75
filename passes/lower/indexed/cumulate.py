"""Kernels for cumulative reductions. Rows that do not fit are walked in pieces, with a carried partial result."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32

from ....dialects.base import describe, integer, text
from ....dialects.dtypes import dtype_name, element_type, is_float, itemsize, size
from ....dialects.elementwise import REDUCTION_FUNCTION, identity
from ....dialects.graph import CumulateOp, FusionOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import Pipe, padded_bytes, row_strides
from ....kernels.builder import dense, gm_of
from ....kernels.indexed import Cumulate
from ....kernels.loops import AxisLoop
from ....kernels.stage import StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter, boxed
from ....machine import Machine
from ..boxes import BoxKernel
from ..schedule import choose_tile


class CumulateKernel(BoxKernel):
    """A kernel over (what is outside of the dimension, the dimension, what is inside); f16 and bf16 are summed in
    f32."""

    whole = frozenset({1})
    in_order = frozenset({1})

    def __init__(self, op: CumulateOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op = op
        self.tensors = [gm_of(a) for a in fusion.body.block.args], [gm_of(op.result)]
        shape, along, kind = shape_of(op.x), integer(op.dim), text(op.kind)
        self.element, self.width = element_of(op.x), itemsize(element_of(op.x))
        self.domain = [size(shape[:along]), shape[along], size(shape[along + 1 :])]
        self.flat = self.domain[2] == 1
        self.function, self.dtype = REDUCTION_FUNCTION[kind], dtype_name(self.element)
        unit = machine.vector
        self.work_type = (
            self.element if self.dtype == "i1" else element_type(unit.computes(self.function, self.dtype))
        )
        if is_float(self.element) and kind in ("sum", "prod"):
            self.work_type = f32

    def _box(self, tile: Sequence[int]) -> list[int]:
        return [tile[0], tile[1]] if self.flat else [tile[1], tile[2]]

    def ub_bytes(self, tile: Sequence[int]) -> int:
        box = self._box(tile)
        return 2 * self.slots * padded_bytes(box, self.element) + 4 * padded_bytes(box, self.work_type)

    def fits(self, tile: Sequence[int]) -> bool:
        return self.refusal(tile) is None and super().fits(tile)

    def refusal(self, tile: Sequence[int]) -> str | None:
        return (
            "a tile has one row where the dimension is not the last one"
            if not self.flat and tile[0] > 1
            else None
        )

    def work(self, tile: Sequence[int]) -> VectorWork:
        every = dense(self.domain, self.element)
        added = size(self.domain) * itemsize(self.work_type) / self.machine.vector.repeat_bytes
        added *= self.domain[1].bit_length()
        load, store = (copy_cycles(kind, every, self.domain, self.machine) for kind in ("load", "store"))
        return VectorWork({Pipe.MTE2: load, Pipe.V: added, Pipe.MTE3: store})

    def too_large(self) -> str:
        return f"{describe(self.op)}: one element does not fit ub of {self.machine.name}"

    def choose(self, cores: int) -> list[tuple[Sequence[int], int]]:
        found: list[tuple[Sequence[int], int]] = []
        for n in self.work(self.domain).numbers_of_cores(cores, self.machine):
            tile = choose_tile(self.domain, self.whole, self.fits, self.width, n)
            if tile is None:
                length, wide = self.domain[1], min(self.domain[2], 256 // self.width)
                while length > 1 and not self.fits((1, length, wide)):
                    length = -(-length // 2)
                tile = (1, length, wide)
            found.append((tile, n))
        return [choice for choice in found if self.fits(choice[0])]

    def pieces(self, tile: Sequence[int]) -> Sequence[AxisLoop]:
        pieces = -(-self.domain[1] // tile[1])
        return [AxisLoop(1, pieces, bool(integer(self.op.reverse)))] if pieces > 1 else []

    def write(self, w: StageWriter) -> None:
        kind, shape = text(self.op.kind), (0, 1) if self.flat else (1, 2)
        neutral = identity(kind, self.dtype)
        box = boxed(self.domain, row_strides(self.domain))
        x = w.converted(w.load(StageLoadBox(0, box, fill=neutral), self.element, shape), self.work_type)
        op = Cumulate(kind, 1, neutral, bool(integer(self.op.reverse)))
        made = w.put(op, [self.work_type], frozenset({0, 1, 2}), [x], shape)
        w.store(0, box, w.converted(made, self.element))
