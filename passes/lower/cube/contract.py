"""Cube kernels: matrix products and convolutions, with their vector epilogue. `contraction_choice.py` says how each is
cut, `product_stages.py` what stages it has and where they stand, `product_nest.py` writes them down in their loops."""

from __future__ import annotations

from ....dialects.graph.interface import element_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import GmType
from ....kernels.builder import dense, gm_of
from ....kernels.emit_nest import Frame, SectionNest
from ....kernels.nest import Nest
from ..nested import NestedKernel
from ..spaces import KernelSpace
from .cube_schedule import CubePlan
from .product_nest import EpilogueWriter, ProductWriter, TileWriter
from .product_plan import PlannedProduct
from .product_space import ProductSpace


class ContractKernel(PlannedProduct, NestedKernel):
    """Lowers one cube or mix fusion."""

    _ringed: bool = False
    """Whether each core has a workspace of its own."""

    def space(self, name: str) -> KernelSpace:
        return ProductSpace(self, name)

    def frame(self, schedule: Schedule) -> Frame:
        plan = self._plan_of(schedule)
        tensors = [gm_of(a) for a in self.inputs], [gm_of(v) for v in self.yielded]
        workspaces = self._workspaces(plan)
        kind = "mix" if workspaces or not self.plain else "cube"
        return Frame(self.machine, kind, *tensors, workspaces, plan.slots, self.fusion.location)

    def sections(self, schedule: Schedule) -> list[SectionNest]:
        plan = self._plan_of(schedule)
        core, units = self._section
        found = [SectionNest(core, self._products(plan), units)]
        if not self.plain and not self.machine.fused:
            found.append(SectionNest("vector", self._behind(plan), self._units(plan)[1]))
        return found

    def _plan_of(self, schedule: Schedule) -> CubePlan:
        return CubePlan.of(self.completed("", schedule))

    @property
    def _section(self) -> tuple[str, int]:
        """The section of the products, and the vector cores that share it."""
        return "fused" if self.machine.fused else "cube", 1

    def _workspaces(self, plan: CubePlan) -> list[GmType]:
        """What cube and vector cores exchange: the sums, where they do more than to store them."""
        if self.plain or self.machine.fused:
            return []
        kept = [a for a in range(len(self.extents)) if self.role[a] != "k"]
        return [dense([self._handed_extent(plan, a) for a in kept] or [1], element_of(self.drained))]

    def _products(self, plan: CubePlan) -> Nest:
        """The products of all tiles of a core, with the epilogue where the same core makes it."""
        tiles = TileWriter(self, plan, self._ringed)
        with tiles.cores():
            self._writer(tiles).level(0)
        return tiles.w.nest()

    def _writer(self, tiles: TileWriter) -> ProductWriter:
        """What writes the stages of the product."""
        plan, behind = tiles.plan, None
        if not self.plain and self.machine.fused:
            behind = EpilogueWriter(tiles, self, *self.epilogue_loops(plan, self.tile_loops(plan)))
        handed = next(((len(self.yielded), each) for each in self._workspaces(plan)), None)
        return ProductWriter(tiles, self.looped(plan), behind, handed)

    def _behind(self, plan: CubePlan) -> Nest:
        """The epilogue on the vector cores beside the cube; each has a part of every tile where one axis can be cut."""
        tiles, (axis, units), (workspace,) = TileWriter(self, plan), self._units(plan), self._workspaces(plan)
        loops = self.epilogue_loops(plan, self.tile_loops(plan))
        handed = len(self.inputs) + len(self.yielded), workspace
        writer = EpilogueWriter(tiles, self, *loops, handed)
        own = [] if axis is None else tiles.inside(axis, self._result_tile(plan)[axis] // units)
        with tiles.cores(), tiles.w.turns(units, *own, by="units"):
            writer.rest(0)
        return tiles.w.nest()
