"""Graphs of stages: the bytes of ub that they need for given tile extents, and the loop that each stage belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..dialects.dtypes import itemsize
from ..dialects.npu.types import padded_size
from .stage import KernelStage

_ORDER = {"load": 0, "store": 2}
"""When the kinds of stages of one loop depth are emitted; others come between."""


@dataclass(frozen=True)
class _Layout:
    """Of stages by their numbers: the last one that uses each, those that cross pipes, those that are kept, and the
    bytes of an element of each result."""

    last: dict[int, int]
    crossing: set[int]
    kept: set[int]
    widths: Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class OwnAxis:
    """An axis that stages have besides those of their domain: a tile has `least` elements along it, or so many for the
    first element along the axis `of` of the domain and `step` more for each other one; it begins at `start` where the
    domain begins. what: what lies along it, for people."""

    what: str
    least: int = 1
    of: int | None = None
    step: int = 1
    start: int = 0

    def length(self, tile: Sequence[int]) -> int:
        """Its elements for a tile of the domain."""
        return self.least if self.of is None else (tile[self.of] - 1) * self.step + self.least


class StageGraph(list[KernelStage]):
    """Stages in an order in which each comes after what it uses. own: the axes that they have behind those of their
    domain, by number."""

    own: Mapping[int, OwnAxis] = {}
    _known: _Layout | None = None
    _places: Sequence[tuple[int, frozenset[int]]] = ()

    def extents(self, stage: KernelStage, tile: Sequence[int]) -> Sequence[int]:
        """The extents of a stage's results along all axes, for those of a tile."""
        return tile

    def tile_of(self, tile: Sequence[int]) -> tuple[int, ...]:
        """The extents of a tile along all axes, for those along the axes of the domain."""
        return (*tile, *(axis.length(tile) for axis in self.own.values()))

    def rows(self) -> frozenset[int]:
        """The axes that are reduced."""
        return frozenset().union(*(s.reduces for s in self))

    def varies(self) -> list[frozenset[int]]:
        """The axes whose loops each stage may stand in: those that anything it uses moves along."""
        rows = frozenset().union(*(s.reduces for s in self))
        found: list[frozenset[int]] = []
        for stage in self:
            found.append((stage.moves - rows).union(*(found[j] for j, _ in stage.operands)))
        return found

    def needed(self) -> list[int]:
        """The stages that something stored is made of, stores included."""
        stores = [i for i, s in enumerate(self) if s.kind == "store"]
        return sorted({j for i in stores for j in [*self.ancestors(i), i]})

    def ub_bytes(
        self,
        tile: Sequence[int],
        slots: int,
        in_place: bool = False,
        places: Sequence[tuple[int, frozenset[int]]] = (),
    ) -> int:
        """Bytes of the unified buffer that the stages need at once with these tile extents. Temporaries of one loop
        share memory; what a loop further in uses keeps its own. in_place: whether results are counted as written over
        operands that end there, as npu-allocate does. places: where each stage stands, if that is not said by the axes
        that it varies along; results of reductions are carried from one to another."""
        layout = self._layout(places)
        total = live = peak = 0
        ends: dict[int, list[int]] = {}
        sizes: dict[tuple[object, ...], int] = {}  # many stages have results of one kind
        for i, stage in enumerate(self):
            extents = self.extents(stage, tile)
            kind = (*extents, stage.axes, stage.tile_axes, layout.widths[i], stage.spacing)
            need = sizes.get(kind)
            if need is None:
                shape = stage.extents(extents)
                need = sizes[kind] = sum(padded_size(shape, width) for width in layout.widths[i])
            if stage.kind == "scalar":
                continue
            if i in layout.crossing:
                total += need * slots
            elif stage.kind == "fill" or i in layout.kept:
                total += need
            elif stage.elements:
                if in_place and (over := self._ending(i, layout, ends.get(i, ()), need)):
                    ends[i].remove(over)
                    live -= over
                live += need
                ends.setdefault(layout.last.get(i, i), []).append(need)
                peak = max(peak, live)
            live -= sum(ends.pop(i, ()))
        return total + peak

    def _layout(self, places: Sequence[tuple[int, frozenset[int]]]) -> _Layout:
        """What of the bytes does not depend on the tile; it is kept until there are more stages, or they stand
        elsewhere."""
        known = self._known
        if known is not None and places is self._places and len(known.widths) == len(self):
            return known
        varies = places or [(0, axes) for axes in self.varies()]
        found = _Layout({}, set(), set(), [tuple(map(itemsize, stage.elements)) for stage in self])
        for i, stage in enumerate(self):
            for j, _ in stage.operands:
                found.last[j] = i
                if stage.kind == "store":
                    found.crossing.add(j)
                if varies[j] != varies[i] and not (places and self[j].reduces):
                    found.kept.add(j)
            if stage.kind == "load":
                found.crossing.add(i)
        self._known, self._places = found, places
        return found

    def _ending(self, i: int, layout: _Layout, ends: Sequence[int], need: int) -> int:
        """The bytes of an operand of elementwise stage i that ends there and that the result may be written over."""
        stage = self[i]
        for j, _ in stage.operands if stage.function is not None else ():
            other = self[j]
            fits = other.axes == stage.axes and layout.widths[j][0] == layout.widths[i][0]
            apart = j in layout.crossing or j in layout.kept
            if fits and layout.last[j] == i and not apart and other.kind != "fill" and need in ends:
                return need
        return 0

    def levels(self, depth: dict[int, int]) -> list[int]:
        """The loop depth each stage belongs to: the deepest that anything it uses varies with. What is reduced along
        the axis of a loop is known behind it."""
        level: list[int] = []
        along: list[frozenset[int]] = []
        for stage in self:
            moved = stage.moves.union(*(along[j] - self[j].reduces for j, _ in stage.operands))
            along.append(moved)
            level.append(max((depth.get(a, 0) for a in moved), default=0))
        return level

    def ordered(self, stages: Iterable[int]) -> list[int]:
        """Loads first, stores last."""
        return sorted(stages, key=lambda i: _ORDER.get(self[i].kind, 1))

    def along(self, rows: frozenset[int]) -> list[int]:
        """The stages that work along `rows`, and what they use."""
        wide = [i for i, s in enumerate(self) if (s.axes | s.moves) & rows]
        return sorted({j for i in wide for j in [*self.ancestors(i), i]})

    def ancestors(self, at: int) -> list[int]:
        """All that stage number `at` uses."""
        needed: set[int] = set()
        stack = [at]
        while stack:
            for j, _ in self[stack.pop()].operands:
                if j not in needed:
                    needed.add(j)
                    stack.append(j)
        return sorted(needed)
