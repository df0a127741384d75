"""Vector kernels: elementwise ops and reductions over a tiled domain, and pure data movement.

The fusion becomes a list of steps, each known by the domain axes it spans. Tile sizes come from the schedule or from
pins; then each step is emitted in the outermost loop where all its operands are available.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from xdsl.ir import SSAValue

from ...dialects import tile as ops
from ...dialects.base import Expr, describe, text
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.graph import ArgReduceOp, FusionOp, ReduceOp
from ...machine import Machine
from ..errors import TooLarge
from ..pins import VECTOR_FIELDS, Pins, cannot_obey, schedule_for
from .builder import KernelBuilder, divide_grid, gm_of
from .cores import copy_cycles, pieces_of, worth_waking
from .fusion_steps import FusionSteps
from .schedule import UB_FRACTION, cut_tile, largest_tile
from .steps import Emitter, Ref
from .streaming import RowPieces, combining_bytes


class VectorKernel(FusionSteps):
    """Lowers one vector or move fusion."""

    def build(self, name: str) -> ops.KernelOp:
        self.slots = self.pins.ub or 2
        self.build_steps()
        self.rows = self.steps.rows()
        self.cores = self.pins.cores or self.machine.vector_cores
        if self.cores > self.machine.vector_cores:
            there = f"the {self.machine.vector_cores} vector cores of {self.machine.name}"
            raise cannot_obey(name, f"cores={self.cores} is more than {there}")
        return self._emit(name, self._pinned_tile(name) or self._chosen_tile())

    # -- tile --------------------------------------------------------------------------------------------------

    def _chosen_tile(self) -> tuple[int, ...]:
        """Whole rows where they fit. Rows that lie side by side may also be read in pieces, so that more of them go
        by at once: what moves is then long runs."""
        whole = self._tile_of_rows()
        if whole is None:
            return self._tile_of_pieces()
        last = len(self.extents) - 1
        if not self.rows or last in self.rows or whole[last] == self.extents[last] or self._why_whole():
            return whole
        return min(whole, self._tile_of_pieces(), key=self._microseconds)

    def _tile_of_rows(self) -> tuple[int, ...] | None:
        """The tile where rows that are reduced are whole; None where not even one fits."""
        largest = largest_tile(self.extents, self.rows, lambda t: self._ub_bytes(t) <= self._capacity)
        if largest is None:
            return None
        cycles = self.work_cycles(largest)
        if self.pins.cores is None and self.pins.grid is None:
            self.cores = worth_waking(cycles, self.machine)
        pieces = pieces_of(cycles, self.machine)
        return cut_tile(largest, self.extents, self.rows, self._width, self.cores, pieces)

    def _tile_of_pieces(self) -> tuple[int, ...]:
        """The tile where rows are read in pieces. Raises PassError where that is no way out."""
        if sum(bool(s.reduces) for s in self.steps) != 1:
            raise TooLarge(f"{describe(self.fusion)} needs more of ub than {self.machine.name} has")

        def fits(tile: Sequence[int]) -> bool:
            return self._ub_bytes(tile) + combining_bytes(self.steps, tile) <= self._capacity

        def cut_for(cores: int) -> tuple[int, ...] | None:
            caps = cut_tile(self.extents, self.extents, self.rows, self._width, cores)
            return largest_tile(caps, frozenset(), fits)

        most = 1 if self.pins.grid else self.cores
        tiles = {tile for n in range(1, most + 1) if most // n > most // (n + 1) and (tile := cut_for(n))}
        if not tiles:
            raise TooLarge(f"{describe(self.fusion)}: one element of each value does not fit ub")
        return min(sorted(tiles, reverse=True), key=self._microseconds)

    def _microseconds(self, tile: Sequence[int]) -> float:
        """What the kernel is estimated to take with this tile, the launch included."""
        pieces = [-(-n // t) for a, (n, t) in enumerate(zip(self.extents, tile, strict=True)) if a not in self.rows]
        cores = min(self.cores, size(pieces))
        share = -(-size(pieces) // cores) / size(pieces)
        work = self.machine.cycles_to_microseconds(self.work_cycles(tile) * share)
        return self.machine.vector_launch_microseconds(cores) + work

    def _ub_bytes(self, tile: Sequence[int]) -> int:
        return self.steps.ub_bytes(tile, self.slots)

    @property
    def _capacity(self) -> int:
        return int(self.machine.spaces["ub"].bytes * UB_FRACTION)

    @property
    def _width(self) -> int:
        """Bytes of the widest element."""
        return max(itemsize(e) for s in self.steps for e in s.elements)

    def _in_pieces(self, tile: Sequence[int]) -> bool:
        return any(tile[a] < self.extents[a] for a in self.rows)

    def work_cycles(self, tile: Sequence[int]) -> float:
        """What the kernel would take one core, its pipes one after the other, tile by tile."""
        unit, cycles = self.machine.vector, 0.0
        for step in self.steps:
            if step.view is not None:
                box = [1 if a is None else tile[a] for a in step.along]
                cycles += copy_cycles(step.kind, step.view, box, self.machine)
            elif step.function is not None:
                elements = size([n for a, n in enumerate(self.extents) if a in step.axes | step.reduces])
                dtype = dtype_name(step.elements[0])
                known = [f for f in (step.function, "add") if unit.supports(f, dtype)]
                cycles += unit.cycles(known[0], dtype, elements) if known else elements
        return cycles

    # -- pins --------------------------------------------------------------------------------------------------

    def _pinned_tile(self, name: str) -> tuple[int, ...] | None:
        """The pinned tile over the merged axes; None where none is pinned. Raises PassError where it cannot be."""
        tile = self._pinned_extents(name)
        if tile is None:
            return None
        pieces = self._in_pieces(tile)
        if pieces:
            self._check_pieces(name)
        ragged = any(self.extents[a] % tile[a] for a in self.rows)
        extra = combining_bytes(self.steps, tile, ragged) if pieces else 0
        room = self.machine.spaces["ub"].bytes
        if self.pins.ub is None and self._ub_bytes(tile) + extra > room:
            self.slots = 1
        need = self._ub_bytes(tile) + extra
        if need > room:
            shown = " x ".join(map(str, tile))
            raise cannot_obey(
                name, f"a tile of {shown} takes {need} bytes of ub, and {self.machine.name} has {room}"
            )
        return tile

    def _pinned_extents(self, name: str) -> tuple[int, ...] | None:
        wanted = self.pins.tile
        if wanted is None and self.pins.copy_length is None:
            return None
        by_axis = wanted
        asked = wanted[0] if wanted is not None and len(wanted) == 1 else self.pins.copy_length or 1
        if (wanted is None or len(wanted) == 1) and asked > max(size(self.domain), 1):
            kind = "tile" if wanted else "copy_length"
            raise cannot_obey(name, f"{kind}={asked} is more than the {size(self.domain)} elements that there are")
        for own in (self.domain, self.extents):
            if wanted is not None and len(wanted) == len(own) > 1:
                long = next((a for a, (t, n) in enumerate(zip(wanted, own, strict=True)) if t > max(n, 1)), None)
                if long is not None:
                    raise cannot_obey(name, f"a tile of {wanted[long]} along axis {long}, which has {own[long]}")
                break
        if wanted is not None and len(wanted) == len(self.domain) != len(self.extents):
            by_axis = tuple(wanted[group[0]] if group else 1 for group in self.merged)
        if by_axis is not None and len(by_axis) == len(self.extents):
            return tuple(min(t, n) for t, n in zip(by_axis, self.extents, strict=True))
        if wanted is not None and len(wanted) > 1:
            raise cannot_obey(name, f"its domain has {len(self.domain)} axes, and the tile {len(wanted)}")
        return self._filled(wanted[0] if wanted else self.pins.copy_length or 1, cut_rows=bool(wanted))

    def _filled(self, elements: int, cut_rows: bool) -> tuple[int, ...]:
        """A tile of so many elements, filled from the innermost axis outwards; rows are whole unless `cut_rows`."""
        tile = [n if a in self.rows else 1 for a, n in enumerate(self.extents)]
        for a in reversed(range(len(self.extents))):
            if a not in self.rows or cut_rows:
                tile[a] = min(max(elements, 1), self.extents[a])
            elements //= tile[a]
        return tuple(tile)

    def _check_pieces(self, name: str) -> None:
        """Raises PassError unless there is one reduction, and what it gives is not used along its rows."""
        why = self._why_whole()
        if why is not None:
            raise cannot_obey(name, why)

    def _why_whole(self) -> str | None:
        """Why rows cannot be read in pieces; None where they can."""
        reductions = [i for i, s in enumerate(self.steps) if s.reduces]
        if len(reductions) != 1:
            return "rows are reduced more than once, so they cannot be read in pieces"
        wide = [i for i in self.steps.along(self.rows) if i != reductions[0]]
        if any(reductions[0] in self.steps.ancestors(i) for i in wide):
            return "what its rows are reduced to is used along them, so they must be whole"
        return None

    def _split(self, name: str, counts: Sequence[int], outer: Sequence[int]) -> dict[int, tuple[int, int]]:
        """(cores along it, tiles per core) for each axis that is not reduced."""
        cores = self.cores
        grid = self.pins.grid
        if grid is None:
            return dict(zip(outer, divide_grid([counts[a] for a in outer], cores), strict=True))
        if len(grid) == len(self.domain):
            grid = tuple(grid[group[0]] if group else 1 for group in self.merged)
        if len(grid) != len(self.extents):
            raise cannot_obey(name, f"its domain has {len(self.domain)} axes, and the grid {len(grid)}")
        if size(grid) > cores:
            raise cannot_obey(name, f"a grid of {size(grid)} cores is more than the {cores} there are")
        out: dict[int, tuple[int, int]] = {}
        for a, wanted in enumerate(grid):
            per_core = -(-counts[a] // wanted)
            if -(-counts[a] // per_core) != wanted or (a not in outer and wanted > 1):
                why = "it is reduced" if a not in outer else f"it has {counts[a]} tiles"
                raise cannot_obey(name, f"axis {a} cannot be split over {wanted} cores, as {why}")
            if a in outer:
                out[a] = (wanted, per_core)
        return out

    # -- build -------------------------------------------------------------------------------------------------

    def _emit(self, name: str, tile: Sequence[int]) -> ops.KernelOp:
        rows, pieces = self.rows, self._in_pieces(tile)
        counts = [-(-n // t) for n, t in zip(self.extents, tile, strict=True)]
        outer = [a for a in range(len(tile)) if a not in rows]
        split = self._split(name, counts, outer)
        axes_on_grid = [a for a in outer if split[a][0] > 1]
        builder = KernelBuilder(
            self.machine,
            "vector",
            [split[a][0] for a in axes_on_grid],
            [gm_of(a) for a in self.block.args],
            [gm_of(v) for v in self.yielded],
            slots={"ub": self.slots},
        )
        builder.location = self.fusion.location
        emitter = Emitter(builder, tile)
        core = "fused" if self.machine.fused else "vector"
        loops = [(a, split[a][1]) for a in outer if split[a][1] > 1]
        if pieces:
            loops += [(a, counts[a]) for a in sorted(rows) if counts[a] > 1]
        with builder.section(core):
            for a in outer:
                on_grid = Expr.of(builder.coordinates[axes_on_grid.index(a)]) if a in axes_on_grid else Expr()
                emitter.position[a] = on_grid * (split[a][1] * tile[a])
            if pieces:
                RowPieces(self.steps, self.extents, self._reduction_kind()).emit(emitter, loops)
            else:
                self._emit_loops(emitter, loops)
        return builder.finish(name)

    def _emit_loops(self, emitter: Emitter, loops: Sequence[tuple[int, int]]) -> None:
        """Each step in the outermost of `loops` (axis, trips) that knows everything it depends on."""
        level = self.steps.levels({a: i + 1 for i, (a, _) in enumerate(loops)})
        done: dict[Ref, SSAValue] = {}
        with ExitStack() as stack:
            for depth in range(len(loops) + 1):
                if depth:
                    axis, trips = loops[depth - 1]
                    index = stack.enter_context(emitter.builder.loop(trips))
                    emitter.position[axis] = emitter.position[axis] + index * emitter.tile[axis]
                emitter.emit_level(self.steps, level, depth, done)

    def _reduction_kind(self) -> str:
        op = next(o for o in self.members if isinstance(o, ReduceOp | ArgReduceOp))
        return text(op.kind)


OBEYED = VECTOR_FIELDS | {"ub", "cores"}


def lower_vector(fusion: FusionOp, machine: Machine, name: str, pins: Pins = None) -> ops.KernelOp:
    """The kernel of a vector or move fusion. Raises PassError where it cannot fit, or cannot obey its pins."""
    return VectorKernel(fusion, machine, schedule_for(pins, name, OBEYED)).build(name)
