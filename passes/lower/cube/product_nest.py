"""Products on their way into nests: the stages of a product in its loops, with what vector cores do behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from ....dialects.npu.types import GmType
from ....kernels.graph import OwnAxis, StageGraph
from ....kernels.looped import LoopedAxis, LoopedStages
from ....kernels.nest import AxisStep, LoopedWriter, NestWriter
from ....kernels.product_stages import DrainSums, HandOver, StoreSums
from ....kernels.stage import BoxDim, Given, KernelStage, Ref, StageLoadBox, StageOp
from ....kernels.writer import boxed
from .cube_schedule import CubePlan
from .epilogue import EpilogueStages
from .product_stages import StagedProduct

Part = tuple[int, int, int]
"""A loop of an epilogue: its axis, its trips, and the elements of each along that."""


class TileWriter:
    """Writes what is done with tiles of a product, where each core begins with its own.

    Where the product is pooled, an axis has others beside it: that of its windows (`place`), and that of its elements
    in the workspace, where tiles lie side by side (`stored`).
    """

    def __init__(self, kernel: StagedProduct, plan: CubePlan, ringed: bool = False):
        self.k, self.plan, self.pooled = kernel, plan, kernel.problem.pooled
        w = self.w = NestWriter(len(kernel.extents), kernel.fusion.location)
        windows, elements = (
            w.own([OwnAxis(what, of=a) for a in self.pooled]) for what in ("window", "element that is handed over")
        )
        self.place: Mapping[int, int] = dict(zip(self.pooled, windows, strict=True))
        self.stored: Mapping[int, int] = dict(zip(self.pooled, elements, strict=True))
        self.on_grid = kernel.on_grid(plan)
        self.here: Mapping[int, int] = {}
        """The axis of where a core is along one of the grid, where cores have workspaces of their own."""
        if ringed:
            numbers = w.own([OwnAxis("core", of=a, step=0) for a in self.on_grid])
            self.here = dict(zip(self.on_grid, numbers, strict=True))

    def tiles(self, axis: int, tiles: int = 1) -> list[AxisStep]:
        """So many tiles further along an axis from turn to turn."""
        problem, length = self.k.problem, self.plan.l0[axis]
        along = [AxisStep(axis, tiles * problem.apart(axis, length))]
        if axis in self.pooled:
            windows = self.pooled[axis].windows(length)
            along += [AxisStep(self.place[axis], tiles * windows), AxisStep(self.stored[axis], tiles * length)]
        return along

    def inside(self, axis: int, elements: int) -> list[AxisStep]:
        """So many elements of the result further along an axis within a tile."""
        if axis not in self.pooled:
            return [AxisStep(axis, elements)]
        reached = elements * self.pooled[axis].stride
        return [AxisStep(axis, reached), AxisStep(self.place[axis], elements), AxisStep(self.stored[axis], reached)]

    @contextmanager
    def cores(self) -> Iterator[None]:
        """What is written inside is what each core does, from its first tile on."""
        first = {a: self.k.problem.first(a) for a in self.pooled}
        loops: list[tuple[int, list[AxisStep]]] = []
        for a, (cores, trips) in self.on_grid.items():
            own = [AxisStep(self.here[a], 1)] if a in self.here else []
            loops.append((cores, [*self.tiles(a, trips), *own]))
        starts = self.w.turns(1, *(AxisStep(a, 0, at) for a, at in first.items() if at))
        with starts, self.w.nested(loops, by="cores"):
            yield

    def handed(self, axes: Sequence[int], workspace: GmType) -> tuple[BoxDim, ...]:
        """A workspace of the sums, whose dimensions are all axes of the result in order, walked along these."""
        dims = [sorted(axes).index(a) for a in axes]
        shape, strides = ([of[d] for d in dims] for of in (workspace.shape, workspace.strides))
        return boxed(shape, strides, [self.stored.get(a, a) for a in axes]) or (BoxDim(1, 1, None),)


class ProductWriter(LoopedWriter):
    """Writes the stages of a product in its loops. behind: what is done with its sums in the same loops; workspace:
    where they are handed to, and its number among what is stored."""

    def __init__(
        self,
        tiles: TileWriter,
        looped: LoopedStages,
        behind: EpilogueWriter | None = None,
        workspace: tuple[int, GmType] | None = None,
    ):
        super().__init__(tiles.w, looped, range(len(tiles.k.extents)))
        self.tiles, self.behind, self.workspace = tiles, behind, workspace
        self.carrying = sum(not loop.carries for loop in looped.loops)

    def along(self, loop: LoopedAxis) -> Sequence[AxisStep]:
        return self.tiles.tiles(loop.axis) if loop.over == "tiles" else super().along(loop)

    def take(self, i: int) -> None:
        op = self.looped.stages[i].op
        if isinstance(op, HandOver):
            self._hand_over(i, op)
        else:
            super().take(i)

    def _hand_over(self, i: int, op: HandOver) -> None:
        """Stores sums in the workspace of what vector cores do behind the product."""
        assert self.workspace is not None
        (output, whole), tile = self.workspace, self.looped.tiles[i]
        stored = self.tiles.stored
        with self.w.tiled({**dict(enumerate(tile)), **{own: tile[a] for a, own in stored.items()}}):
            store = StoreSums(op.factor, op.zero, op.relu, output, self.tiles.handed(op.order, whole))
            stage = self.looped.stages[i]
            with self.w.located(stage):
                self.w.put(store, [], store.moves, [self.known[ref] for ref in stage.operands])

    def level(self, depth: int) -> None:
        if self.behind is not None and depth < self.carrying:
            self.behind.before(depth)
        super().level(depth)

    def looped_over(self, depth: int) -> None:
        super().looped_over(depth)
        if self.behind is not None and depth == self.carrying:
            self.behind.sums = self.known[self.looped.sums[1]]
            self.behind.rest(depth)


class EpilogueWriter:
    """Writes what vector cores do with tiles of sums, in `loops` over tiles and, in each, in `parts`. A stage stands
    before all loops that it needs nothing of. workspace: where sums come from, and its number among all tensors; in
    one with the product, they come out of l0c."""

    sums: Ref

    def __init__(
        self,
        tiles: TileWriter,
        kernel: EpilogueStages,
        loops: Sequence[Part],
        parts: Sequence[Part],
        workspace: tuple[int, GmType] | None = None,
    ):
        self.tiles, self.w, self.k, self.workspace = tiles, tiles.w, kernel, workspace
        self.stages: StageGraph = kernel.stages
        self.loops, self.parts = loops, parts
        self.levels = self.stages.levels({a: i + 1 for i, (a, *_) in enumerate([*loops, *parts])})
        self.done: dict[Ref, Ref] = {}
        assert tiles.plan.epilogue is not None
        self.rank = len(tiles.plan.epilogue)
        windows = dict(enumerate(tiles.plan.epilogue))
        reached = {a: p.reach(windows[a]) for a, p in tiles.pooled.items()}
        self.tile = {**windows, **reached}
        self.tile |= {own: reached[a] for a, own in tiles.stored.items()}
        self.tile |= {own: windows[a] for a, own in tiles.place.items()}
        drained = [a for a, *_ in parts] if workspace is None else []
        own = self.w.own([OwnAxis("place in a tile of sums", of=a, step=0) for a in drained])
        self.in_tile: Mapping[int, int] = dict(zip(drained, own, strict=True))

    def before(self, depth: int) -> None:
        """Writes what stands inside so many loops, before the next one: loads first and stores last, so that one flag
        can cover them all."""
        here = (i for i, level in enumerate(self.levels) if level == depth and (i, 0) not in self.done)
        for i in self.stages.ordered(here):
            self._take(i, self.stages[i])

    def rest(self, depth: int) -> None:
        """Writes all that is left inside so many loops over tiles."""
        with ExitStack() as stack:
            for d in range(depth, len(self.loops)):
                self.before(d)
                axis, trips, _ = self.loops[d]
                stack.enter_context(self.w.turns(trips, *self.tiles.tiles(axis)))
            for d, (axis, trips, elements) in enumerate(self.parts, start=len(self.loops)):
                self.before(d)
                along = self.tiles.inside(axis, elements)
                if axis in self.in_tile:
                    along.append(AxisStep(self.in_tile[axis], along[0].apart))
                stack.enter_context(self.w.turns(trips, *along))
            self.before(len(self.loops) + len(self.parts))

    def _take(self, i: int, stage: KernelStage) -> None:
        axes = [self.tiles.place[a] if a in stage.pooled else a for a in range(self.rank)]
        if isinstance(stage.op, Given):
            with self.w.located(stage), self.w.tiled(self.tile):
                op, operands = self._brought(stage)
                self.done[i, 0] = self.w.put(op, stage.elements, stage.axes, operands, axes)
            return
        operands = [self.done[ref] for ref in stage.operands]
        made = self.w.take(stage, axes, [self.tile[a] for a in axes], operands)
        self.done.update(((i, j), ref) for j, ref in enumerate(made))

    def _brought(self, stage: KernelStage) -> tuple[StageOp, Sequence[Ref]]:
        """What brings the sums to a vector core: a load from the workspace, or the way out of l0c."""
        if self.workspace is not None:
            number, whole = self.workspace
            return StageLoadBox(number, self.tiles.handed(sorted(stage.axes), whole)), ()
        m, n, inner = self.k.m_axes, self.k.n_axes, 1
        rows: list[tuple[int, int]] = []
        for a in reversed(m):
            rows += [(self.in_tile[a], inner)] if a in self.in_tile else []
            inner *= self.tiles.plan.l0[a]
        columns = [(self.in_tile[n[-1]], 1)] if n and n[-1] in self.in_tile else []
        return DrainSums(tuple(m), tuple(n), tuple(rows), tuple(columns)), [self.sums]
