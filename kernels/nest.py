"""Stages in loops: a kernel as a tree, of which the leaves are stages, in the order in which they are built.

A loop goes along axes, and carries results from turn to turn. Each stage has a tile of extents of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..dialects.npu.types import padded_bytes
from ..dialects.open_sizes import certain
from .builder import may_repeat
from .graph import StageGraph
from .looped import LoopedAxis, LoopedStages
from .plan import Binding, PlannedGraph, StagePlace
from .renumber import renumbered
from .stage import Apply, KernelStage, Ref
from .writer import StageWriter


class AxisStep(NamedTuple):
    """An axis that a loop goes along: from turn to turn so many elements, from so many `ahead` of where it is on."""

    axis: int
    apart: int
    ahead: int = 0


def may_move(*elements: int) -> bool:
    """Whether any of these numbers of elements or steps may be another than 0."""
    return not all(certain(n, "==", 0) for n in elements)


@dataclass(frozen=True)
class Turns:
    """A loop, and what is in it, in order: stages by their numbers, and further loops.

    by: what takes the turns: one loop after the other, the cores of the grid, or the vector cores beside a cube core.
    carried: what goes from turn to turn, as what it is before the loop, which inside stands for what the turn before
    has made, and as what a turn makes of it, which behind the loop stands for what the last one has made. steps: how
    many mma steps a turn adds to the sums, and how many there were before.
    """

    trips: int
    along: tuple[AxisStep, ...]
    body: tuple[int | Turns, ...]
    by: Binding = "loop"
    carried: tuple[tuple[Ref, Ref], ...] = ()
    steps: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Nest:
    """Stages in loops. tiles: the extents of the tile of each along all axes."""

    stages: StageGraph
    tiles: Sequence[Sequence[int]]
    body: tuple[int | Turns, ...]

    def around(self) -> Mapping[int, tuple[Turns, ...]]:
        """The loops that each stage is in, the outermost first."""
        found: dict[int, tuple[Turns, ...]] = {}
        left: list[tuple[int | Turns, tuple[Turns, ...]]] = [(item, ()) for item in self.body]
        while left:
            item, loops = left.pop()
            if isinstance(item, Turns):
                left += [(inner, (*loops, item)) for inner in item.body]
            else:
                found[item] = loops
        return found

    def placed(
        self, axes: Sequence[int], slots: Mapping[str, int], tensors: tuple[int, int] | None = None
    ) -> PlannedGraph:
        """The stages in their places. axes: for each axis, which of the plan's it is; slots: buffers in flight, by
        memory; tensors: how many inputs and outputs there are."""
        around, carried = self.around(), {after for loop in self._loops() for _, after in loop.carried}
        places: list[StagePlace] = []
        for i, stage in enumerate(self.stages):
            loops = [a for loop in around[i] if loop.by == "loop" and may_repeat(loop.trips) for a in loop.along]
            inside = dict.fromkeys(axes[a.axis] for a in loops if may_move(a.apart))
            shape = stage.extents(self.tiles[i])
            moved = sum(padded_bytes(shape, e) for j, e in enumerate(stage.elements) if (i, j) in carried)
            places.append(StagePlace(tuple(inside), carried=moved))
        return PlannedGraph("", self.stages, tuple(axes), (), slots, tuple(places), {}, self.tiles, tensors)

    def _loops(self) -> Iterator[Turns]:
        left = list(self.body)
        while left:
            item = left.pop(0)
            if isinstance(item, Turns):
                yield item
                left = [*item.body, *left]

    def grid(self) -> list[int]:
        """How many cores there are along each axis of the grid, the outermost first."""
        return [loop.trips for loop in self._loops() if loop.by == "cores"]


@dataclass
class NestWriter(StageWriter):
    """Writes stages down in loops. tile: the extents of the tiles that are written, by axis; one element along others.
    """

    tile: Mapping[int, int] = field(default_factory=dict[int, int])
    tiles: list[Mapping[int, int]] = field(default_factory=list[Mapping[int, int]])
    body: list[int | Turns] = field(default_factory=list[int | Turns])

    def add(self, stage: KernelStage) -> int:
        self.tiles.append(self.tile)
        self.body.append(number := super().add(stage))
        return number

    @contextmanager
    def tiled(self, tile: Mapping[int, int]) -> Iterator[None]:
        """What is written inside has these extents along some axes."""
        outer, self.tile = self.tile, {**self.tile, **tile}
        yield
        self.tile = outer

    @contextmanager
    def turns(
        self,
        trips: int,
        *along: AxisStep,
        state: list[Ref] | None = None,
        by: Binding = "loop",
        steps: tuple[int, int] = (0, 0),
    ) -> Iterator[None]:
        """What is written inside is in a loop, which carries what is in `state` when it begins, and then what is there
        when it ends. One turn that goes along nothing is none."""
        outer, self.body, before = self.body, [], list(state or ())
        yield
        carried = tuple(zip(before, state or (), strict=True))
        moved = tuple(a for a in along if may_move(a.apart, a.ahead))
        if along or carried or may_repeat(trips) or by == "units" or may_move(*steps):
            outer.append(Turns(trips, moved, tuple(self.body), by, carried, steps))
        else:
            outer += self.body
        self.body = outer

    @contextmanager
    def nested(self, loops: Iterable[tuple[int, Sequence[AxisStep]]], by: Binding = "loop") -> Iterator[None]:
        """What is written inside is in those of these loops (trips, what each goes along) that may run more than once,
        the outermost first."""
        with ExitStack() as stack:
            for trips, along in loops:
                if may_repeat(trips):
                    stack.enter_context(self.turns(trips, *along, by=by))
            yield

    @contextmanager
    def located(self, stage: KernelStage) -> Iterator[None]:
        """What is written inside comes from where a stage does."""
        outer, self.location = self.location, stage.location
        yield
        self.location = outer

    def again(self, stage: KernelStage, operands: Sequence[Ref]) -> list[Ref]:
        """Adds a stage on these operands; its results."""
        number = self.add(replace(stage, operands=operands))
        return [(number, j) for j, _ in enumerate(stage.elements)]

    def over(self, ref: Ref) -> Ref:
        """The same elementwise result, in the place of its first operand."""
        stage = self.graph[ref[0]]
        assert isinstance(stage.op, Apply)
        self.graph[ref[0]] = replace(stage, op=replace(stage.op, over=True))
        return ref

    def take(self, stage: KernelStage, axes: Sequence[int], tile: Sequence[int], operands: Sequence[Ref]) -> list[Ref]:
        """Adds a stage of another graph, whose axes are called so here, in order, and of whose tile these are the
        extents; its results."""
        outer, self.tile = self.tile, dict(zip(axes, tile, strict=True))
        number = self.add(renumbered(stage, axes, operands))
        self.tile = outer
        return [(number, j) for j, _ in enumerate(stage.elements)]

    def take_known(
        self, stages: StageGraph, i: int, axes: Sequence[int], tile: Sequence[int], known: dict[Ref, Ref]
    ) -> None:
        """Adds one of another graph, and what its results are called here to what is `known`."""
        made = self.take(stages[i], axes, tile, [known[ref] for ref in stages[i].operands])
        known.update(((i, j), ref) for j, ref in enumerate(made))

    def nest(self) -> Nest:
        """What has been written."""
        axes = range(self.rank + len(self.graph.own))
        tiles = tuple(tuple(tile.get(a, 1) for a in axes) for tile in self.tiles)
        return Nest(self.graph, tiles, tuple(self.body))


class LoopedWriter:
    """Writes the stages of a product in their loops. axes: what those of the stages are called in the nest; known: the
    stages that are there."""

    def __init__(
        self, w: NestWriter, looped: LoopedStages, axes: Sequence[int], known: Mapping[Ref, Ref] | None = None
    ):
        self.w, self.looped, self.axes = w, looped, axes
        self.known: dict[Ref, Ref] = dict(known or {})
        self._behind = looped.behind

    def along(self, loop: LoopedAxis) -> Sequence[AxisStep]:
        """What a loop goes along."""
        return [AxisStep(self.axes[loop.axis], loop.apart)]

    def take(self, i: int) -> None:
        """Adds a stage."""
        self.w.take_known(self.looped.stages, i, self.axes, self.looped.tiles[i], self.known)

    def level(self, depth: int) -> None:
        """Writes all from a depth on."""
        self._stages(depth, behind=False)
        self.looped_over(depth)
        self._stages(depth, behind=True)

    def _stages(self, depth: int, behind: bool) -> None:
        for i, at in enumerate(self.looped.depths):
            if at == depth and (i, 0) not in self.known and (i in self._behind) == behind:
                self.take(i)

    def looped_over(self, depth: int) -> None:
        """Writes the loop at a depth, if there is one, and what is in it."""
        if depth == len(self.looped.loops):
            return
        loop, (before, after), known = self.looped.loops[depth], self.looped.sums, self.known
        state = [known[after if after in known else before]] if loop.carries else []
        with self.w.turns(loop.trips, *self.along(loop), state=state, steps=(int(loop.carries), 0)):
            if state:
                known[before] = state[0]
            self.level(depth + 1)
            if state:
                state[0] = known[after]
