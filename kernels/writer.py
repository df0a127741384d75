"""Writes stages down, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Attribute

from .graph import OwnAxis, StageGraph
from .stage import (
    Apply,
    BoxDim,
    Extract,
    Fill,
    KernelStage,
    Ref,
    Spread,
    StageLoadBox,
    StageOp,
    StageStoreBox,
)


def boxed(
    shape: Sequence[int], strides: Sequence[int], axes: Sequence[int] | None = None
) -> tuple[BoxDim, ...]:
    """A tensor of this shape, walked along these axes, or those of the domain one after the other."""
    along = range(len(shape)) if axes is None else axes
    return tuple(BoxDim(n, stride, a) for n, stride, a in zip(shape, strides, along, strict=True))


@dataclass
class StageWriter:
    """A graph that grows, over a domain of `rank` axes. location: where its stages come from."""

    rank: int
    location: LocationAttr | None = None
    graph: StageGraph = field(default_factory=StageGraph)

    def own(self, axes: Sequence[OwnAxis]) -> tuple[int, ...]:
        """Adds axes of the stages' own; their numbers."""
        first = self.rank + len(self.graph.own)
        added = dict(enumerate(axes, start=first))
        self.graph.own = {**self.graph.own, **added}
        return tuple(added)

    def put(
        self,
        op: StageOp,
        elements: Sequence[Attribute],
        axes: frozenset[int] = frozenset(),
        operands: Sequence[Ref] = (),
        shape: Sequence[int] = (),
    ) -> Ref:
        """Adds a stage; its first result. shape: the axes that the dimensions of its results are, if these are not all
        of the domain's."""
        made = KernelStage(op, elements, axes, operands, location=self.location, tile_axes=tuple(shape))
        return self.add(made), 0

    def add(self, stage: KernelStage) -> int:
        """Adds a stage as it is; its number."""
        self.graph.append(stage)
        return len(self.graph) - 1

    def load(
        self, op: StageLoadBox, element: Attribute, shape: Sequence[int] = (), scalars: Sequence[Ref] = ()
    ) -> Ref:
        """What a load brings, as a tile with these dimensions. scalars: what says where it begins, if anything does."""
        return self.put(op, [element], op.moves, scalars, shape)

    def store(
        self, output: int, box: Sequence[BoxDim], tile: Ref, offset: int = 0, scalars: Sequence[Ref] = ()
    ) -> None:
        """Stores a tile into a box of an output, `offset` elements behind its first one."""
        op = StageStoreBox(output, tuple(box), self.element(tile), offset)
        self.put(op, [], op.moves, [tile, *scalars])

    def fill(
        self,
        value: float | int,
        element: Attribute,
        shape: Sequence[int] = (),
        axes: frozenset[int] = frozenset(),
    ) -> Ref:
        """One number in a tile with these dimensions, along `axes` of which there are several elements."""
        return self.put(Fill(value), [element], axes, (), shape)

    def element(self, ref: Ref) -> Attribute:
        """The element type of a result."""
        return self.graph[ref[0]].elements[ref[1]]

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """The axes that the dimensions of a result are."""
        return self.graph[ref[0]].tile_axes

    def apply(self, function: str, *operands: Ref, element: Attribute | None = None) -> Ref:
        """An elementwise function, over what the widest operand spans; of the last one's type unless it is said."""
        like = max((self.graph[i] for i, _ in operands), key=lambda stage: len(stage.axes))
        return self.put(
            Apply(function), [element or self.element(operands[-1])], like.axes, operands, like.tile_axes
        )

    def converted(self, ref: Ref, element: Attribute) -> Ref:
        """The same with elements of this type."""
        return ref if self.element(ref) == element else self.apply("convert", ref, element=element)

    def spread(self, ref: Ref, axes: Sequence[int]) -> Ref:
        """The same repeated over a tile with these dimensions."""
        return self.put(Spread(), [self.element(ref)], frozenset(axes), [ref], axes)

    def extract(self, op: Extract, ref: Ref, shape: Sequence[int]) -> Ref:
        """Elements that make a tile with these dimensions."""
        return self.put(op, [self.element(ref)], frozenset(shape), [ref], shape)
