"""Static packing: offsets for buffers with lifetimes, so that no two that are in use at one time share a byte.

`solve` finds low offsets, `within` offsets below a capacity. docs/memory-packing.md says how, and what was measured.
"""

from __future__ import annotations

from .problem import Buffer, PackingError, PackingProblem
from .solve import Budget, PackingPlan, solve, within

__all__ = ["Budget", "Buffer", "PackingPlan", "PackingError", "PackingProblem", "solve", "within"]
