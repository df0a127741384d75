"""What a chip is: sizes, rates and costs, one TOML file per chip. Knows nothing of the compiler."""

from .machine import Machine
from .parts import LEVELS, PIPES, CubeRate, Energy, HostCost, MachineError, MemorySpace, Move, VectorUnit

__all__ = [
    "CubeRate",
    "Energy",
    "HostCost",
    "LEVELS",
    "Machine",
    "MachineError",
    "MemorySpace",
    "Move",
    "PIPES",
    "VectorUnit",
]
