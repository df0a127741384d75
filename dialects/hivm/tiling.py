"""How the vendor's macro for a product of tiles in l1, `mma_tile` behind `mmadL1`, cuts the summed dimension.

From Ascend/AscendNPU-IR, bishengir/lib/Template/lib/Cube/LocalMmad.cpp. Each part waits for M -> MTE1, is loaded to l0a
and l0b, which take turns at two addresses, is handed over by a flag of the macro, and multiplied.
"""

from __future__ import annotations

from ...machine import Machine
from ..dtypes import itemsize
from ..npu.types import BufferType

ROWS = 16
"""Rows of a fractal."""


def block_of(kind: BufferType) -> int:
    """Elements of a row of a fractal: 32 bytes."""
    return 32 // itemsize(kind.element)


def macro_part(left: int, right: int, kind: BufferType, machine: Machine) -> int:
    """Elements of the summed dimension that the macro takes at once, for tiles in l1 with so many rows on the left and
    columns on the right, whole fractals; 0 where l0 has no room for a fractal of them."""
    unit = max(block_of(kind), ROWS)
    side = -(-max(left, right) // unit) * unit
    room = min(machine.spaces["l0a"].bytes, machine.spaces["l0b"].bytes) // itemsize(kind.element)
    return room // 2 // side // unit * unit or room // side // unit * unit
