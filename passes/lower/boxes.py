"""`BoxKernel`: the skeleton of kernels that cut a box of elements into tiles, one after the other on each core.

Gathers, windows, running sums, sorts, scatters and copies share it: a class says what fits ub, how much work there is
and what is done with one tile; plan, builder, grid and loops are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ...dialects import tile as ops
from ...dialects.base import Expr
from ...dialects.dtypes import size
from ...dialects.graph import FusionOp, VectorSchedule
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.types import GmType
from ...dialects.open_sizes import is_open
from ...kernels.builder import KernelBuilder, divide_grid, may_repeat
from ...kernels.plan import PlannedAxis, cuts_of
from ...machine import Machine
from ..errors import PassError
from ..fusion.long_rows import UB_FRACTION
from .schedule import cut_tile, largest_tile, share
from .scheduled import as_vector, cannot_obey
from .work_priced import WorkPriced


@dataclass(frozen=True)
class TilePlace:
    """Where one tile is: its extents, and its number along each axis."""

    tile: Sequence[int]
    numbers: Sequence[Expr]

    @property
    def position(self) -> list[Expr]:
        """Its first element along each axis."""
        return [n * t for n, t in zip(self.numbers, self.tile, strict=True)]


class BoxKernel(WorkPriced):
    """A kernel over a box of `domain` elements.

    `whole` axes are not cut where their tiles fit; along axes `in_order`, one core walks all tiles itself, inside
    `body`. `width` is the bytes of the element that is copied. `tensors` are the types of the inputs and the outputs.
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

    @abstractmethod
    def ub_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of ub that a tile needs, its buffers in flight included."""

    @abstractmethod
    def body(self, b: KernelBuilder, place: TilePlace) -> None:
        """Emits what is done with one tile."""

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
        return [
            (self.cut(largest, n, pieces), n) for n in work.numbers_of_cores(cores, self.machine)
        ]

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

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        plan = as_vector("", schedule)
        assert plan.tile is not None and plan.grid is not None
        counts = self._counts(plan.tile)
        found: list[PlannedAxis] = []
        for a, (extent, tile) in enumerate(zip(self.domain, plan.tile, strict=True)):
            role = "in order" if a in self.in_order else ""
            found.append(PlannedAxis(f"d{a}", role, extent, tile, cuts_of(*share(counts[a], plan.grid[a]), tile)))
        return found

    # -- build -------------------------------------------------------------------------------------------------

    def build(self, name: str, schedule: Schedule) -> ops.KernelOp:
        plan = as_vector(name, schedule)
        assert plan.tile is not None and plan.grid is not None and plan.ub is not None
        inputs, outputs = self.tensors
        counts = self._counts(plan.tile)
        shares = [share(tiles, cores) for tiles, cores in zip(counts, plan.grid, strict=True)]
        on_grid = [a for a, (cores, _) in enumerate(shares) if may_repeat(cores)]
        b = KernelBuilder(
            self.machine,
            "vector",
            [shares[a][0] for a in on_grid],
            inputs,
            outputs,
            slots={"ub": plan.ub},
        )
        b.location = self.fusion.location
        with b.section("fused" if self.machine.fused else "vector"), ExitStack() as stack:
            numbers: list[Expr] = []
            for a, (_, trips) in enumerate(shares):
                number = Expr()
                if a not in self.in_order:
                    if a in on_grid:
                        number = Expr.of(b.coordinates[on_grid.index(a)]) * trips
                    if may_repeat(trips):
                        number = number + stack.enter_context(b.loop(trips))
                numbers.append(number)
            self.body(b, TilePlace(plan.tile, numbers))
        return b.finish(name)
