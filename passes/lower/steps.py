"""Steps of a vector kernel: tile ops known by the axes that they span, before their tiles have sizes.

From a list of steps follow the bytes of ub for given tile extents and the loop of each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute, SSAValue

from ...dialects.base import Expr
from ...dialects.dtypes import itemsize
from ...dialects.npu.types import GmType, padded_size
from ...dialects.tile import TileType
from .builder import KernelBuilder

Ref = tuple[int, int]
"""A step's number and which of its results."""


@dataclass(frozen=True)
class Spacing:
    """Along `axis` a tile is longer or shorter than others: it has all elements between those of which `step` takes one
    in so many, or one element for each pair."""

    axis: int
    step: int = 1
    pairs: bool = False

    def length(self, extent: int) -> int:
        """Its elements where others have so many."""
        return extent // 2 if self.pairs else (extent - 1) * self.step + 1


@dataclass
class Step:
    """One tile op. `axes` are the domain axes its result spans; `emit` builds it from its operands' tiles."""

    elements: Sequence[Attribute]
    axes: frozenset[int]
    operands: Sequence[Ref]
    emit: Callable[[Emitter, list[SSAValue]], Sequence[SSAValue]]
    kind: str
    moves: frozenset[int] = frozenset()
    """Axes whose loop indices the step itself reads."""
    reduces: frozenset[int] = frozenset()
    combines: str | None = None
    """The kind of a reduction: what partial results of it are combined by."""
    function: str | None = None
    """What the vector unit computes."""
    view: GmType | None = None
    """What a load or store moves in all, along `along`: an axis for each dimension, None where there is one place."""
    along: Sequence[int | None] = ()
    source: int | None = None
    """The number of the input that a load reads."""
    spacing: Spacing | None = None
    """The axis along which its results have other lengths than what else spans it."""
    pooled: frozenset[int] = frozenset()
    """Axes along which it has windows in the place of their elements."""
    location: LocationAttr | None = None
    """Where the graph op it belongs to came from."""

    def box(self, tile: Sequence[int]) -> list[int]:
        """What it loads or stores at once, for the extents of a tile."""
        extents = spanning(tile, self.axes, self.spacing)
        return [1 if a is None else extents[a] for a in self.along]

    def nearest(self) -> int | None:
        """The axis along which what it loads or stores lies side by side; None where it moves single elements, or
        nothing."""
        if self.view is None:
            return None
        moved = zip(self.view.strides, self.along, self.view.shape, strict=True)
        return min(((abs(s), a) for s, a, n in moved if s and a is not None and n != 1), default=(0, None))[1]


def spanning(tile: Sequence[int], axes: frozenset[int], spacing: Spacing | None = None) -> list[int]:
    """Extents of what spans only `axes` of a tile, with other ones along one of them."""
    extents = [t if a in axes else 1 for a, t in enumerate(tile)]
    if spacing is not None:
        extents[spacing.axis] = spacing.length(extents[spacing.axis])
    return extents


def tile_bytes(
    tile: Sequence[int], axes: frozenset[int], elements: Iterable[Attribute], spacing: Spacing | None = None
) -> int:
    """Bytes of the tiles of these element types that span only `axes`, with other ones along one of them."""
    return bytes_of_widths(tile, axes, map(itemsize, elements), spacing)


def bytes_of_widths(
    tile: Sequence[int], axes: frozenset[int], widths: Iterable[int], spacing: Spacing | None = None
) -> int:
    """The same for elements of so many bytes."""
    extents = spanning(tile, axes, spacing)
    return sum(padded_size(extents, width) for width in widths)


_ORDER = {"load": 0, "store": 2}
"""When the kinds of steps of one loop depth are emitted; others come between."""


@dataclass(frozen=True)
class _Layout:
    """Of steps by their numbers: the last one that uses each, those that cross pipes, those that are kept, and the
    bytes of an element of each result."""

    last: dict[int, int]
    crossing: set[int]
    kept: set[int]
    widths: Sequence[tuple[int, ...]]


class Steps(list[Step]):
    """Steps in an order in which each comes after what it uses."""

    _known: _Layout | None = None
    _places: Sequence[tuple[int, frozenset[int]]] = ()

    def extents(self, step: Step, tile: Sequence[int]) -> Sequence[int]:
        """The extents of a step's results along all axes, for those of a tile."""
        return tile

    def rows(self) -> frozenset[int]:
        """The axes that are reduced."""
        return frozenset().union(*(s.reduces for s in self))

    def varies(self) -> list[frozenset[int]]:
        """The axes whose loops each step may stand in: those that anything it uses moves along."""
        rows = frozenset().union(*(s.reduces for s in self))
        found: list[frozenset[int]] = []
        for step in self:
            found.append((step.moves - rows).union(*(found[j] for j, _ in step.operands)))
        return found

    def needed(self) -> list[int]:
        """The steps that something stored is made of, stores included."""
        stores = [i for i, s in enumerate(self) if s.kind == "store"]
        return sorted({j for i in stores for j in [*self.ancestors(i), i]})

    def ub_bytes(
        self,
        tile: Sequence[int],
        slots: int,
        in_place: bool = False,
        places: Sequence[tuple[int, frozenset[int]]] = (),
    ) -> int:
        """Bytes of the unified buffer that the steps need at once with these tile extents. Temporaries of one loop
        share memory; what a loop further in uses keeps its own. in_place: whether results are counted as written over
        operands that end there, as npu-allocate does. places: where each step stands, if that is not said by the axes
        that it varies along; results of reductions are carried from one to another."""
        layout = self._layout(places)
        total = live = peak = 0
        ends: dict[int, list[int]] = {}
        sizes: dict[tuple[object, ...], int] = {}  # many steps have results of one kind
        for i, step in enumerate(self):
            extents = self.extents(step, tile)
            kind = (*extents, step.axes, layout.widths[i], step.spacing)
            need = sizes.get(kind)
            if need is None:
                need = sizes[kind] = bytes_of_widths(extents, step.axes, layout.widths[i], step.spacing)
            if i in layout.crossing:
                total += need * slots
            elif step.kind == "fill" or i in layout.kept:
                total += need
            elif step.elements:
                if in_place and (over := self._ending(i, layout, ends.get(i, ()), need)):
                    ends[i].remove(over)
                    live -= over
                live += need
                ends.setdefault(layout.last.get(i, i), []).append(need)
                peak = max(peak, live)
            live -= sum(ends.pop(i, ()))
        return total + peak

    def _layout(self, places: Sequence[tuple[int, frozenset[int]]]) -> _Layout:
        """What of the bytes does not depend on the tile; it is kept until there are more steps, or they stand
        elsewhere."""
        known = self._known
        if known is not None and places is self._places and len(known.widths) == len(self):
            return known
        varies = places or [(0, axes) for axes in self.varies()]
        found = _Layout({}, set(), set(), [tuple(map(itemsize, step.elements)) for step in self])
        for i, step in enumerate(self):
            for j, _ in step.operands:
                found.last[j] = i
                if step.kind == "store":
                    found.crossing.add(j)
                if varies[j] != varies[i] and not (places and self[j].reduces):
                    found.kept.add(j)
            if step.kind == "load":
                found.crossing.add(i)
        self._known, self._places = found, places
        return found

    def _ending(self, i: int, layout: _Layout, ends: Sequence[int], need: int) -> int:
        """The bytes of an operand of elementwise step i that ends there and that the result may be written over."""
        step = self[i]
        for j, _ in step.operands if step.function is not None else ():
            other = self[j]
            fits = other.axes == step.axes and layout.widths[j][0] == layout.widths[i][0]
            apart = j in layout.crossing or j in layout.kept
            if fits and layout.last[j] == i and not apart and other.kind != "fill" and need in ends:
                return need
        return 0

    def levels(self, depth: dict[int, int]) -> list[int]:
        """The loop depth each step belongs to: the deepest that anything it uses varies with."""
        level: list[int] = []
        for step in self:
            own = max((depth.get(a, 0) for a in step.moves), default=0)
            level.append(max([own, *(level[j] for j, _ in step.operands)]))
        return level

    def ordered(self, steps: Iterable[int]) -> list[int]:
        """Loads first, stores last."""
        return sorted(steps, key=lambda i: _ORDER.get(self[i].kind, 1))

    def along(self, rows: frozenset[int]) -> list[int]:
        """The steps that work along `rows`, and what they use."""
        wide = [i for i, s in enumerate(self) if (s.axes | s.moves) & rows]
        return sorted({j for i in wide for j in [*self.ancestors(i), i]})

    def ancestors(self, at: int) -> list[int]:
        """All that step number `at` uses."""
        needed: set[int] = set()
        stack = [at]
        while stack:
            for j, _ in self[stack.pop()].operands:
                if j not in needed:
                    needed.add(j)
                    stack.append(j)
        return sorted(needed)


@dataclass
class Emitter:
    """What steps need while they are emitted: tile extents and loop positions."""

    builder: KernelBuilder
    tile: Sequence[int]
    position: dict[int, Expr] = field(default_factory=dict)

    def type(self, axes: frozenset[int], element: Attribute, spacing: Spacing | None = None) -> TileType:
        return TileType.of(spanning(self.tile, axes, spacing), element, "ub")

    def at(self, axis: int) -> Expr:
        return self.position.get(axis, Expr())

    def handed(self, axis: int) -> Expr:
        """Where what the cube hands over is."""
        return self.at(axis)

    def move(self, axis: int, index: Expr, extent: int, whole: bool) -> Expr:
        """Goes so many tiles, which are `whole` or parts of one, of this extent ahead along an axis; the elements from
        the place before to this one."""
        ahead = index * extent
        self.position[axis] = self.at(axis) + ahead
        return ahead

    def emit(self, i: int, step: Step, done: dict[Ref, SSAValue]) -> None:
        """Builds step number `i` from the tiles in `done`, and adds its own."""
        outer, self.builder.location = self.builder.location, step.location
        results = step.emit(self, [done[r] for r in step.operands])
        self.builder.location = outer
        done.update({(i, j): r for j, r in enumerate(results)})

    def emit_level(self, steps: Steps, level: Sequence[int], depth: int, done: dict[Ref, SSAValue]) -> None:
        """Builds the steps of one loop depth: loads first and stores last, so that one flag can cover them all."""
        here = [i for i, _ in enumerate(steps) if level[i] == depth and (i, 0) not in done]
        for i in steps.ordered(here):
            self.emit(i, steps[i], done)
