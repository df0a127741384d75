"""Kernels of the prefix-xor unit: rows are loaded to ub, copied to px, computed, and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from tilewright.dialects.base import describe
from tilewright.dialects.dtypes import itemsize, size
from tilewright.dialects.graph import FusionOp, VectorSchedule
from tilewright.dialects.graph.interface import element_of, shape_of
from tilewright.dialects.npu.types import Pipe, padded_bytes
from tilewright.dialects.tile import TileType
from tilewright.kernels.builder import dense, gm_of
from tilewright.kernels.emit import Emitter, build_stage
from tilewright.kernels.stage import BoxDim, KernelStage, StageLoadBox, StageOp
from tilewright.kernels.vector_cost import VectorWork
from tilewright.kernels.writer import StageWriter
from tilewright.machine import Machine
from tilewright.passes.errors import PassError
from tilewright.passes.lower.boxes import BoxKernel

from .ops import PrefixXorOp, TileCopyPxOp, TilePrefixXorOp


class PrefixXorKernel(BoxKernel):
    """A kernel over (rows, the dimension that is walked). Raises PassError where the chip has no px."""

    whole = frozenset({1})

    def __init__(self, op: PrefixXorOp, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion, machine, asked)
        if "px" not in machine.spaces:
            raise PassError(
                f"{describe(op)} needs px, which {machine.name} does not have: run acme-expand before"
            )
        *outer, n = shape_of(op.x)
        self.op, self.element = op, element_of(op.x)
        self.domain, self.width = [size(outer), n], itemsize(self.element)
        self.tensors = [gm_of(a) for a in fusion.body.block.args], [gm_of(op.result)]

    def fits(self, tile: Sequence[int]) -> bool:
        room = self.machine.spaces["px"].bytes // self.slots
        return padded_bytes(tile, self.element) <= room and super().fits(tile)

    def refusal(self, tile: Sequence[int]) -> str | None:
        if tile[1] != self.domain[1]:
            return "a row is computed whole"
        return None if self.fits(tile) else "the tile does not fit px"

    def work(self, tile: Sequence[int]) -> VectorWork:
        """Each byte is loaded, copied to px, computed at the copy's rate, and stored."""
        total = dense(self.domain, self.element).bytes
        load, copy, store = (self.machine.moves[path] for path in (("gm", "ub"), ("ub", "px"), ("ub", "gm")))
        cycles = {move.pipe: total / move.bytes_per_cycle for move in (load, copy, store)}
        return VectorWork({Pipe(pipe): n * (2 if pipe == copy.pipe else 1) for pipe, n in cycles.items()})

    def too_large(self) -> str:
        return f"{describe(self.op)}: a row of {self.domain[1]} does not fit px of {self.machine.name}"

    def write(self, w: StageWriter) -> None:
        (rows, n), axes = self.domain, frozenset({0, 1})
        box = BoxDim(rows, n, 0), BoxDim(n, 1, 1)
        x = w.load(StageLoadBox(0, box), self.element)
        w.store(0, box, w.put(PrefixXorRows(), [self.element], axes, [x]))


@dataclass(frozen=True)
class PrefixXorRows(StageOp):
    """The prefix-xor of each row of its operand, computed in px."""

    NAME = "acme_prefix_xor"
    OPERANDS = 1


@build_stage.register
def _(op: PrefixXorRows, e: Emitter, stage: KernelStage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    (in_ub,) = e.types(stage)
    staged = e.builder.add(TileCopyPxOp, tiles, [TileType.of(in_ub.shape, in_ub.element, "px")])
    return e.builder.add(TilePrefixXorOp, staged.results, [in_ub]).results
