"""What kernels of the vector cores have to do: all of it (`VectorWork`), and one stage of it on one tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, gcd

import numpy as np

from ..dialects.dtypes import dtype_name, itemsize, size
from ..dialects.npu.interface import gm_runs, gm_traffic
from ..dialects.npu.types import GmType, Pipe
from ..machine import Machine
from .columns import Number, launching_vectors, most, parts
from .price import Price
from .stage import KernelStage, spanning

COPY_BYTES = 16384
"""A single copy this long runs near the best bandwidth (documented rule of thumb for all Ascend chips)."""

SHARES = 4
"""In how many steps the share of a chip is tried that a kernel of vector cores takes."""


@dataclass(frozen=True)
class VectorWork:
    """What a kernel would take one vector core, by pipe, in cycles."""

    pipes: Mapping[Pipe, float]

    @property
    def cycles(self) -> float:
        """Its pipes one after the other."""
        return sum(self.pipes.values())

    def price(
        self, counts: Sequence[Number], grid: Sequence[Number], machine: Machine, overlap: bool = False
    ) -> Price:
        """Of the kernel with so many tiles along each axis, and so many cores; overlap: its pipes side by side."""
        busiest = size([parts(n, cores) for n, cores in zip(counts, grid, strict=True)])
        return self.on(size(grid), busiest / most(size(counts), 1), machine, overlap)

    def on(self, cores: Number, share: Number, machine: Machine, overlap: bool = False) -> Price:
        """Of the kernel on so many cores, the busiest of which has this share of the work."""
        launch = launching_vectors(machine, cores)
        return Price(launch, self.pipes, share, machine.clock_mhz, overlap=overlap)

    def worth_waking(self, machine: Machine) -> int:
        """The fewest vector cores on which the kernel ends first: each further one shortens the work and lengthens the
        launch."""
        numbers = np.arange(1, machine.vector_cores + 1)
        return int(numbers[np.argmin(self.on(numbers, 1 / numbers, machine).microseconds)])

    def numbers_of_cores(self, most: int, machine: Machine) -> list[int]:
        """Numbers of cores, at most so many, that are worth trying: on how many a launch ends first, and larger shares
        of the chip, which a group of launches may occupy for others."""
        fewest = min(self.worth_waking(machine), most)
        shares = (machine.vector_cores * part // SHARES for part in range(1, SHARES + 1))
        return [fewest, *(n for n in shares if fewest < n <= most)]

    def pieces(self, machine: Machine) -> int:
        """How many pieces there are of it, none shorter than a copy in and out of COPY_BYTES / 2."""
        load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
        half = COPY_BYTES / 2
        copied = half / load.bytes_per_cycle + half * load.miss_cycles + half / store.bytes_per_cycle
        return int(self.cycles // copied)


def copy_cycles(
    kind: str, view: GmType, box: Sequence[int], machine: Machine, warm: bool = False, rounded: bool = True
) -> float:
    """Cycles of one vector core to "load" or "store" all of a view, box by box. It is loaded from HBM, unless it is
    known that L2 has it: that it is `warm`. rounded: whether a box asks for whole bytes; else it takes no more than in
    smaller boxes with the same runs."""
    move = machine.moves[("gm", "ub") if kind == "load" else ("ub", "gm")]
    rank, boxes = len(box), size(view.shape) / max(size(box), 1)
    runs, length, lines = gm_runs(view, [0] * rank, box, [1] * rank, machine, machine.gm_align)
    bus = runs * length * lines
    bus = ceil(bus) if rounded else bus
    own = max(move.run_cycles * runs, bus / move.bytes_per_cycle)
    return boxes * (own + (0 if warm else bus * move.miss_cycles))


def copying(stage: KernelStage, tile: Sequence[int], machine: Machine) -> tuple[float, float]:
    """(cycles where all is in L2, bytes) of one load or store of a tile of these extents."""
    view = stage.view
    assert view is not None
    move = machine.moves[("gm", "ub") if stage.kind == "load" else ("ub", "gm")]
    box = stage.box(tile)
    width = itemsize(view.element)
    starts = [n * s * width for n, s, whole in zip(box, view.strides, view.shape, strict=True) if n < whole]
    moved = gm_traffic(view, [0] * len(box), box, [1] * len(box), machine, gcd(machine.gm_align, *starts))
    return move.fixed_cycles + max(move.run_cycles * moved.runs, moved.bus / move.bytes_per_cycle), moved.bus


def computing(stage: KernelStage, tile: Sequence[int], machine: Machine) -> float:
    """Cycles of the vector unit on a tile of these extents; the last axis is that along which lanes lie."""
    if not stage.elements or stage.kind == "fill":
        return 0.0
    unit, dtype = machine.vector, dtype_name(stage.elements[0])
    function = stage.function or "broadcast"
    if (
        len(tile) - 1 in stage.reduces
    ):  # lanes of a register are combined, all of one row otherwise than many rows
        function = "reduce_one_sum" if size(spanning(tile, stage.axes)) == 1 else "reduce_sum"
    names = (function, "add")
    known = next((name for name in names if unit.supports(name, dtype)), None)
    elements = size(spanning(tile, stage.axes | stage.reduces))
    return unit.cycles(known, dtype, elements) if known else elements
