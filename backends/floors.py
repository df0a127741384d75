"""The least time that a launch could take: all that must cross HBM, or all arithmetic, at the chip's peak.

    HBM     bytes that must cross it once, at its whole bandwidth
    cube    multiply-accumulates of each element type, at what all cubes finish in a cycle
    vector  elements of vector instructions, at a repeat of full lanes, or what the fastest instruction does, on all
            vector cores in each cycle

The three work side by side, so the floor of a launch is the largest of them. Starting it is no part of it. What L2 has
of a tensor when a launch begins need not cross HBM, however it came there. A launch that has others beside it, or does
a part of its work ahead of its barrier, counts for a share of the time: no floor is above that.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..machine import Machine
from .simulator import Copy, Launch


def floors_of(step: Launch | Copy, machine: Machine) -> dict[str, float]:
    """Microseconds that each resource needs for a launch or a copy, by name."""
    if isinstance(step, Copy):
        found = {"HBM": step.hbm_bytes / machine.hbm_bytes_per_cycle}
    else:
        totals = step.kernel.totals
        found = {
            "HBM": step.once_bytes / machine.hbm_bytes_per_cycle,
            "cube": sum(n / machine.cube[dtype].macs for dtype, n in totals.macs.items()) / machine.cube_cores,
            "vector": totals.full_cycles / machine.vector_cores,
        }
    return {name: machine.cycles_to_microseconds(cycles) for name, cycles in found.items() if cycles}


def floor_of(step: Launch | Copy, needs: Mapping[str, float]) -> float:
    """The floor of a launch or a copy, in microseconds, which needs these resources side by side."""
    least = max(needs.values(), default=0.0)
    return min(least, step.microseconds) if isinstance(step, Launch) and step.saved else least
