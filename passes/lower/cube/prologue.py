"""Products of which vector cores make an operand: what is elementwise before it is computed tile by tile, beside the
cube, and never stored as a whole.

for each tile of the result of this block of cores:
  for each piece of k that one load brings to l1:
    load what the operand is made of, compute the piece, store it in a ring of tiles      vector
    load it to l1, and the other operand; products                                        cube

Each vector core makes a part of each piece. The ring has a room for each of the pieces of the made operand that one
load of the other one covers, so that pieces are made while others are multiplied.

Before:  %w = graph.fusion %q, %s {f16(q) * s} : 16 MB stored ; %y = graph.fusion %x, %w {x @ w}
After:   %y = graph.fusion %x, %q, %s {kind = "mix"} of the ops of both: those before the product have no axes, but
         their own as `prologue`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import NamedTuple

from xdsl.ir import SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr, ints, pack, to_ints
from ....dialects.dtypes import itemsize, size
from ....dialects.graph import CubeSchedule, FusionOp
from ....dialects.graph.control import AXES
from ....dialects.graph.interface import shape_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.legality import MIXED
from ....dialects.npu.types import GmType, row_strides
from ....dialects.tile import TileType
from ....kernels.builder import KernelBuilder, dense, number
from ....kernels.emit import Emitter
from ....kernels.emit_looped import LoopEmitter
from ....kernels.graph import StageGraph
from ....kernels.plan import PlannedGraph, StagePlace
from ....kernels.product import Extents
from ....kernels.product_cost import CubeCost, LoadCost
from ....kernels.product_stages import lengths
from ....kernels.stage import Ref, Stage
from ....kernels.vector_cost import computing, copying
from ....machine import Machine
from ...errors import NoKernel
from ...forms.copied_fusion import CopiedFusion
from ...fusion.long_rows import UB_FRACTION
from ..axes import StoredPart, behind_transposes
from ..fusion_stages import FusionStages
from ..scheduled import BarrierIdle
from .contract import ContractKernel
from .contraction_axes import PROLOGUE, Operand, is_prologue, made_operand, product_in
from .cube_schedule import CubePlan
from .product_stages import GIVEN

ROOMS = (2, 4)
"""Pieces that a ring has room for: those that are tried."""


class OperandStages(FusionStages):
    """What makes the tiles of an operand; its axes are the dimensions of that. `result`: the stage of a tile."""

    def __init__(self, fusion: FusionOp, machine: Machine) -> None:
        super().__init__(fusion, machine, apart=True)
        self.result: Ref = (-1, 0)
        self.build_stages()

    def _store(self, part: StoredPart) -> None:
        self.result = self._spanning(self.made[part.value], frozenset(range(len(self.extents))))


class _Chunks(NamedTuple):
    """A vector core makes `own` places along `axis` of a piece, in `count` chunks of these extents."""

    axis: int
    own: int
    count: int
    extents: tuple[int, ...]


class PrologueKernel(ContractKernel):
    """Lowers a product and what makes one of its operands."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: CubeSchedule) -> None:
        side = made_operand(fusion)
        product = product_in(fusion)
        assert side is not None and product is not None
        made, _ = behind_transposes(product.operands[side])
        self.side = side
        rest, before = CopiedFusion(fusion, [made], {}), CopiedFusion(fusion, [], {})
        (result,) = fusion.yielded(0).values
        super().__init__(rest.fusion("cube", to_ints(fusion.domain), rest.value(result)), machine, asked)
        self.fusion = fusion
        self.inputs = {v: i for v, i in self.inputs.items() if i < len(fusion.inputs)}
        value = before.value(made)
        for op in before.block.ops:
            if is_prologue(op):
                op.attributes[AXES] = op.attributes.pop(PROLOGUE)
        self.before = OperandStages(before.fusion("vector", shape_of(made), value), machine)
        self.units = machine.vector_cores // machine.cube_cores
        self.dims = self._dims_of(self.operands[side], made)
        self.reduced = self.before.stages.rows()
        if not self.plain:
            raise NoKernel("something stands behind a product of which vector cores make an operand")
        self.kinds = frozenset({"cube", "vector"})

    def _as_asked(self, most: list[list[int]]) -> list[list[int]]:
        return super()._as_asked([[axis] for group in most for axis in group])

    def _dims_of(self, o: Operand, made: SSAValue) -> Sequence[int]:
        """The axis of the stages along each dimension of the made operand as the cube takes it."""
        shape = shape_of(made)
        wide = [d for d, n in enumerate(shape) if n != 1]
        strides = row_strides(shape)
        at = {strides[d]: i for i, d in enumerate(wide)}
        plain = all(len(d.along) == 1 and d.stride in at and not d.start for d in o.dims if d.extent != 1)
        if not plain or len([d for d in o.dims if d.extent != 1]) != len(wide):
            raise NoKernel("a product takes an operand that vector cores make in another shape")
        return [at[d.stride] if d.extent != 1 else -1 for d in o.dims]

    # -- choice ------------------------------------------------------------------------------------------------

    @cached_property
    def _walked(self) -> list[int]:
        """The axis of the product that each axis of the stages is."""
        dims = self.operands[self.side].dims
        return [dims[self.dims.index(a)].along[0][0] for a in range(len(self.before.extents))]

    def candidates(self, name: str) -> Iterator[CubeSchedule]:
        found: dict[CubeSchedule, None] = {}
        for schedule in super().candidates(name):
            for ringed in self._in_a_ring(schedule):
                if (
                    self._refusal(ringed) is None
                    and self._chunks(self._made(CubePlan.of(ringed))) is not None
                ):
                    found[ringed] = None
        if not found:
            raise NoKernel("no piece of the operand that vector cores make has room in ub")
        whole = [schedule for schedule in found if not self._ragged(self._made(CubePlan.of(schedule)))]
        yield from whole or found  # what reaches over the end is masked, piece by piece

    def _ragged(self, box: Sequence[int]) -> bool:
        """Whether pieces of the made operand reach over the end of what is summed up."""
        both = zip(self._walked, self.before.extents, self._pieces(box), strict=True)
        return any(self.role[axis] == "k" and n % piece != 0 for axis, n, piece in both)

    def _in_a_ring(self, schedule: CubeSchedule) -> Iterator[CubeSchedule]:
        """The same with several pieces of the made operand for one load of the other one, as far as there are; with
        whole rows of it where these are reduced."""
        plan, last = CubePlan.of(schedule), self.k_axes[-1]
        made, other = (plan.rhs, plan.lhs) if self.side else (plan.lhs, plan.rhs)
        whole, least = self.extents[last], plan.l0[last]

        def loading(piece: int, length: int) -> CubeSchedule:
            """The same with loads of these lengths of both."""
            mine, its = (
                tuple(n if a == last else m for a, m in enumerate(each))
                for each, n in ((made, piece), (other, length))
            )
            lhs, rhs = (its, mine) if self.side else (mine, its)
            return replace(schedule, lhs=lhs, rhs=rhs)

        if self.reduced:
            if len(self.k_axes) == 1 and whole % least == 0:
                yield from (loading(whole, length) for length in dict.fromkeys((other[last], whole)))
        elif made[last] >= whole or other[last] > made[last]:
            yield schedule
        else:
            for piece in dict.fromkeys((made[last], max(made[last] // 2 // least, 1) * least)):
                yield from (loading(piece, piece * rooms) for rooms in ROOMS)

    def _made(self, plan: CubePlan) -> Extents:
        """The extents of a load of the made operand."""
        return plan.rhs if self.side else plan.lhs

    def _pieces(self, box: Sequence[int]) -> Sequence[int]:
        """The extents of a piece of the made operand along the axes of the stages, one for a box of the product's."""
        sizes = lengths(self.operands[self.side].dims, box)
        return [sizes[self.dims.index(a)] for a in range(len(self.before.extents))]

    def _chunks(self, box: Sequence[int]) -> _Chunks | None:
        """How a vector core makes its part of a piece; None where the piece has no equal parts, or not even a row of
        it has room."""
        piece = self._pieces(box)
        axis = next((a for a, n in enumerate(piece) if n % self.units == 0 and a not in self.reduced), None)
        if axis is None or any(piece[a] != self.before.extents[a] for a in self.reduced):
            return None
        own, room = piece[axis] // self.units, int(self.machine.spaces["ub"].bytes * UB_FRACTION)
        for count in (n for n in range(1, own + 1) if own % n == 0):
            chunk = tuple(own // count if a == axis else n for a, n in enumerate(piece))
            if self.before.stages.ub_bytes(chunk, self.slots) <= room:
                return _Chunks(axis, own, count, chunk)
        return None

    def _costed(self, cost: CubeCost, plan: CubePlan) -> CubeCost:
        return replace(cost, epilogue=1.0)  # vector cores are woken, too

    def _loads(self, box: Sequence[int]) -> list[LoadCost]:
        """A load of the made operand takes as long as its vector cores take to make it."""
        known = self.box_loads.get(tuple(box))
        if known is None:
            known, chunks = super()._loads(box), self._chunks(box)
            load = known[self.side]
            made = inf if chunks is None else chunks.count * self._cycles(chunks.extents)
            known[self.side] = load._replace(cycles=max(load.cycles, made))
        return known

    def _cycles(self, chunk: Sequence[int]) -> float:
        """Cycles of a vector core for a chunk, its pipes side by side."""
        stages, machine = self.before.stages, self.machine
        loaded = sum(copying(stage, chunk, machine)[0] for stage in stages if stage.view is not None)
        computed = sum(computing(stage, chunk, machine) for stage in stages if stage.view is None)
        width = itemsize(self.operands[self.side].element)
        return max(loaded, computed, machine.moves["ub", "gm"].cycles(size(chunk) * width))

    def loading_ahead(
        self, schedule: Schedule, waits: Sequence[BarrierIdle], given: Callable[[SSAValue], bool]
    ) -> tuple[Schedule, float]:
        return schedule, 0.0

    def idle_behind(self, schedule: Schedule) -> float:
        return 0.0

    @cached_property
    def _operand_bytes(self) -> list[float]:
        """Bytes of lhs and of rhs that come from outside: of the made one, those of what it is made of."""
        views = [
            stage.view for stage in self.before.stages if stage.kind == "load" and stage.view is not None
        ]
        found = list(super()._operand_bytes)
        found[self.side] = float(sum(size(view.shape) * itemsize(view.element) for view in views))
        return found

    # -- plan --------------------------------------------------------------------------------------------------

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return {PROLOGUE: self.before.stages, **super().stage_graphs()}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        plan = CubePlan.of(self.completed("", schedule))
        chunks = self._chunks(self._made(plan))
        assert chunks is not None
        axes = self._walked
        around = [a for a, _ in self.tile_loops(plan)]
        around += [a for a in self.k_axes if self.extents[a] > self._made(plan)[a] and a not in around]
        inside = tuple(around)
        levels = self.before.stages.levels({chunks.axis: 1})
        further = (*inside, axes[chunks.axis]) if chunks.count > 1 else inside
        places = tuple(StagePlace(further if level else inside) for level in levels)
        own = PlannedGraph(PROLOGUE, self.before.stages, tuple(axes), chunks.extents, plan.slots, places)
        return [own, *super().planned_graphs(schedule)]

    # -- build -------------------------------------------------------------------------------------------------

    def _rooms(self, plan: CubePlan) -> int:
        """The pieces that the ring has room for."""
        last = self.k_axes[-1]
        return -(-plan.l1[last] // plan.short[last])

    def _handed_operands(self, lead: Sequence[int], plan: CubePlan) -> list[GmType]:
        """The ring of pieces."""
        self.lead = len(lead)
        return [
            dense(
                [*lead, self._rooms(plan), *self._pieces(self._made(plan))], self.operands[self.side].element
            )
        ]

    @contextmanager
    def _section(self, b: KernelBuilder) -> Iterator[None]:
        with b.section(MIXED, self.units) as unit:
            self.unit = Expr.of(unit)
            yield

    def _loads_itself(self, side: int) -> bool:
        return side != self.side

    def _loop_emitter(self, b: KernelBuilder, position: dict[int, Expr]) -> LoopEmitter:
        return LoopEmitter(b, (), position, {GIVEN[self.side]: self._bring})

    def _bring(self, e: Emitter, stage: Stage) -> SSAValue:
        """A piece of the made operand, in a room of the ring first and then in l1."""
        assert isinstance(e, LoopEmitter)
        b, o, at = e.builder, self.operands[self.side], [Expr()] * len(self.dims)
        for axis, d in zip(self.dims, o.dims, strict=True):
            if axis >= 0:
                at[axis] = e.at(d.along[0][0])
        here = [*map(Expr.of, b.coordinates[: self.lead]), e.indices.get("shorter loads", Expr())]
        ring = b.workspace(0)
        self._make(b, ring, here, at)
        assert isinstance(ring.type, GmType)
        outer = len(here)
        shape, strides = [*ring.type.shape], [*ring.type.strides]
        order = [outer + axis for axis in self.dims if axis >= 0]
        view = b.view(
            ring,
            [*shape[:outer], *(shape[i] for i in order)],
            [*strides[:outer], *(strides[i] for i in order)],
        )
        sizes = lengths(o.dims, e.tile)
        box = [1] * outer + [n for n, axis in zip(sizes, self.dims, strict=True) if axis >= 0]
        return b.load(view, [*here, *(Expr() for _ in order)], box, TileType.of(sizes, o.element, "l1"))

    def _make(self, b: KernelBuilder, ring: SSAValue, here: Sequence[Expr], at: Sequence[Expr]) -> None:
        """A piece of the operand from a place on, each vector core a part of it, to a room of the ring."""
        chunks, stages = self._chunks(self._made(self.plan)), self.before.stages
        assert chunks is not None
        axis, extents = chunks.axis, chunks.extents
        emitter = Emitter(b, extents, dict(enumerate(at)))
        emitter.position[axis] = emitter.at(axis) + self.unit * chunks.own
        level, done = stages.levels({axis: 1}), dict[Ref, SSAValue]()
        emitter.emit_level(stages, level, 0, done)
        with b.loop(chunks.count) as index:
            emitter.position[axis] = emitter.at(axis) + index * extents[axis]
            emitter.emit_level(stages, level, 1, done)
            tile = self._masked(b, emitter, done[self.before.result], extents)
            places = [Expr() for _ in extents]
            places[axis] = self.unit * chunks.own + index * extents[axis]
            b.store(tile, ring, [*here, *places], [*(1 for _ in here), *extents])

    def _masked(self, b: KernelBuilder, emitter: Emitter, tile: SSAValue, chunk: Sequence[int]) -> SSAValue:
        """A tile with 0 in the place of what lies behind the end of what is summed up, where pieces reach over it; what
        lies behind other ends gives results that nobody stores."""
        if not self._ragged(self._made(self.plan)):
            return tile
        indices, offsets = pack([emitter.at(i) for i, _ in enumerate(chunk)])
        bounds = ints(self.before.extents)
        return b.add(
            ops.MaskOp, [tile, *indices], [tile.type], offsets=offsets, bounds=bounds, value=number(0.0)
        ).results[0]
