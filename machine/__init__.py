"""What a chip is: sizes, rates and costs, one TOML file per chip. Knows nothing else of the package."""

from .machine import (
    DEFAULT_TARGET,
    CubeRate,
    Energy,
    HostCost,
    Machine,
    MachineError,
    MemorySpace,
    Move,
    VectorUnit,
)

__all__ = [
    "DEFAULT_TARGET",
    "CubeRate",
    "Energy",
    "HostCost",
    "Machine",
    "MachineError",
    "MemorySpace",
    "Move",
    "VectorUnit",
]
