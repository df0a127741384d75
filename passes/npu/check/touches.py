"""What a kernel has touched of a device tensor, as the clocks walk over it.

Accesses to the same elements are one *region*: it keeps the last access of each queue and unit, which is enough, as
whatever is ordered after the last access of an in-order queue is ordered after the earlier ones. Regions that share
elements are linked when the later one of them is first touched; a grid of buckets finds them. Of two linked regions
the larger one keeps the last accesses to all smaller ones as well, so that an access looks at its own region and at
the larger ones around it, however many smaller ones there are.

Views that are one but for the order of their dimensions show the same *frame*, in which boxes are compared. Between
frames, and where a place depends on data, only the flat ranges are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from ....dialects.open_sizes import is_open, size_of
from ....dialects.sizes import LARGEST, bounds
from .affine import flat_hull, product_covers, shared
from .model import CheckedKernel, TensorAccess
from .strides import by_stride

Edges = tuple[tuple[int, int], ...]
"""[first, end) along each dimension."""

Toucher = tuple[int, int, bool, str]
"""Queue, unit, whether it writes, and how that is combined with what is there."""


class TouchedRegion:
    """A box of one frame that some access touches, or the flat range of a view whose elements are not told apart."""

    __slots__ = ("_filled", "around", "edges", "frame", "inside", "own", "positions", "span", "stored", "written")

    def __init__(self, frame: _Frame, edges: Edges, hull: tuple[int, int]) -> None:
        """hull: the flat range that its elements lie in."""
        self.frame, self.edges = frame, edges
        self.positions = _positions(_outer(edges))
        """How many positions it has at most."""
        self.span = _positions(_outer((hull,)))
        """How many elements its flat range has at most."""
        self.own: dict[Toucher, int] = {}
        """The last access of each queue and unit to this region, by number."""
        self.inside: dict[Toucher, int] = {}
        """The same for all smaller regions that share elements with it."""
        self.around: list[TouchedRegion] = []
        """Larger regions that share elements with it."""
        self.written = False
        self.stored: list[TouchedRegion] = []
        """The smaller regions that are written."""
        self._filled = False

    def touched(self) -> Iterator[tuple[Toucher, int]]:
        """The last accesses to elements that this region has, each with its number."""
        yield from self.own.items()
        yield from self.inside.items()
        for region in self.around:
            yield from region.own.items()

    def touch(self, by: Toucher, number: int) -> None:
        """Takes note of an access."""
        self.own[by] = number
        for region in self.around:
            region.inside[by] = number
        if by[2] and not self.written:
            self.written = True
            for region in self.around:
                region.stored.append(self)

    def filled(self) -> bool:
        """Whether all elements were written, or may have been where that cannot be told."""
        if not self._filled:
            self._filled = self.written or self._covered()
        return self._filled

    def _covered(self) -> bool:
        written = [*self.stored, *(region for region in self.around if region.written)]
        if not written or not self.frame.exact or any(region.frame is not self.frame for region in written):
            return bool(written)
        clipped = [
            tuple(
                (max(low, first) - first, min(high, end) - first)
                for (low, high), (first, end) in zip(region.edges, self.edges, strict=True)
            )
            for region in written
            if shared(region.edges, self.edges)
        ]
        return product_covers(clipped, [end - first for first, end in self.edges]) is None

    def link(self, other: TouchedRegion) -> None:
        """Links two regions that share elements: this one, which is new, and one that may have been touched."""
        if _larger(self, other):
            other.around.append(self)
            for by, number in other.own.items():
                self.inside[by] = max(number, self.inside.get(by, 0))
            if other.written:
                self.stored.append(other)
        else:
            self.around.append(other)


def _larger(one: TouchedRegion, other: TouchedRegion) -> bool:
    return one.positions > other.positions if one.frame is other.frame else one.span > other.span


def _positions(box: Edges) -> int:
    return prod(end - first for first, end in box)


def _outer(box: Edges) -> Edges:
    """The least box of numbers that holds a box, whatever the open sizes are."""
    if not any(is_open(edge) for edges in box for edge in edges):
        return box
    ends = [(bounds(size_of(first))[0], bounds(size_of(end))[1]) for first, end in box]
    return tuple((-LARGEST if low is None else low, LARGEST if high is None else high) for low, high in ends)


class _Buckets:
    """Finds the boxes that share positions with another one. Boxes are in classes by their extents, rounded up to
    powers of two: a box lies in one or two buckets of its class along each dimension. One of open sizes has the
    buckets of the box that holds it at all sizes."""

    def __init__(self) -> None:
        self.classes: dict[tuple[int, ...], dict[tuple[int, ...], list[tuple[Edges, TouchedRegion]]]] = {}

    def add(self, box: Edges, region: TouchedRegion) -> None:
        outer = _outer(box)
        shifts = tuple((end - first - 1).bit_length() for first, end in outer)
        buckets = self.classes.setdefault(shifts, {})
        for bucket in product(*_buckets_of(outer, shifts)):
            buckets.setdefault(bucket, []).append((box, region))

    def near(self, box: Edges) -> list[TouchedRegion]:
        """The regions of all boxes that share positions with `box`."""
        found: dict[int, TouchedRegion] = {}
        outer = _outer(box)
        for shifts, buckets in self.classes.items():
            ranges = _buckets_of(outer, shifts)
            if prod(map(len, ranges)) < len(buckets):
                lists = [buckets[bucket] for bucket in product(*ranges) if bucket in buckets]
            else:
                lists = list(buckets.values())
            for other, region in (pair for pairs in lists for pair in pairs):
                if id(region) not in found and shared(box, other):
                    found[id(region)] = region
        return list(found.values())


def _buckets_of(box: Edges, shifts: Sequence[int]) -> list[range]:
    return [range(first >> s, (end - 1 >> s) + 1) for (first, end), s in zip(box, shifts, strict=True)]


class _Frame:
    """The regions of views that show the same elements in the same dimensions. `exact`: their boxes are what is
    touched, not more. `distinct`: no two positions are one element."""

    def __init__(self, exact: bool, distinct: bool) -> None:
        self.exact = exact
        self.boxed = exact and distinct
        """Whether two of its regions share elements only where their boxes share positions."""
        self.regions: dict[Edges, TouchedRegion] = {}
        self.boxes = _Buckets()
        self.hulls = _Buckets()


class _Footprint:
    """How one access steps through its tensor."""

    def __init__(self, kernel: CheckedKernel, access: TensorAccess) -> None:
        view, box = access.view, access.box
        self.shape, self.strides, self.offset = view.shape, view.strides, view.offset
        self.box = None if box is None or any(map(kernel.is_unknown, box.offsets)) else box
        self.exact, self.distinct = box is not None, view.distinct
        self.order = by_stride(view)
        self.key = (self.offset, *((self.strides[d], self.shape[d]) for d in self.order))
        self.regions: dict[Edges, TouchedRegion] = {}

    def edges(self, env: Sequence[int]) -> Edges | None:
        """The box in an environment; None where it is empty."""
        if self.box is not None:
            return self.box.at(env)
        return None if 0 in self.shape else tuple((0, n) for n in self.shape)


class TouchedTensor:
    """All regions of a device tensor that a kernel touches."""

    def __init__(self, kernel: CheckedKernel) -> None:
        self.kernel = kernel
        self.frames: dict[tuple[object, ...], _Frame] = {}
        self.footprints: dict[TensorAccess, _Footprint] = {}

    def regions(self, access: TensorAccess, env: list[int]) -> list[TouchedRegion | None]:
        """What the units of a section touch in an environment: None where that is nothing."""
        footprint = self.footprints.get(access)
        if footprint is None:
            footprint = self.footprints[access] = _Footprint(self.kernel, access)
        unit = self.kernel.unit
        own, found = env[unit], []
        for i in range(access.section.units):
            env[unit] = i
            edges = footprint.edges(env)
            found.append(None if edges is None else self._region(footprint, edges))
        env[unit] = own
        return found

    def _region(self, footprint: _Footprint, edges: Edges) -> TouchedRegion:
        region = footprint.regions.get(edges)
        if region is None:
            region = footprint.regions[edges] = self._in_frame(footprint, edges)
        return region

    def _in_frame(self, footprint: _Footprint, edges: Edges) -> TouchedRegion:
        key = (footprint.exact, *footprint.key)
        frame = self.frames.get(key)
        if frame is None:
            frame = self.frames[key] = _Frame(footprint.exact, footprint.distinct)
        box = tuple(edges[d] for d in footprint.order)
        region = frame.regions.get(box)
        if region is None:
            hull = flat_hull(edges, footprint.strides, footprint.offset)
            region = frame.regions[box] = TouchedRegion(frame, box, hull)
            for other in self.frames.values():
                near = frame.boxes.near(box) if other is frame and frame.boxed else other.hulls.near((hull,))
                for neighbour in near:
                    region.link(neighbour)
            frame.boxes.add(box, region)
            frame.hulls.add((hull,), region)
        return region
