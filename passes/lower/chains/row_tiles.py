"""Tiles of chained products: each has some rows of the result, and a core has all keys and columns of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from xdsl.ir import SSAValue

from ....dialects.dtypes import size
from ....dialects.graph import AttentionSchedule
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import GmType
from ....dialects.open_sizes import certain
from ....kernels.builder import gm_of, may_repeat
from ....kernels.emit_nest import Frame
from ....kernels.nest import AxisStep, Nest, NestWriter
from ....kernels.plan import Cut, PlannedAxis, cuts_of
from ....kernels.product import grids
from ..nested import PlannedNest
from ..schedule import share
from ..scheduled import as_attention, cannot_obey

SPACES = ("l1", "l0a", "l0b", "l0c", "ub")
"""The memories whose buffers a schedule counts."""


class RowTiles(PlannedNest):
    """A launch for chained products. `outer` are the axes of its tiles, all of the result's but the last, and `row` is
    the one along which a tile has more than one place; the second product sums up along `keys`, and its columns are
    along `feature`; `extents` are those of what is computed here. units: vector cores that share a tile of rows. wide:
    columns of the result, in whole fractals."""

    asked: AttentionSchedule
    outer: Sequence[int]
    row: int
    keys: int
    feature: int
    extents: Mapping[int, int]
    units: int = 1
    wide: int

    @abstractmethod
    def _refusal(self, s: AttentionSchedule) -> str | None:
        """Why a complete schedule cannot be obeyed, as the rest of a sentence."""

    @abstractmethod
    def _bytes(self, s: AttentionSchedule) -> dict[str, int]:
        """Bytes of each memory space that a tile takes."""

    @property
    @abstractmethod
    def summed(self) -> Sequence[int]:
        """Elements that are summed up for a number that each first product gives."""

    def pieces(self, keys: int) -> int:
        """Pieces of so many keys."""
        return -(-self.extents[self.keys] // keys)

    def planned_axes(self, schedule: Schedule) -> list[PlannedAxis]:
        s = as_attention("", schedule)
        assert s.rows and s.keys and s.scored and s.columns and s.features
        found: list[PlannedAxis] = []
        for a, (cores, trips) in self.split(s).items():
            length, cuts = self._length(a, s), cuts_of(cores, trips, self._length(a, s))
            if a == self.row and self.units > 1:
                cuts = (*cuts, Cut("units", self.units, length // self.units, "part of a vector core"))
            role = "rows" if a == self.row else "batch"
            found.append(PlannedAxis("rows" if a == self.row else f"b{a}", role, self.extents[a], length, cuts))

        def along(name: str, role: str, extent: int, tile: int, *cuts: Cut) -> None:
            found.append(PlannedAxis(name, role, extent, tile, tuple(c for c in cuts if may_repeat(c.times))))

        pieces = Cut("loop", self.pieces(s.keys), s.keys, "piece of the keys")
        scored = Cut("loop", s.keys // s.scored, s.scored, "keys that are summed up at once")
        along("keys", "summed", self.extents[self.keys], s.scored, pieces, scored)
        columns = Cut("loop", self.wide // s.columns, s.columns, "columns that are summed up at once")
        along("columns", "columns", self.extents.get(self.feature, 1), s.columns, columns)
        for i, whole in enumerate(self.summed):
            step = Cut("loop", -(-whole // s.features), s.features, "mma step")
            along(f"features{i}" if len(self.summed) > 1 else "features", "summed", whole, s.features, step)
        return found

    def check(self, name: str, schedule: Schedule) -> None:
        reason = self._refusal(as_attention(name, schedule))
        if reason is not None:
            raise cannot_obey(name, reason)

    @property
    def _yielded(self) -> Sequence[SSAValue]:
        last = self.fusion.body.block.last_op
        assert last is not None
        return last.operands

    def _tiles(self, axis: int, rows: int) -> int:
        return -(-self.extents[axis] // rows) if axis == self.row else self.extents[axis]

    def counts(self, s: AttentionSchedule) -> list[int]:
        """Tiles along each axis of the result but the last."""
        assert s.rows
        return [self._tiles(a, s.rows) for a in self.outer]

    def _grids(self, rows: int) -> list[tuple[int, ...]]:
        """Divisions over cores that are worth judging: fewer cores are started sooner."""
        if self.asked.grid:
            return [self.asked.grid]
        counts = [self._tiles(a, rows) for a in self.outer]
        most = min(self.asked.cores or self.machine.cube_cores, self.machine.cube_cores)
        return [tuple(grid) for grid in grids(counts, most)]

    def _refused_grid(self, s: AttentionSchedule) -> str | None:
        """Why tiles cannot be on cores as a schedule says."""
        assert s.rows and s.grid
        if len(s.grid) != len(self.outer):
            return f"its result has {len(self.outer)} axes of tiles, and the grid {len(s.grid)}"
        if size(s.grid) > self.machine.cube_cores:
            return f"a grid of {size(s.grid)} cores is more than the {self.machine.cube_cores} there are"
        for a, n in zip(self.outer, s.grid, strict=True):
            if certain(share(self._tiles(a, s.rows), n)[0], "!=", n):
                return f"axis {a} of {self._tiles(a, s.rows)} tiles cannot be split over {n} cores"
        return None

    def _refused_bytes(self, s: AttentionSchedule) -> str | None:
        """Why a tile does not fit on chip."""
        for space, need in self._bytes(s).items():
            room = self.machine.spaces[space].bytes
            if need > room:
                return f"a tile of {s.rows} rows and {s.keys} keys takes {need} bytes of {space}, of {room} there are"
        return None

    def split(self, s: AttentionSchedule) -> dict[int, tuple[int, int]]:
        """For each axis of tiles the cores along it, and the tiles of each."""
        assert s.rows and s.grid
        return {a: share(self._tiles(a, s.rows), n) for a, n in zip(self.outer, s.grid, strict=True)}

    def planned(self, nest: Nest) -> list[int]:
        order = [*self.outer, self.keys, self.feature]
        axes = [order.index(a) if a in order else 0 for a in range(self.feature + 1)]
        summed = iter(range(len(order), len(order) + len(self.summed)))
        for own in nest.stages.own.values():
            axes.append(next(summed) if own.of is None else axes[own.of])
        return axes

    def in_cores(
        self, w: NestWriter, s: AttentionSchedule, here: Mapping[int, int]
    ) -> AbstractContextManager[None]:
        """What is written inside is what each core does. here: axes that are where a core is along an axis."""
        loops: list[tuple[int, list[AxisStep]]] = []
        for a, (cores, trips) in self.split(s).items():
            own = [AxisStep(here[a], 1)] if a in here else []
            loops.append((cores, [AxisStep(a, trips * self._length(a, s)), *own]))
        return w.nested(loops, by="cores")

    def in_loops(self, w: NestWriter, s: AttentionSchedule) -> AbstractContextManager[None]:
        """What is written inside is in loops over the tiles of a core."""
        return w.nested((trips, [AxisStep(a, self._length(a, s))]) for a, (_, trips) in self.split(s).items())

    def framed(self, kind: str, s: AttentionSchedule, workspaces: Sequence[GmType]) -> Frame:
        """What a kernel for cores of a kind has around its stages."""
        tensors = [gm_of(v) for v in self.fusion.body.block.args], [gm_of(v) for v in self._yielded]
        slots = {space: getattr(s, space) for space in SPACES}
        return Frame(self.machine, kind, *tensors, workspaces, slots, self.fusion.location)

    def _length(self, axis: int, s: AttentionSchedule) -> int:
        assert s.rows
        return s.rows if axis == self.row else 1
