"""Kernels of the tile level with the addresses that they will have: what they take, and whether they have room."""

from __future__ import annotations

from ...dialects import tile
from ...dialects.npu.structure import KernelOp, SectionOp
from ...machine import Machine
from .allocate import try_section
from .bufferize import bufferize_kernel


def allocated(kernel: tile.KernelOp, machine: Machine) -> KernelOp | None:
    """The npu kernel of a tile kernel, with addresses; None where it has no room. Raises PassError for one that is none
    of the machine."""
    lowered = bufferize_kernel(kernel, machine)
    for section in lowered.sections():
        assert isinstance(section, SectionOp)
        if try_section(section, lowered, machine) is not None:
            return None
    return lowered
