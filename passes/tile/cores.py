"""Chooses the number of cores of a kernel: each further core shortens the work and lengthens the launch."""

from __future__ import annotations

from collections.abc import Sequence

from ...dialects.dtypes import size
from ...dialects.npu.interface import gm_traffic
from ...dialects.npu.types import GmType
from ...machine import Machine
from .schedule import COPY_BYTES


def worth_waking(cycles: float, machine: Machine) -> int:
    """The fewest vector cores on which a kernel ends first that would take one core so many cycles."""
    work = machine.cycles_to_microseconds(cycles)
    return min(
        range(1, machine.vector_cores + 1), key=lambda n: machine.vector_launch_microseconds(n) + work / n
    )


def pieces_of(cycles: float, machine: Machine) -> int:
    """How many pieces there are in so much work of one core, none shorter than a copy in and out of COPY_BYTES / 2."""
    load, store = machine.moves["gm", "ub"], machine.moves["ub", "gm"]
    half = COPY_BYTES / 2
    return int(cycles // (half / load.bytes_per_cycle + half * load.miss_cycles + half / store.bytes_per_cycle))


def copy_cycles(kind: str, view: GmType, box: Sequence[int], machine: Machine) -> float:
    """Cycles of one vector core to "load" (from HBM: what L2 has is not known yet) or "store" all of a view, box by
    box."""
    move = machine.moves[("gm", "ub") if kind == "load" else ("ub", "gm")]
    rank, boxes = len(box), size(view.shape) / max(size(box), 1)
    moved = gm_traffic(view, [0] * rank, box, [1] * rank, machine, machine.gm_align)
    own = max(move.run_cycles * moved.runs, moved.bus / move.bytes_per_cycle)
    return boxes * (own + moved.bus * move.miss_cycles)
