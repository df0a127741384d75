"""Kernels for cumulative reductions. Rows that do not fit are walked in pieces, with a carried partial result."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, describe, integer, integer_attr, ints, pack, text
from ....dialects.dtypes import dtype_name, element_type, is_float, itemsize, size
from ....dialects.elementwise import REDUCTION_FUNCTION, identity
from ....dialects.graph import CumulateOp, FusionOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import Pipe, padded_bytes, row_strides
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, gm_of, number
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....machine import Machine
from ..boxes import BoxKernel, TilePlace
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

    def body(self, b: KernelBuilder, place: TilePlace) -> None:
        op, tile, position = self.op, place.tile, place.position
        pieces, backwards = -(-self.domain[1] // tile[1]), bool(integer(op.reverse))
        cls, neutral = ops.ELEMENTWISE[self.function], identity(text(op.kind), self.dtype)
        box, dim = self._box(tile), 1 if self.flat else 0
        whole = TileType.of(box, self.work_type, "ub")
        edge = [1 if d == dim else n for d, n in enumerate(box)]
        carry = TileType.of(edge, self.work_type, "ub")
        state: list[SSAValue] = []
        if pieces > 1:
            state = [b.add(ops.FillOp, [], [carry], value=number(neutral)).results[0]]
        with b.loop(pieces, state) as i:
            position[1] = (i * -1 + (pieces - 1) if backwards else i) * tile[1]
            source, dest = (b.view(t, self.domain, row_strides(self.domain)) for t in (b.gm(0), b.output(0)))
            loaded = TileType.of(box, self.element, "ub")
            x = _converted(b, b.load(source, position, tile, loaded, fill=neutral), whole)
            made = b.add(
                ops.CumulateOp, [x], [whole], kind=op.kind, dim=integer_attr(dim), reverse=op.reverse
            ).results[0]
            if state:
                before = b.add(ops.BroadcastOp, state, [whole]).results[0]
                made = b.add(cls, [before, made], [whole]).results[0]
                last = [0 if d != dim or backwards else n - 1 for d, n in enumerate(box)]
                indices, offsets = pack([Expr(n) for n in last])
                state[0] = b.add(
                    ops.ExtractOp,
                    [made, *indices],
                    [carry],
                    offsets=offsets,
                    sizes=ints(edge),
                    steps=ints([1, 1]),
                ).results[0]
            b.store(_converted(b, made, loaded), dest, position, tile)


def _converted(b: KernelBuilder, x: SSAValue, wanted: TileType) -> SSAValue:
    return x if x.type == wanted else b.add(ops.ELEMENTWISE["convert"], [x], [wanted]).results[0]
