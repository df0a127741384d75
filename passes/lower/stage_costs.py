"""What one stage of a vector kernel takes on one tile, in cycles."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.npu.interface import gm_traffic
from ...kernels.stage import Stage, spanning
from ...machine import Machine


def copying(stage: Stage, tile: Sequence[int], machine: Machine) -> tuple[float, float]:
    """(cycles where all is in L2, bytes) of one load or store of a tile of these extents."""
    view = stage.view
    assert view is not None
    move = machine.moves[("gm", "ub") if stage.kind == "load" else ("ub", "gm")]
    box = stage.box(tile)
    width = itemsize(view.element)
    starts = [n * s * width for n, s, whole in zip(box, view.strides, view.shape, strict=True) if n < whole]
    moved = gm_traffic(view, [0] * len(box), box, [1] * len(box), machine, gcd(machine.gm_align, *starts))
    return move.fixed_cycles + max(move.run_cycles * moved.runs, moved.bus / move.bytes_per_cycle), moved.bus


def computing(stage: Stage, tile: Sequence[int], machine: Machine) -> float:
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
