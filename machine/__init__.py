"""What a chip is: sizes, rates and costs, one TOML file per chip. Knows nothing of the compiler."""

from .machine import DEFAULT_TARGET, Machine, Target
from .parts import (
    LEVELS,
    PIPES,
    Banks,
    CubeRate,
    Energy,
    HostCost,
    MachineError,
    MemorySpace,
    Move,
    VectorUnit,
)

__all__ = [
    "Banks",
    "DEFAULT_TARGET",
    "CubeRate",
    "Energy",
    "HostCost",
    "LEVELS",
    "Machine",
    "MachineError",
    "MemorySpace",
    "Move",
    "PIPES",
    "Target",
    "VectorUnit",
]
