"""Cube kernels: matrix products and convolutions, with their vector epilogue. `contraction_choice.py` says how each is
cut, `product_stages.py` what stages it has and where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from xdsl.ir import Attribute, SSAValue

from ....dialects import tile as ops
from ....dialects.base import Expr
from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import GmType
from ....kernels.builder import KernelBuilder, dense, gm_of, may_repeat
from ....kernels.emit_looped import LoopEmitter
from ....kernels.stage import Ref
from ..schedule import share
from .cube_schedule import CubePlan
from .product_plan import PlannedProduct


class ContractKernel(PlannedProduct):
    """Lowers one cube or mix fusion."""

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        self.plan = CubePlan.of(self.completed(name, schedule))
        element = self.anchor.result if self.plain else self.drained
        return self._emit_kernel(name, self.plan, element_of(element))

    def _emit_kernel(self, name: str, plan: CubePlan, element: Attribute) -> ops.KernelOp:
        order = [*self.b_axes, *self.m_axes, *self.n_axes]
        split = {a: share(self.problem.tiles(a, plan.l0[a]), plan.grid[a]) for a in order}
        on_grid = [a for a in order if may_repeat(split[a][0])]
        lead = [split[a][0] for a in on_grid]
        workspaces = self._handed_operands(lead, plan)
        if not self.plain and not self.machine.fused:
            kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
            workspaces.append(dense([self._handed_extent(plan, a) for a in kept] or [1], element))
        builder = KernelBuilder(
            self.machine,
            "mix" if workspaces or not self.plain else "cube",
            lead,
            [gm_of(a) for a in self.inputs],
            [gm_of(v) for v in self.yielded],
            workspaces,
            plan.slots,
        )
        builder.location = self.fusion.location
        start = {
            a: (Expr.of(builder.coordinates[on_grid.index(a)]) if a in on_grid else Expr())
            * (split[a][1] * self.problem.apart(a, plan.l0[a]))
            + self.problem.first(a)
            for a in self.walk(plan.inner)
        }
        self._emit_cube_section(builder, plan, start)
        if not self.plain and not self.machine.fused:
            self._emit_vector_section(builder, plan, start)
        return builder.finish(name)

    def _handed_operands(self, lead: Sequence[int], plan: CubePlan) -> list[GmType]:
        """The workspaces of operands that vector cores make, for so many blocks of cores along each axis of the grid:
        none."""
        del lead, plan
        return []

    @contextmanager
    def _section(self, b: KernelBuilder) -> Iterator[None]:
        """The section of the products."""
        with b.section("fused" if self.machine.fused else "cube"):
            yield

    def _loop_emitter(self, b: KernelBuilder, position: dict[int, Expr]) -> LoopEmitter:
        """What builds the stages of the product from a position on."""
        return LoopEmitter(b, (), position)

    def _emit_cube_section(self, b: KernelBuilder, plan: CubePlan, start: Mapping[int, Expr]) -> None:
        """The products of all tiles of a core, with the epilogue where the same core makes it."""
        looped, done = self.looped(plan), dict[Ref, SSAValue]()
        self.sums = lambda: done[looped.sums[1]]
        with self._section(b):
            beside = None
            if self.machine.fused:
                beside = self._begin_epilogue(b, plan, start, self.tile_loops(plan), None)
            self._loop_emitter(b, dict(start)).emit_looped(looped, done, beside)

    def _emit_vector_section(self, b: KernelBuilder, plan: CubePlan, start: Mapping[int, Expr]) -> None:
        """The epilogue on the vector cores beside the cube; each has a part of every tile where one axis can be cut."""
        axis, units = self._units(plan)
        with b.section("vector", units) as unit:
            part = (axis, unit, units) if axis is not None else None
            self._begin_epilogue(b, plan, start, self.tile_loops(plan), part).rest(0)
