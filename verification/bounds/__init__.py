"""Error bounds beside values: how far each element of a result may be off."""

from .base import Bound, both, distance, or_zeros
from .rules import EXACT, host_errors, propagate
from .settled import settles

__all__ = ["EXACT", "Bound", "both", "distance", "host_errors", "or_zeros", "propagate", "settles"]
