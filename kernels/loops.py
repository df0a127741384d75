"""Kernels of the vector cores: their cores, their loops with what these carry, and the stages inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import singledispatch

from xdsl.dialects.builtin import LocationAttr

from .builder import may_repeat
from .graph import StageGraph
from .nest import AxisStep, Nest, NestWriter
from .stage import KernelStage, Ref, StageOp


@dataclass(frozen=True)
class AxisLoop:
    """`trips` tiles along an axis, one after the other; from the last one on where it goes `backwards`."""

    axis: int
    trips: int
    backwards: bool = False


@dataclass(frozen=True)
class VectorPlan:
    """What a kernel of the vector cores is placed by.

    tile: elements of a tile along the axes of its domain; slots: buffers in flight; shares: how many cores share an
    axis, and the tiles of each, the outermost axis first; beside: for an axis, others that are gone along with it, and
    by how many elements for each tile.
    """

    tile: Sequence[int]
    slots: int
    shares: Mapping[int, tuple[int, int]]
    beside: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def loops(self) -> list[AxisLoop]:
        """The loops over the tiles of a core."""
        return [AxisLoop(a, trips) for a, (_, trips) in self.shares.items() if may_repeat(trips)]


@dataclass
class VectorWriter(NestWriter):
    """Writes stages down in loops over tiles. together: for an axis, others that are gone along with it, and by how
    many elements for each tile."""

    together: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

    @staticmethod
    def of(stages: StageGraph, plan: VectorPlan, location: LocationAttr | None) -> VectorWriter:
        """One for stages that are placed so."""
        graph, together = StageGraph(), {a: list(others) for a, others in plan.beside.items()}
        graph.own = stages.own
        for number, own in stages.own.items():
            if own.of is not None:
                together.setdefault(own.of, []).append((number, plan.tile[own.of] * own.step))
        tile = dict(enumerate(stages.tile_of(plan.tile)))
        return VectorWriter(len(plan.tile), location, graph, tile, together=together)

    def along(self, axis: int, tiles: int, ahead: int = 0) -> list[AxisStep]:
        """So many tiles from turn to turn along an axis and those that go with it, from so many tiles ahead on."""
        elements = [(axis, self.tile[axis]), *self.together.get(axis, ())]
        return [AxisStep(a, tiles * n, ahead * n) for a, n in elements]

    def loop(self, loop: AxisLoop, state: list[Ref] | None = None) -> AbstractContextManager[None]:
        """What is written inside is done for all tiles along an axis."""
        along = self.along(loop.axis, -1, loop.trips - 1) if loop.backwards else self.along(loop.axis, 1)
        return self.turns(loop.trips, *along, state=state)


def vector_nest(
    stages: StageGraph, plan: VectorPlan, location: LocationAttr | None, write: Callable[[VectorWriter], None]
) -> Nest:
    """Stages in their loops on cores that share tiles; `write` writes the loops of a core, and the stages in them."""
    w = VectorWriter.of(stages, plan, location)
    starts = [AxisStep(number, 0, own.start) for number, own in stages.own.items() if own.start]
    cores = [(count, w.along(a, trips)) for a, (count, trips) in plan.shares.items()]
    with w.turns(1, *starts), w.nested(cores, by="cores"):
        write(w)
    return w.nest()


@singledispatch
def begun(op: StageOp, w: NestWriter, stage: KernelStage, operands: Sequence[Ref]) -> Sequence[Ref]:
    """What a stage that carries tiles begins with before its first piece: its first operand."""
    return operands[:1]


@singledispatch
def continued(
    op: StageOp, w: NestWriter, stage: KernelStage, operands: Sequence[Ref], carried: Sequence[Ref]
) -> tuple[Sequence[Ref], Sequence[Ref]]:
    """(the results of a stage for a piece, what it carries to the next one), from its operands and what is `carried`,
    which stands for its first operand."""
    results = w.again(stage, [*carried, *operands[1:]])
    return results, results


@dataclass
class LoopNest:
    """Loops, the outermost first, and the stages in them: `level` says inside of how many each stands; of those of one
    level `order` is the order. Stages that carry tiles along a loop are inside of all that follow it."""

    w: VectorWriter
    stages: StageGraph
    loops: Sequence[AxisLoop]
    level: Sequence[int]
    order: Iterable[int]
    done: dict[Ref, Ref] = field(default_factory=dict[Ref, Ref])

    def __post_init__(self) -> None:
        self.pending = list(self.order)

    def write(self) -> None:
        """Writes all of it."""
        self._inside(0)
        assert not self.pending, "a stage has an operand that is made behind it"

    def _inside(self, depth: int) -> None:
        """Writes all from a level on."""
        self._stages(depth)
        if depth == len(self.loops):
            return
        carrying = [i for i in self.pending if self.loops[depth].axis in self.stages[i].op.carries]
        if carrying:
            self._carried(depth, carrying)
        else:
            with self.w.loop(self.loops[depth]):
                self._inside(depth + 1)
        self._stages(depth)

    def _stages(self, depth: int, carried: Mapping[int, list[Ref]] | None = None) -> None:
        """Writes the stages of a level that have all they need; `carried` is replaced by what goes on to the next
        piece."""
        for i in [i for i in self.pending if self.level[i] == depth]:
            stage = self.stages[i]
            if not all(ref in self.done for ref in stage.operands):
                continue  # it stands behind a loop that is still to come
            self.pending.remove(i)
            operands = [self.done[ref] for ref in stage.operands]
            if carried is None or i not in carried:
                results: Sequence[Ref] = self.w.again(stage, operands)
            else:
                with self.w.located(stage):
                    results, carried[i][:] = continued(stage.op, self.w, stage, operands, carried[i])
            self.done.update({(i, j): ref for j, ref in enumerate(results)})

    def _carried(self, depth: int, carrying: Sequence[int]) -> None:
        """The loops from a level on, whose pieces are handed what these stages carry."""
        state: list[Ref] = []
        counts: list[int] = []
        for i in carrying:
            stage = self.stages[i]
            there = [self.done[ref] for ref in stage.operands if ref in self.done]
            with self.w.located(stage):
                first = begun(stage.op, self.w, stage, there)
            state += first
            counts.append(len(first))
        ends = [sum(counts[: n + 1]) for n in range(len(counts))]
        with ExitStack() as nest:
            for loop in self.loops[depth:]:
                nest.enter_context(self.w.loop(loop, state))
            own = {i: state[end - n : end] for i, n, end in zip(carrying, counts, ends, strict=True)}
            self._stages(len(self.loops), own)
            state[:] = [tile for i in carrying for tile in own[i]]
        for i, n, end in zip(carrying, counts, ends, strict=True):
            if self.stages[i].reduces:
                self.done.update({(i, j): tile for j, tile in enumerate(state[end - n : end])})
