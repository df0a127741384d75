"""`BoxKernel`: the skeleton of kernels that cut a box of elements into tiles, one after the other on each core.

Gathers, windows, running sums, sorts, scatters and copies share it: a class says what fits ub, how much work there is
and what its stages are; plan, grid and loops are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ...dialects.dtypes import size
from ...dialects.graph import FusionOp, VectorSchedule
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.types import GmType, padded_bytes
from ...dialects.open_sizes import is_open
from ...kernels.builder import divide_grid
from ...kernels.emit_nest import Frame, SectionNest, vector_frame, vector_section
from ...kernels.graph import StageGraph
from ...kernels.loops import AxisLoop, LoopNest, VectorPlan, VectorWriter, vector_nest
from ...kernels.plan import Cut, PlannedAxis, PlannedGraph, StagePlace, cuts_of
from ...kernels.writer import StageWriter
from ...machine import Machine
from ..errors import PassError
from ..fusion.long_rows import UB_FRACTION
from .nested import NestedKernel
from .schedule import cut_tile, largest_tile, share
from .scheduled import as_vector, cannot_obey
from .spaces import KernelSpace
from .vector_space import BoxSpace
from .work_priced import WorkPriced


class BoxKernel(NestedKernel, WorkPriced):
    """A kernel over a box of `domain` elements.

    `whole` axes are not cut where their tiles fit; along axes `in_order`, one core walks all tiles itself, in loops of
    `pieces`. `width` is the bytes of the element that is copied. `tensors` are the types of the inputs and the outputs.
    """

    domain: Sequence[int]
    whole: frozenset[int] = frozenset()
    in_order: frozenset[int] = frozenset()
    width: int
    tensors: tuple[Sequence[GmType], Sequence[GmType]]
    buffers: int = 2
    """Buffers in flight in ub where none are asked for."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        self.fusion = fusion
        self.machine = machine
        self.asked = asked

    # -- what a class says -------------------------------------------------------------------------------------

    def ub_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of ub that a tile needs, its buffers in flight included: those of its stages, unless a class counts
        more, as tiles that an instruction works in or that are not written over others."""
        return self.stages.ub_bytes(self.stages.tile_of(tile), self.slots)

    @abstractmethod
    def write(self, w: StageWriter) -> None:
        """Writes the stages down that it is made of, in the order in which a tile goes through them."""

    def pieces(self, tile: Sequence[int]) -> Sequence[AxisLoop]:
        """The loops inside of a tile, the outermost first: those along axes in order, and along axes of its stages."""
        return ()

    def beside(self, tile: Sequence[int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        """For an axis, others that are gone along with it, and by how many elements for each tile."""
        return {}

    @abstractmethod
    def too_large(self) -> str:
        """What is said where not even the smallest tile fits."""

    def refusal(self, tile: Sequence[int]) -> str | None:
        """Why a tile that fits cannot be, as the rest of a sentence; None where it can."""
        return None

    # -- choice ------------------------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Buffers in flight in ub."""
        return self.asked.ub or self.buffers

    def fits(self, tile: Sequence[int]) -> bool:
        return self.ub_bytes(tile) <= self.machine.spaces["ub"].bytes * UB_FRACTION

    def choose(self, cores: int) -> list[tuple[Sequence[int], int]]:
        """Tiles and the number of cores for each, at most so many, the one best for a launch of its own first; none
        where not even single rows fit."""
        largest = self.largest()
        if largest is None:
            return []
        work = self.work(largest)
        pieces = work.pieces(self.machine)
        return [(self.cut(largest, n, pieces), n) for n in work.numbers_of_cores(cores, self.machine)]

    def largest(self) -> tuple[int, ...] | None:
        """The largest tile that fits; None where not even single rows do."""
        return largest_tile(self.domain, self.whole, self.fits)

    def cut(self, largest: Sequence[int], cores: int, pieces: int) -> Sequence[int]:
        """The largest tile that fits, cut for so many cores, and into so many `pieces` where copies get short."""
        return cut_tile(largest, self.domain, self.whole, self.width, cores, pieces)

    def divide(self, counts: Sequence[int], cores: int) -> list[int]:
        """Cores along each axis for so many tiles along each, 1 along those that are walked in order."""
        free = [a for a in range(len(counts)) if a not in self.in_order]
        used = dict(zip(free, divide_grid([counts[a] for a in free], cores), strict=True))
        return [used[a][0] if a in used else 1 for a in range(len(counts))]

    def space(self, name: str) -> KernelSpace:
        return BoxSpace(self, name)

    def candidates(self, name: str) -> Iterator[VectorSchedule]:
        cores = min(self.asked.cores or self.machine.vector_cores, self.machine.vector_cores)
        chosen = [(self.asked.tile, cores)] if self.asked.tile is not None else self.choose(cores)
        if not chosen:
            raise PassError(self.too_large())
        for found, number in chosen:
            tile = tuple(map(int, found))
            if len(tile) != len(self.domain):
                raise cannot_obey(name, f"it walks {len(self.domain)} axes, and the tile has {len(tile)}")
            grid = self.asked.grid or self.divide(self._counts(tile), number)
            yield VectorSchedule(tile=tile, grid=tuple(map(int, grid)), ub=self.slots)

    def _counts(self, tile: Sequence[int]) -> list[int]:
        return [-(-n // t) for n, t in zip(self.domain, tile, strict=True)]

    def check(self, name: str, schedule: Schedule) -> None:
        plan = as_vector(name, schedule)
        tile, grid = plan.tile or (), plan.grid or ()
        if not len(self.domain) == len(tile) == len(grid):
            raise cannot_obey(
                name, f"it walks {len(self.domain)} axes, the tile has {len(tile)} and the grid {len(grid)}"
            )
        long = next((a for a, n in enumerate(self.domain) if not is_open(n) and tile[a] > max(n, 8)), None)
        if long is not None:
            raise cannot_obey(
                name, f"a tile of {tile[long]} along axis {long}, which has {self.domain[long]}"
            )
        need, room = self.ub_bytes(tile), self.machine.spaces["ub"].bytes
        if need > room:
            shown = " x ".join(map(str, tile))
            raise cannot_obey(
                name, f"a tile of {shown} takes {need} bytes of ub, and {self.machine.name} has {room}"
            )
        reason = self.refusal(tile)
        if reason is not None:
            raise cannot_obey(name, reason)
        if size(grid) > self.machine.vector_cores:
            raise cannot_obey(
                name, f"a grid of {size(grid)} cores is more than the {self.machine.vector_cores} there are"
            )
        for a, (cores, tiles) in enumerate(zip(grid, self._counts(tile), strict=True)):
            uneven = not is_open(tiles) and share(tiles, cores)[0] != cores
            if cores > 1 and (a in self.in_order or uneven):
                why = "its tiles are walked in order" if a in self.in_order else f"it has {tiles} tiles"
                raise cannot_obey(name, f"axis {a} cannot be split over {cores} cores, as {why}")

    def shared(self, tile: Sequence[int], grid: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        return self._counts(tile), grid

    # -- stages, and their places ------------------------------------------------------------------------------

    @cached_property
    def stages(self) -> StageGraph:
        """What is done with a tile."""
        w = StageWriter(len(self.domain), self.fusion.location)
        self.write(w)
        return w.graph

    def stage_graphs(self) -> Mapping[str, StageGraph]:
        return {"": self.stages}

    def _placed(self, schedule: Schedule) -> tuple[VectorPlan, list[AxisLoop], list[int]]:
        """What cores share and the loops of a core with a complete schedule, and in how many of these each stage is: in
        all over tiles at least."""
        plan = as_vector("", schedule)
        assert plan.tile is not None and plan.grid is not None and plan.ub is not None
        shared = zip(self._counts(plan.tile), plan.grid, strict=True)
        shares = {a: share(*both) for a, both in enumerate(shared) if a not in self.in_order}
        placed = VectorPlan(plan.tile, plan.ub, shares, self.beside(plan.tile))
        tiles = placed.loops()
        loops = [*tiles, *self.pieces(plan.tile)]
        levels = self.stages.levels({loop.axis: i for i, loop in enumerate(loops, start=1)})
        return placed, loops, [max(level, len(tiles)) for level in levels]

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        placed, loops, _ = self._placed(schedule)
        inside = {loop.axis: loop.trips for loop in loops[len(placed.loops()) :]}
        extents = dict(enumerate(self.domain))
        extents.update(pair for others in placed.beside.values() for pair in others)
        extents.update((a, own.least * inside.get(a, 1)) for a, own in self.stages.own.items())
        roles = {
            **dict.fromkeys(self.in_order, "in order"),
            **{a: o.what for a, o in self.stages.own.items()},
        }
        found: list[PlannedAxis] = []
        for a, tile in enumerate(self.stages.tile_of(placed.tile)):
            if a in self._along:
                continue
            pieces = (Cut("loop", inside[a], tile, "piece"),) if a in inside else ()
            cuts = cuts_of(*placed.shares[a], tile) if a in placed.shares else pieces
            found.append(PlannedAxis(f"d{a}", roles.get(a, ""), extents[a], tile, cuts))
        return found

    @property
    def _along(self) -> Mapping[int, int]:
        """Axes of its stages' own that go along one of the domain, and which."""
        return {a: own.of for a, own in self.stages.own.items() if own.of is not None}

    def planned_graphs(self, schedule: Schedule) -> list[PlannedGraph]:
        placed, loops, levels = self._placed(schedule)
        tile = self.stages.tile_of(placed.tile)
        walked = [a for a, _ in enumerate(tile) if a not in self._along]
        axes = [self._along[a] if a in self._along else walked.index(a) for a, _ in enumerate(tile)]
        pieces = {loop.axis for loop in loops[len(placed.loops()) :]}
        places: list[StagePlace] = []
        for stage, level in zip(self.stages, levels, strict=True):
            handed = stage.op.carries & pieces
            edge = replace(stage, axes=stage.axes - handed).extents(tile)
            carried = sum(padded_bytes(edge, e) for e in stage.elements) if handed else 0
            places.append(StagePlace(tuple(axes[loop.axis] for loop in loops[:level]), (), carried))
        return [PlannedGraph("", self.stages, tuple(axes), tile, {"ub": placed.slots}, tuple(places))]

    # -- build -------------------------------------------------------------------------------------------------

    def sections(self, schedule: Schedule) -> list[SectionNest]:
        placed, loops, levels = self._placed(schedule)
        order = range(len(self.stages))


        def write(w: VectorWriter) -> None:
            LoopNest(w, self.stages, loops, levels, order).write()

        nest = vector_nest(self.stages, placed, self.fusion.location, write)
        return [SectionNest(vector_section(self.machine), nest)]

    def frame(self, schedule: Schedule) -> Frame:
        return vector_frame(self.machine, *self.tensors, as_vector("", schedule).ub or 1, self.fusion.location)
