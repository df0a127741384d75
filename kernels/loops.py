"""Kernels of the vector cores: their cores, their loops with what these carry, and the stages inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import singledispatch

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import SSAValue

from ..dialects import tile as ops
from ..dialects.base import Expr
from ..dialects.npu.types import GmType
from ..machine import Machine
from .builder import KernelBuilder, hand_back, may_repeat
from .emit import Emitter
from .graph import StageGraph
from .stage import Ref, Stage, StageOp


@dataclass(frozen=True)
class AxisLoop:
    """`trips` tiles along an axis, one after the other; from the last one on where it goes `backwards`."""

    axis: int
    trips: int
    backwards: bool = False

    def tiles(self, index: Expr) -> Expr:
        """How many tiles before that of an iteration there are."""
        return index * -1 + (self.trips - 1) if self.backwards else index


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


def vector_kernel(
    name: str,
    machine: Machine,
    tensors: tuple[Sequence[GmType], Sequence[GmType]],
    location: LocationAttr | None,
    stages: StageGraph,
    plan: VectorPlan,
    emit: Callable[[Emitter], None],
) -> ops.KernelOp:
    """A kernel with these inputs and outputs; `emit` builds its loops, and the stages in them."""
    on_grid = [a for a, (cores, _) in plan.shares.items() if may_repeat(cores)]
    b = KernelBuilder(
        machine, "vector", [plan.shares[a][0] for a in on_grid], *tensors, slots={"ub": plan.slots}
    )
    b.location = location
    together = {a: list(others) for a, others in plan.beside.items()}
    for number, own in stages.own.items():
        if own.of is not None:
            together.setdefault(own.of, []).append((number, plan.tile[own.of] * own.step))
    starts = {number: Expr(own.start) for number, own in stages.own.items()}
    e = Emitter(b, stages.tile_of(plan.tile), starts, together=together)
    with b.section("fused" if machine.fused else "vector"):
        for a, (_, trips) in plan.shares.items():
            e.advance(a, Expr.of(b.coordinates[on_grid.index(a)]) * trips if a in on_grid else Expr())
        emit(e)
    return b.finish(name)


@singledispatch
def begun(op: StageOp, e: Emitter, stage: Stage, tiles: Sequence[SSAValue]) -> Sequence[SSAValue]:
    """What a stage that carries tiles begins with before its first piece: its first operand."""
    return tiles[:1]


@singledispatch
def continued(
    op: StageOp, e: Emitter, stage: Stage, tiles: Sequence[SSAValue], carried: Sequence[SSAValue]
) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    """(the results of a stage for a piece, what it carries to the next one), from the tiles of its operands and what is
    `carried`, which stands for its first operand."""
    results = e.build(stage, [*carried, *tiles[1:]])
    return results, results


@dataclass
class LoopNest:
    """Loops, the outermost first, and the stages in them: `level` says inside of how many each stands; of those of one
    level `order` is the order. Stages that carry tiles along a loop are inside of all that follow it."""

    emitter: Emitter
    stages: StageGraph
    loops: Sequence[AxisLoop]
    level: Sequence[int]
    order: Iterable[int]
    done: dict[Ref, SSAValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pending = list(self.order)

    def emit(self) -> None:
        """Builds all of it."""
        self._inside(0)
        assert not self.pending, "a stage has an operand that is made behind it"

    def _inside(self, depth: int) -> None:
        """Builds all from a level on."""
        self._stages(depth)
        if depth == len(self.loops):
            return
        carrying = [i for i in self.pending if self.loops[depth].axis in self.stages[i].op.carries]
        if carrying:
            self._carried(depth, carrying)
        else:
            with self._turns(self.loops[depth]):
                self._inside(depth + 1)
        self._stages(depth)

    @contextmanager
    def _turns(self, loop: AxisLoop, carried: list[SSAValue] | None = None) -> Iterator[None]:
        """A loop that goes along its axis."""
        with self.emitter.builder.loop(loop.trips, carried) as index:
            self.emitter.advance(loop.axis, loop.tiles(index))
            yield

    def _stages(self, depth: int, carried: Mapping[int, list[SSAValue]] | None = None) -> None:
        """Builds the stages of a level that have all they need; `carried` is replaced by what goes on to the next
        piece."""
        for i in [i for i in self.pending if self.level[i] == depth]:
            stage = self.stages[i]
            if not all(ref in self.done for ref in stage.operands):
                continue  # it stands behind a loop that is still to come
            self.pending.remove(i)
            if carried is None or i not in carried:
                self.emitter.emit(i, stage, self.done)
                continue
            tiles = [self.done[ref] for ref in stage.operands]
            with self.emitter.located(stage):
                results, carried[i][:] = continued(stage.op, self.emitter, stage, tiles, carried[i])
            self.done.update({(i, j): tile for j, tile in enumerate(results)})

    def _carried(self, depth: int, carrying: Sequence[int]) -> None:
        """The loops from a level on, whose pieces are handed what these stages carry."""
        state: list[SSAValue] = []
        counts: list[int] = []
        for i in carrying:
            stage = self.stages[i]
            there = [self.done[ref] for ref in stage.operands if ref in self.done]
            with self.emitter.located(stage):
                first = begun(stage.op, self.emitter, stage, there)
            state += first
            counts.append(len(first))
        ends = [sum(counts[: n + 1]) for n in range(len(counts))]
        inside = state
        with ExitStack() as nest:
            for loop in self.loops[depth:]:
                outside, inside = inside, list(inside)
                nest.callback(hand_back, outside, inside)
                nest.enter_context(self._turns(loop, inside))
            own = {i: inside[end - n : end] for i, n, end in zip(carrying, counts, ends, strict=True)}
            self._stages(len(self.loops), own)
            inside[:] = [tile for i in carrying for tile in own[i]]
        for i, n, end in zip(carrying, counts, ends, strict=True):
            if self.stages[i].reduces:
                self.done.update({(i, j): tile for j, tile in enumerate(state[end - n : end])})
