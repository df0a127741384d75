"""Kernels for windows over a tensor: pooling and other reduce_window ops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.ir import BlockArgument, SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, describe, ints, pack, text, to_ints
from ....dialects.dtypes import dtype_name, element_type, itemsize, size
from ....dialects.elementwise import FUNCTIONS, REDUCTION_FUNCTION, identity
from ....dialects.graph import FusionOp, ReduceWindowOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import GmType, Pipe, padded_bytes
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, gm_of, hand_back, number
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....machine import Machine
from ...forms.access import resolve
from ..boxes import BoxKernel, TilePlace

UNROLLED_TAPS = 16
"""Windows of more positions than this are walked by loops instead of being written out."""


class WindowKernel(BoxKernel):
    """A reduce_window kernel: loads each tile's input with its border, then combines shifted boxes of it."""

    def __init__(self, op: ReduceWindowOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        self.op, self.domain = op, shape_of(op.result)
        self.source, self.kind = shape_of(op.x), text(op.kind)
        self.window, self.strides, self.dilation, self.low = (
            to_ints(p) for p in (op.window, op.strides, op.dilation, op.low)
        )
        rank = len(self.domain)
        self.load = resolve(
            op.x,
            [Expr.of(-1 - d) for d in range(rank)],
            {-1 - d: n for d, n in enumerate(self.source)},
            lambda v: isinstance(v, BlockArgument),
        )
        at = {i.terms[0][0]: s for i, s in zip(self.load.indices, self.load.strides, strict=True)}
        self.strided = [at.get(-1 - d, 0) for d in range(rank)]
        self.element, self.width = element_of(op.x), itemsize(element_of(op.x))
        self.tensors = [gm_of(a) for a in fusion.body.block.args], [dense(self.domain, self.element)]
        dtype, unit = dtype_name(self.element), machine.vector
        plain = dtype == "i1" or dtype in unit.native
        function = FUNCTIONS[REDUCTION_FUNCTION[self.kind]]
        wide = unit.orders(function.name, dtype) if function.picks else unit.compute_as.get(dtype, dtype)
        self.native = self.element if plain else element_type(wide)
        self.neutral = identity(self.kind, dtype)

    def _halo(self, tile: Sequence[int]) -> list[int]:
        """Elements of the input that a tile needs along each dimension."""
        lists = (tile, self.strides, self.window, self.dilation)
        return [(t - 1) * s + (w - 1) * d + 1 for t, s, w, d in zip(*lists, strict=True)]

    def ub_bytes(self, tile: Sequence[int]) -> int:
        need = self.slots * (padded_bytes(self._halo(tile), self.element) + padded_bytes(tile, self.element))
        need += 4 * padded_bytes(tile, self.native)
        if self.native != self.element:
            need += padded_bytes(self._halo(tile), self.native)
        return need

    def work(self, tile: Sequence[int]) -> VectorWork:
        read, write = GmType.of(self.source, self.element, self.strided), dense(self.domain, self.element)
        taps = (
            size(self.domain) * size(self.window) * itemsize(self.native) / self.machine.vector.repeat_bytes
        )
        load = copy_cycles("load", read, self._halo(tile), self.machine)
        return VectorWork(
            {Pipe.MTE2: load, Pipe.V: taps, Pipe.MTE3: copy_cycles("store", write, tile, self.machine)}
        )

    def too_large(self) -> str:
        window = list(self.window)
        return f"{describe(self.op)}: a window of {window} does not fit ub of {self.machine.name}"

    def body(self, b: KernelBuilder, place: TilePlace) -> None:
        tile, halo, native = place.tile, self._halo(place.tile), self.native
        assert isinstance(self.load.base, BlockArgument)
        view = b.view(b.gm(self.load.base.index), self.source, self.strided, self.load.offset)
        offsets = [p * s + -lo for p, s, lo in zip(place.position, self.strides, self.low, strict=True)]
        data = b.load(view, offsets, halo, TileType.of(halo, self.element, "ub"), fill=self.neutral)
        if native != self.element:
            data = b.add(ops.ELEMENTWISE["convert"], [data], [TileType.of(halo, native, "ub")]).results[0]
        total = self._combined(b, data, tile)
        if native != self.element:
            out = TileType.of(tile, self.element, "ub")
            total = b.add(ops.ELEMENTWISE["convert"], [total], [out]).results[0]
        b.store(total, b.output(0), place.position, tile)

    def _combined(self, b: KernelBuilder, data: SSAValue, tile: Sequence[int]) -> SSAValue:
        """The shifted boxes of a tile's input, combined: written out where the window is small, else by loops."""
        part = TileType.of(tile, self.native, "ub")
        cls = ops.ELEMENTWISE[REDUCTION_FUNCTION[self.kind]]
        window, dilation, rank = self.window, self.dilation, len(self.domain)

        def tap(where: list[Expr]) -> SSAValue:
            indices, rows = pack(where)
            return b.add(
                ops.ExtractOp,
                [data, *indices],
                [part],
                offsets=rows,
                sizes=ints(tile),
                steps=ints(self.strides),
            ).results[0]

        if size(window) <= UNROLLED_TAPS:
            total = None
            for n in range(size(window)):
                where, rest = [], n
                for d in reversed(range(rank)):
                    where.insert(0, Expr(rest % window[d] * dilation[d]))
                    rest //= window[d]
                piece = tap(where)
                total = piece if total is None else b.add(cls, [total, piece], [part]).results[0]
            assert total is not None
            return total
        carried: list[SSAValue] = [b.add(ops.FillOp, [], [part], value=number(self.neutral)).results[0]]
        first = carried
        with ExitStack() as nest:
            where = []
            for d in range(rank):
                outside, carried = carried, list(carried)
                nest.callback(hand_back, outside, carried)
                where.append(nest.enter_context(b.loop(window[d], carried)) * dilation[d])
            carried[0] = b.add(cls, [carried[0], tap(where)], [part]).results[0]
        return first[0]
