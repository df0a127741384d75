"""All plans of a product on the vector cores: a tile along each axis, of what is summed over, too, and how many cores.

A box has a roofline: what is loaded once and what each number is computed with, shared by cores evenly, with the starts
of the longest tiles; and behind it what the shortest tile takes by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ....dialects.dtypes import dtype_name, itemsize, size
from ....kernels.space import Box, parts_of
from ....kernels.stage import KernelStage
from ..vector_space import VectorSpace

if TYPE_CHECKING:
    from .vector_product import VectorProductKernel

MANY = 1 << 24
"""Numbers that take as long as rates say, whatever starts and rounding take."""

ROUNDED = 1 - 1e-6
"""Of what so many take, as they are no more."""


class _Linear(NamedTuple):
    """Axes of the numbers that a stage works on, and its cycles for each, at least."""

    axes: frozenset[int]
    each: float


class VectorProductSpace(VectorSpace):
    """The plans of a product on the vector cores."""

    kernel: VectorProductKernel

    def lengths(self, axis: int, multiple: int) -> tuple[int, ...]:
        found = {*super().lengths(axis, multiple), *(tile[axis] for tile in self.kernel.tiles_tried)}
        if axis in self.kernel.rows:
            found |= {*parts_of(self.kernel.extents[axis], self.kernel.ROWS)}
        return tuple(sorted(found, reverse=True))

    def busiest(self, tile: tuple[int, ...]) -> np.ndarray:
        shares, counts = self.shares(tile), self.kernel.counts(tile)
        able = np.isfinite(shares)
        found = np.full(len(shares), np.inf)
        results = shares[able] * size([counts[a] for a in self.kernel.outer])
        found[able] = self.kernel.priced(tile, results, np.array(self.cores)[able]).cycles
        return found

    def by_cores(self, box: Box) -> np.ndarray:
        longest, shortest = (self.tile(side) for side in box)
        own = slice(box[0][-1], box[1][-1] + 1)
        if longest == shortest:
            return (self.launches + self.busiest(longest) / self.machine.clock_mhz)[own]
        cores, wait = np.array(self.cores[own]), self.machine.wait_cycles.get("MTE2", 0)
        counts = self.kernel.counts(longest)
        pieces = np.ceil(size(counts) / cores)
        load, each, crossing = self._loading(longest)
        loaded = self._times(load.axes, counts) * load.each
        start = self.machine.moves["gm", "ub"].fixed_cycles
        loading = np.maximum(pieces * start + loaded * each / cores, loaded * crossing) + pieces * wait
        computed = sum(self._times(s.axes, counts) * s.each for s in self._computing)
        alone = start + size([shortest[a] for a in load.axes]) * load.each * each
        alone += sum(size([shortest[a] for a in s.axes]) * s.each for s in self._computing)
        cycles = np.maximum(loading, computed / cores) + alone
        return self.launches[own] + cycles / self.machine.clock_mhz

    def _times(self, axes: frozenset[int], counts: Sequence[int]) -> float:
        """Numbers that a stage works on, which has these axes: once for each tile along others."""
        return float(size([n if a in axes else counts[a] for a, n in enumerate(self.extents)]))

    def _loading(self, longest: Sequence[int]) -> tuple[_Linear, float, float]:
        """The load of what is read once, with the bytes of a number; and cycles of a core for each of these, and of
        HBM."""
        step, move = self.kernel.longest, self.machine.moves["gm", "ub"]
        assert step.view is not None
        width, (inner, *_) = itemsize(step.view.element), step.in_memory()
        each = 1 / move.bytes_per_cycle
        if longest[inner] < self.extents[inner]:
            each = max(each, move.run_cycles / (longest[inner] * width))
        return _Linear(step.axes, width), each + move.miss_cycles, 1 / self.machine.hbm_bytes_per_cycle

    @cached_property
    def _computing(self) -> list[_Linear]:
        """The stages that work on pieces."""
        stages = self.kernel.stages
        works = (stages[i] for i in self.kernel.of_pieces if stages[i].view is None)
        return [_Linear(s.axes | s.reduces, self._cycles_each(s)) for s in works if s.elements and s.kind != "fill"]

    def _cycles_each(self, stage: KernelStage) -> float:
        """Cycles of the vector unit for each number, at least."""
        unit, dtype = self.machine.vector, dtype_name(stage.elements[0])
        last = len(self.extents) - 1
        names = ("reduce_one_sum", "reduce_sum") if last in stage.reduces else (stage.function or "broadcast",)
        known = (next((f for f in (name, "add") if unit.supports(f, dtype)), None) for name in names)
        return min(unit.cycles(f, dtype, MANY) / MANY * ROUNDED if f else 1.0 for f in known)
