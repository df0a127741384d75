"""Kernels for windows over a tensor: pooling and other reduce_window ops."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from xdsl.ir import BlockArgument

from ....dialects.base import Expr, describe, text, to_ints
from ....dialects.dtypes import dtype_name, element_type, itemsize, size
from ....dialects.elementwise import FUNCTIONS, REDUCTION_FUNCTION, identity
from ....dialects.graph import FusionOp, ReduceWindowOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import GmType, Pipe, padded_bytes, row_strides
from ....kernels.builder import dense, gm_of, may_repeat
from ....kernels.graph import OwnAxis
from ....kernels.indexed import Accumulate
from ....kernels.loops import AxisLoop
from ....kernels.stage import Extract, Ref, StageLoadBox
from ....kernels.vector_cost import VectorWork, copy_cycles
from ....kernels.writer import StageWriter, boxed
from ....machine import Machine
from ...forms.access import resolve
from ..boxes import BoxKernel

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

    @property
    def looped(self) -> bool:
        """Whether loops go through the places of a window."""
        return size(self.window) > UNROLLED_TAPS

    def pieces(self, tile: Sequence[int]) -> Sequence[AxisLoop]:
        first = 2 * len(self.domain)
        loops = (AxisLoop(first + d, n) for d, n in enumerate(self.window) if self.looped)
        return [loop for loop in loops if may_repeat(loop.trips)]

    def write(self, w: StageWriter) -> None:
        spec = enumerate(zip(self.strides, self.window, self.dilation, self.low, strict=True))
        border = w.own(
            [OwnAxis("border", (n - 1) * dilation + 1, d, s, -low) for d, (s, n, dilation, low) in spec]
        )
        box = boxed(self.source, self.strided, border)
        assert isinstance(self.load.base, BlockArgument)
        op = StageLoadBox(self.load.base.index, box, self.load.offset, self.neutral)
        data = w.converted(w.load(op, self.element, border), self.native)
        total = self._looped(w, data) if self.looped else self._written(w, data)
        w.store(0, boxed(self.domain, row_strides(self.domain)), w.converted(total, self.element))

    def _written(self, w: StageWriter, data: Ref) -> Ref:
        """The shifted boxes of a tile's input, combined one by one."""
        total: Ref | None = None
        for place in itertools.product(*map(range, self.window)):
            lists = zip(place, self.dilation, self.strides, strict=True)
            taken = tuple((d, k * dilation, s) for d, (k, dilation, s) in enumerate(lists))
            piece = w.extract(Extract(taken), data, self._shape)
            total = piece if total is None else w.apply(REDUCTION_FUNCTION[self.kind], total, piece)
        assert total is not None
        return total

    def _looped(self, w: StageWriter, data: Ref) -> Ref:
        """The same by loops through the places of a window."""
        total = w.fill(self.neutral, self.native, self._shape, frozenset(self._shape))
        places = w.own([OwnAxis("place in the window") for _ in self.window])
        taken = tuple((d, 0, s) for d, s in enumerate(self.strides))
        moved = tuple((d, a, n) for d, (a, n) in enumerate(zip(places, self.dilation, strict=True)))
        piece = w.extract(Extract(taken, moved=moved), data, self._shape)
        op = Accumulate(self.kind, tuple(zip(places, self.window, strict=True)))
        return w.put(op, [self.native], frozenset(self._shape), [total, piece], self._shape)

    @property
    def _shape(self) -> Sequence[int]:
        """The axes of a tile of results."""
        return range(len(self.domain))
