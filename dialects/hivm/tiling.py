"""How the vendor's macro for a product of tiles in l1, `mma_tile` behind `mmadL1`, cuts the summed dimension.

From Ascend/AscendNPU-IR, bishengir/lib/Template/lib/Cube/LocalMmad.cpp. Each part waits for M -> MTE1, is loaded to l0a
and l0b, which take turns at two addresses, is handed over by a flag of the macro, and multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Attribute, Operation, SSAValue

from ...machine import Machine
from ..dtypes import itemsize, size
from ..npu.cube import LoadL0Op, MmadOp
from ..npu.types import FRACTAL_ROWS, ROW_BYTES, BufferType


def block_of(kind: BufferType) -> int:
    """Elements of a row of a fractal."""
    return ROW_BYTES // itemsize(kind.element)


def macro_cut(left: int, right: int, element: Attribute | str, l0_bytes: int) -> tuple[int, bool]:
    """Elements of the summed dimension that the macro takes at once, for tiles in l1 with so many rows on the left and
    columns on the right, whole fractals; 0 where l0 has no room for a fractal of them. With it whether they fit in half
    of l0, so that parts take turns."""
    unit = max(ROW_BYTES // itemsize(element), FRACTAL_ROWS)
    side = -(-max(left, right) // unit) * unit
    room = l0_bytes // itemsize(element)
    half = room // 2 // side // unit * unit
    return half or room // side // unit * unit, half > 0


def macro_part(left: int, right: int, kind: BufferType, machine: Machine) -> int:
    """What the macro takes at once of tiles in l1 on a machine, by `macro_cut`."""
    room = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes)
    return macro_cut(left, right, kind.element, room)[0]


def counted_side(kind: BufferType, by_rows: bool, used: int) -> int:
    """Rows or columns of a tile in l1 as the macro counts them: by_rows, all its rows, else the columns that are
    used."""
    unit = FRACTAL_ROWS if by_rows else block_of(kind)
    return -(-(size(kind.shape[:-1]) if by_rows else used) // unit) * unit


def before(op: Operation) -> Iterator[Operation]:
    """The ops before one in its block, the nearest first."""
    at = op.prev_op
    while at is not None:
        yield at
        at = at.prev_op


def loader_of(mmad: MmadOp, operand: SSAValue) -> LoadL0Op | None:
    """The load that fills an operand of a product, the last one before it in its block; None where there is none."""
    return next((op for op in before(mmad) if isinstance(op, LoadL0Op) and op.dest is operand), None)
