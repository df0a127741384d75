"""Vector kernels: elementwise ops and reductions over a tiled domain, and pure data movement.

The fusion becomes a list of steps, each known by the domain axes it spans. Tile sizes come from the schedule or from
pins; then each step is emitted in the outermost loop where all its operands are available.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, cached_property

from ...dialects.base import describe, to_ints
from ...dialects.dtypes import dtype_name, itemsize, size
from ...dialects.graph import FusionOp, VectorSchedule
from ...dialects.graph.schedules import Schedule
from ...dialects.npu.types import Pipe
from ...dialects.open_sizes import any_open, is_open
from ...kernels.builder import divide_grid, gm_of, may_repeat
from ...kernels.emit_nest import Frame, SectionNest, vector_frame, vector_section
from ...kernels.loops import AxisLoop, LoopNest, VectorPlan, VectorWriter, vector_nest
from ...kernels.stage import KernelStage, tile_bytes
from ...kernels.vector_cost import VectorWork, copy_cycles
from ...machine import Machine
from ..errors import TooLarge
from ..fusion.long_rows import UB_FRACTION
from ..npu.trial import allocated
from .schedule import cut_tile, equal_piece, largest_tile, reaches_over, share
from .scheduled import as_vector, cannot_obey
from .spaces import KernelSpace
from .streaming import RowPieces
from .vector_plan import PlannedVector
from .vector_space import VectorSpace
from .work_priced import WorkPriced

ACROSS = (64, 128, 256, 512, 1024)
"""Bytes of a run along the axis of a tile that is not its last one, where accesses have their elements side by side
along that: those that are tried."""


BUILT_ROWS = 4
"""Rows of a tile that are tried where not even one seems to fit, at most."""

CLEARLY_LESS = 0.9
"""The share of the estimated time of pieces of rows below which whole rows take less, beyond the estimate's error."""


class VectorKernel(PlannedVector, WorkPriced):
    """Lowers one vector or move fusion."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        by_axis = {len(p) for p in (asked.tile, asked.grid) if p is not None and len(p) > 1}
        apart = (
            asked.axes is None and len(to_ints(fusion.domain)) in by_axis
        )  # pinned axis by axis: none may merge
        super().__init__(fusion, machine, asked.axes, apart)
        self.asked = asked
        self.slots = asked.ub or 2
        self.built: dict[tuple[tuple[int, ...], int], bool] = {}
        """Whether kernels with a tile and so many buffers have room, of those that were built to see."""
        self.works: dict[tuple[tuple[int, ...], bool, frozenset[int]], VectorWork] = {}
        """What there is to do with a tile, with its starts or without, as far as known."""
        self.build_stages()
        self.rows = self.stages.rows()
        self.outer = [a for a in range(len(self.extents)) if a not in self.rows]
        stores = [s for s in self.stages if s.kind == "store"]
        # where a result lacks an axis, two cores along it would both write it
        self.divided = [a for a in self.outer if all(a in s.moves for s in stores)]

    # -- choice ------------------------------------------------------------------------------------------------

    def space(self, name: str) -> KernelSpace:
        return VectorSpace(self, name)

    @property
    def reads_pieces(self) -> bool:
        """Whether it may read rows in pieces."""
        return self._why_whole() is None

    def candidates(self, name: str) -> Iterator[VectorSchedule]:
        cores = self.asked.cores or self.machine.vector_cores
        if cores > self.machine.vector_cores:
            there = f"the {self.machine.vector_cores} vector cores of {self.machine.name}"
            raise cannot_obey(name, f"cores={cores} is more than {there}")
        pinned = self._pinned_tile(name)
        if pinned is not None:
            yield self._schedule(name, pinned, cores)
            return
        whole = self._tiles_of_rows(cores) or self._built_tiles(name, cores)
        if not whole:
            yield from (self._schedule(name, tile, cores) for tile in self._tiles_of_pieces(cores))
            return
        yield from (self._schedule(name, tile, number) for tile, number in whole)
        yield from (self._schedule(name, tile, number) for tile, number in self._tiles_across(cores))
        tile, cores = whole[0]
        last = len(self.extents) - 1
        if not self.rows or last in self.rows or tile[last] == self.extents[last] or self._why_whole():
            return
        if len(self.pieces.walks.walks) > 1:
            return  # whole rows are loaded once
        # rows that lie side by side may also be read in pieces, so that more of them go by at once: what moves is then
        # long runs
        yield from (self._schedule(name, tile, cores) for tile in self._tiles_of_pieces(cores))

    def _schedule(self, name: str, tile: Sequence[int], cores: int) -> VectorSchedule:
        grid = self._grid(name, self.counts(tile), cores)
        return VectorSchedule(
            tuple(map(tuple, self.merged)), tuple(tile), grid, self.slots, piecewise=self.asked.piecewise
        )

    def counts(self, tile: Sequence[int]) -> list[int]:
        """Tiles along each axis."""
        return [-(-n // t) for n, t in zip(self.extents, tile, strict=True)]

    def _tiles_of_rows(self, cores: int) -> list[tuple[tuple[int, ...], int]]:
        """Tiles where rows that are reduced are whole, and on how many cores each, the one best for a launch of its own
        first; none where not even one row fits."""
        largest = largest_tile(
            self.extents, self.rows, lambda t: self._ub_bytes(self._whole_pairs(t)) <= self._capacity
        )
        return [] if largest is None else self._cut_for_cores(largest, cores)

    def _cut_for_cores(self, largest: Sequence[int], cores: int) -> list[tuple[tuple[int, ...], int]]:
        """Tiles cut from the largest one, and on how many cores each, the one best for a launch of its own first."""
        work, numbers = self.work(self._whole_pairs(largest)), [cores]
        if self.asked.cores is None and self.asked.grid is None:
            numbers = work.numbers_of_cores(cores, self.machine)
        pieces = work.pieces(self.machine)
        cut = {n: cut_tile(largest, self.extents, self.rows, self._width, n, pieces) for n in numbers}
        return [(self._whole_pairs(tile), n) for n, tile in cut.items()]

    def _built_tiles(self, name: str, cores: int) -> list[tuple[tuple[int, ...], int]]:
        """Tiles of few whole rows with which a kernel that is built has room, though its steps' bytes say that it has
        not: in-place chains and operands that are repeated on the fly take less. And on how many cores each. None where
        pieces of rows take less time, as they overlap where a core has one row."""
        if not self.rows or any_open(self.extents):
            return []
        caps = [n if a in self.rows else min(n, BUILT_ROWS) for a, n in enumerate(self.extents)]
        largest = largest_tile(caps, self.rows, self._fits_built)
        if largest is None:
            return []
        whole = self._cut_for_cores(largest, cores)
        if self._why_whole() is None:
            tile, number = whole[0]
            least = min(self._pipelined(name, tile, cores) for tile in self._tiles_of_pieces(cores))
            if self._pipelined(name, tile, number) > CLEARLY_LESS * least:
                return []
        return whole

    def _pipelined(self, name: str, tile: Sequence[int], cores: int) -> float:
        """Microseconds with this tile where the slowest pipe hides what the others do for all tiles but one."""
        plan = self._schedule(name, tile, cores)
        counts, grid = self.counts(tile), plan.grid or ()
        pipes = self.work(tile, starts=True).pipes
        own, slowest = size([-(-n // g) for n, g in zip(counts, grid, strict=True)]), max(pipes, key=pipes.__getitem__)
        shown = {pipe: n if pipe is slowest else n / max(own, 1) for pipe, n in pipes.items()}
        return VectorWork(shown).price(*self.shared(tile, grid), self.machine).microseconds

    def _fits_built(self, tile: Sequence[int]) -> bool:
        """Whether a kernel with this tile has room, tried."""
        if self._least_bytes(tile) > self.machine.spaces["ub"].bytes:
            return False
        key = self._whole_pairs(tile), self.slots
        if key not in self.built:
            trial = VectorSchedule(None, key[0], (1,) * len(tile), self.slots, piecewise=self.asked.piecewise)
            self.built[key] = allocated(self.build("trial", trial), self.machine) is not None
        return self.built[key]

    def _least_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of ub that what is loaded and stored takes at least with this tile."""
        moved = [s for s in self.stages if s.kind in ("load", "store") and s.view is not None]
        return sum(tile_bytes(tile, s.axes, [s.view.element], s.spacing) for s in moved if s.view is not None)

    def _tiles_across(self, cores: int) -> list[tuple[tuple[int, ...], int]]:
        """Tiles that have long runs along two axes, where some accesses have their elements side by side along another
        axis than the last one, as one of the two sides of a transpose; and on how many cores each. None where rows are
        reduced, or sizes are open."""
        last = len(self.extents) - 1
        if self.rows or self.paired or any(map(is_open, self.extents)):
            return []
        found: dict[tuple[tuple[int, ...], int], None] = {}
        for across in sorted({axis for s in self.stages if (axis := s.nearest()) is not None} - {last}):
            for run in ACROSS:
                length = run // self._width
                if length >= self.extents[across]:
                    break
                caps = [length if a == across else n for a, n in enumerate(self.extents)]
                tile = largest_tile(caps, frozenset({across}), lambda t: self._ub_bytes(t) <= self._capacity)
                if tile is None:
                    break
                work = self.work(tile)
                pieces = work.pieces(self.machine)
                for n in work.numbers_of_cores(cores, self.machine) if self.asked.cores is None else [cores]:
                    found[cut_tile(tile, self.extents, frozenset(), self._width, n, pieces), n] = None
        return list(found)

    def _whole_pairs(self, tile: Sequence[int]) -> tuple[int, ...]:
        """A tile with even extents where numbers are loaded in pairs, along which extents are even."""
        return tuple(t + t % 2 if a in self.paired else t for a, t in enumerate(tile))

    def _tiles_of_pieces(self, cores: int) -> list[tuple[int, ...]]:
        """Tiles where rows are read in pieces, longer ones first. Raises TooLarge where that is no way out."""
        if self._why_whole() is not None:
            raise TooLarge(f"{describe(self.fusion)} needs more of ub than {self.machine.name} has")

        bytes_of = cache(lambda tile, masked: self.pieces.walks.ub_bytes(tile, self.slots, masked))

        def longest(cores: int, masked: bool, kept: bool = False) -> tuple[int, ...] | None:
            def fits(tile: Sequence[int]) -> bool:
                return bytes_of(self._whole_pairs(tile), masked) <= self._capacity

            caps = cut_tile(self.extents, self.extents, self.rows, self._width, cores)
            return largest_tile(self._kept(caps) if kept else caps, frozenset(), fits)

        most = 1 if self.asked.grid else cores
        tried = [n for n in range(1, most + 1) if most // n > most // (n + 1)]
        found = [*(longest(n, masked=True) for n in tried), *(self._alike(longest(n, masked=False)) for n in tried)]
        if len(self.pieces.walks.walks) > 1:
            found += (longest(n, masked=True, kept=True) for n in tried)
        tiles = {self._whole_pairs(tile) for tile in found if tile}
        if not tiles:
            raise TooLarge(f"{describe(self.fusion)}: one element of each value does not fit ub")
        return sorted(tiles, reverse=True)

    def _kept(self, tile: Sequence[int]) -> tuple[int, ...]:
        """A tile with as many of the rows that lie side by side as L2 keeps until they are walked over again."""
        last, caps = len(self.extents) - 1, list(tile)
        while last not in self.rows and caps[last] > 8 and not self._rows_kept(caps):
            caps[last] = -(-caps[last] // 16) * 8
        return tuple(caps)

    def _alike(self, tile: Sequence[int] | None) -> tuple[int, ...] | None:
        """A tile with as long pieces of rows that are all alike, so that none is masked; None where there are none."""
        if tile is None:
            return None
        last = len(self.extents) - 1
        pieces = {a: equal_piece(self.extents[a], tile[a], 8 if a == last else 1) for a in self.rows}
        if None in pieces.values():
            return None
        return tuple(pieces.get(a) or n for a, n in enumerate(tile))

    def walked(self) -> list[list[int]]:
        return self.merged

    def shared(self, tile: Sequence[int], grid: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        counts, cores = ([numbers[a] for a in self.outer] for numbers in (self.counts(tile), grid))
        return counts, cores

    def overlapped(self, schedule: Schedule) -> float:
        """The estimate of `bound` where loads, stores and arithmetic go on at the same time: for comparisons with
        kernels of other kinds, whose bounds have their pipes side by side."""
        plan = as_vector("", schedule)
        tile, grid = plan.tile or (), plan.grid or ()
        work = self.work(tile, starts=True)
        return work.price(*self.shared(tile, grid), self.machine, overlap=True).microseconds

    def check(self, name: str, schedule: Schedule) -> None:
        plan = as_vector(name, schedule)
        tile, grid = plan.tile or (), plan.grid or ()
        if not len(self.extents) == len(tile) == len(grid):
            raise cannot_obey(
                name, f"it walks {len(self.extents)} axes, the tile has {len(tile)} and the grid {len(grid)}"
            )
        for a, (n, extent) in enumerate(zip(tile, self.extents, strict=True)):
            if not is_open(extent) and n > max(extent, 8):
                raise cannot_obey(name, f"a tile of {n} along axis {a}, which has {extent}")
        self._check_tile(name, tile)
        self._check_grid(name, self.counts(tile), grid)

    def _ub_bytes(self, tile: Sequence[int]) -> int:
        return self.stages.ub_bytes(tile, self.slots)

    @property
    def _capacity(self) -> int:
        return int(self.machine.spaces["ub"].bytes * UB_FRACTION)

    @property
    def _width(self) -> int:
        """Bytes of the widest element."""
        return max(itemsize(e) for s in self.stages for e in s.elements)

    def is_cut(self, tile: Sequence[int]) -> bool:
        return any(tile[a] < self.extents[a] for a in self.rows)

    def work(self, tile: Sequence[int], starts: bool = False) -> VectorWork:
        """What there is to do with this tile. starts: with what every instruction of the vector unit takes to start,
        for each tile."""
        key = tuple(tile), starts, self.warm
        if key not in self.works:
            self.works[key] = VectorWork(self._pipes(tile, starts))
        return self.works[key]

    def _pipes(self, tile: Sequence[int], starts: bool) -> dict[Pipe, float]:
        """The cycles that each pipe is busy with this tile."""
        cycles: dict[Pipe, float] = {Pipe.MTE2: 0.0, Pipe.V: self.computed(tile, starts), Pipe.MTE3: 0.0}
        again, kept = self.again(tile), self._rows_kept(tile)
        for i, step in enumerate(self.stages):
            if step.view is not None:
                box = step.box(tile)
                warm = step.source in self.warm
                cycles[step.pipe] += copy_cycles(step.kind, step.view, box, self.machine, warm)
                if again[i]:
                    hits = warm or kept
                    copied = copy_cycles(step.kind, step.view, box, self.machine, hits)
                    cycles[step.pipe] += again[i] * copied
        return cycles

    def computed(self, tile: Sequence[int], starts: bool = False, masked: bool = True) -> float:
        """The cycles that the vector unit is busy with this tile; masked: with what masks pieces that reach over the
        end of their rows."""
        unit, cycles = self.machine.vector, 0.0
        started = unit.streamed_cycles * (size(self.counts(tile)) - 1) if starts else 0
        for step, again in zip(self.stages, self.again(tile), strict=True):
            if step.view is None and step.function is not None:
                elements = size([n for a, n in enumerate(self.extents) if a in step.axes | step.reduces])
                dtype = dtype_name(step.elements[0])
                known = [f for f in (step.function, "add") if unit.supports(f, dtype)]
                once = started + (unit.cycles(known[0], dtype, elements) if known else elements)
                if masked and self._masked(step, tile):
                    once += started + (unit.cycles("select", dtype, elements) if known else elements)
                cycles += (1 + again) * once
        return cycles

    def _masked(self, step: KernelStage, tile: Sequence[int]) -> bool:
        """Whether the pieces that a step reduces are masked, as the last one reaches over the end of the rows."""
        return self.is_cut(tile) and any(reaches_over(self.extents[a], tile[a]) for a in step.reduces)

    def again(self, tile: Sequence[int]) -> list[int]:
        """How often each step is done anew with this tile: in each walk over the pieces of rows but its first."""
        if not self.is_cut(tile):
            return [0] * len(self.stages)
        return [self.pieces.walks.times(i) - 1 for i in range(len(self.stages))]

    def _rows_kept(self, tile: Sequence[int]) -> bool:
        """Whether L2 still has the rows that all cores have read at a time when they walk over them again, beside what
        they store."""
        rows = [self.extents[a] if a in self.rows else n for a, n in enumerate(tile)]
        moved = sum(tile_bytes(rows, s.axes, [s.view.element], s.spacing) for s in self.stages if s.view is not None)
        return moved * self.machine.vector_cores <= self.machine.l2_bytes

    # -- pins --------------------------------------------------------------------------------------------------

    def _pinned_tile(self, name: str) -> tuple[int, ...] | None:
        """The pinned tile over the merged axes; None where none is pinned. Raises PassError where it cannot be."""
        tile = self._pinned_extents(name)
        if tile is None:
            return None
        if self.asked.ub is None and not self._has_room(tile):
            self.slots = 1
        self._check_tile(name, tile)
        return tile

    def _needed_bytes(self, tile: Sequence[int]) -> int:
        """Bytes of ub with this tile, what combines pieces of rows included."""
        if not self.is_cut(tile):
            return self._ub_bytes(tile)
        return self._piece_bytes(self._pieces_of(tile, self.slots), tile, self.slots)

    def _has_room(self, tile: Sequence[int]) -> bool:
        """Whether a kernel with this tile has room in ub."""
        if self._needed_bytes(tile) <= self.machine.spaces["ub"].bytes:
            return True
        return not self.is_cut(tile) and self._fits_built(tile)

    def _piece_bytes(self, pieces: RowPieces, tile: Sequence[int], slots: int) -> int:
        ragged = any(reaches_over(self.extents[a], tile[a]) for a in self.rows)
        return pieces.walks.ub_bytes(tile, slots, ragged)

    def _pieces_of(self, tile: Sequence[int], slots: int) -> RowPieces:
        """What emits the steps with pieces of these extents: combined lane by lane where there is room for that."""
        if self._piece_bytes(self.pieces, tile, slots) <= self.machine.spaces["ub"].bytes:
            return self.pieces
        return RowPieces(self.stages, self.extents)

    def _check_tile(self, name: str, tile: Sequence[int]) -> None:
        """Raises PassError for a tile that does not fit, or cuts rows or pairs that must be whole."""
        odd = next((a for a in self.paired if tile[a] % 2), None)
        if odd is not None:
            raise cannot_obey(name, f"a tile of {tile[odd]} along axis {odd}, where numbers are loaded in pairs")
        if self.is_cut(tile):
            why = self._why_whole()
            if why is not None:
                raise cannot_obey(name, why)
        need, room = self._needed_bytes(tile), self.machine.spaces["ub"].bytes
        if not self._has_room(tile):
            shown = " x ".join(map(str, tile))
            raise cannot_obey(
                name, f"a tile of {shown} takes {need} bytes of ub, and {self.machine.name} has {room}"
            )

    def _pinned_extents(self, name: str) -> tuple[int, ...] | None:
        wanted = self.asked.tile
        if wanted is None and self.asked.copy_length is None:
            return None
        by_axis = wanted
        asked = wanted[0] if wanted is not None and len(wanted) == 1 else self.asked.copy_length or 1
        if (wanted is None or len(wanted) == 1) and asked > max(size(self.domain), 1):
            kind = "tile" if wanted else "copy_length"
            raise cannot_obey(
                name, f"{kind}={asked} is more than the {size(self.domain)} elements that there are"
            )
        for own in (self.domain, self.extents):
            if wanted is not None and len(wanted) == len(own) > 1:
                long = next(
                    (a for a, (t, n) in enumerate(zip(wanted, own, strict=True)) if t > max(n, 1)), None
                )
                if long is not None:
                    raise cannot_obey(
                        name, f"a tile of {wanted[long]} along axis {long}, which has {own[long]}"
                    )
                break
        if wanted is not None and len(wanted) == len(self.domain) != len(self.extents):
            by_axis = tuple(wanted[group[0]] if group else 1 for group in self.merged)
        if by_axis is not None and len(by_axis) == len(self.extents):
            return tuple(min(t, n) for t, n in zip(by_axis, self.extents, strict=True))
        if wanted is not None and len(wanted) > 1:
            raise cannot_obey(name, f"its domain has {len(self.domain)} axes, and the tile {len(wanted)}")
        return self._filled(wanted[0] if wanted else self.asked.copy_length or 1, cut_rows=bool(wanted))

    def _filled(self, elements: int, cut_rows: bool) -> tuple[int, ...]:
        """A tile of so many elements, filled from the innermost axis outwards; rows are whole unless `cut_rows`."""
        tile = [n if a in self.rows else 1 for a, n in enumerate(self.extents)]
        for a in reversed(range(len(self.extents))):
            if a not in self.rows or cut_rows:
                tile[a] = min(max(elements, 1), self.extents[a])
            elements //= tile[a]
        return tuple(tile)

    def _why_whole(self) -> str | None:
        """Why rows cannot be read in pieces; None where they can."""
        if any(s.reduces and s.reduces != self.rows for s in self.stages):
            return "it reduces along different axes, so its rows cannot be read in pieces"
        return None

    def _grid(self, name: str, counts: Sequence[int], cores: int) -> tuple[int, ...]:
        """Cores along each axis, as pinned or divided. Raises PassError."""
        grid = self.asked.grid
        if grid is None:
            divided = divide_grid([counts[a] for a in self.divided], cores)
            used = dict(zip(self.divided, (n for n, _ in divided), strict=True))
            return tuple(used.get(a, 1) for a in range(len(counts)))
        if len(grid) == len(self.domain) and self.asked.axes is None:
            grid = tuple(grid[group[0]] if group else 1 for group in self.merged)
        if len(grid) != len(self.extents):
            raise cannot_obey(name, f"its domain has {len(self.domain)} axes, and the grid {len(grid)}")
        self._check_grid(name, counts, grid)
        return grid

    def _check_grid(self, name: str, counts: Sequence[int], grid: Sequence[int]) -> None:
        """Raises PassError for more cores than there are, or cores without work."""
        cores = self.asked.cores or self.machine.vector_cores
        if size(grid) > cores:
            raise cannot_obey(name, f"a grid of {size(grid)} cores is more than the {cores} there are")
        for a, wanted in enumerate(grid):
            uneven = not is_open(counts[a]) and share(counts[a], wanted)[0] != wanted
            if uneven or (a not in self.divided and wanted > 1):
                why = f"it has {counts[a]} tiles"
                if a not in self.divided:
                    why = "it is reduced" if a in self.rows else "a result does not have it"
                raise cannot_obey(name, f"axis {a} cannot be split over {wanted} cores, as {why}")

    # -- build -------------------------------------------------------------------------------------------------

    def sections(self, schedule: Schedule) -> list[SectionNest]:
        plan = as_vector("", schedule)
        assert plan.tile is not None and plan.grid is not None and plan.ub is not None
        tile, counts = plan.tile, self.counts(plan.tile)
        placed = VectorPlan(tile, plan.ub, {a: share(counts[a], plan.grid[a]) for a in self.outer})
        loops = placed.loops()

        def write(w: VectorWriter) -> None:
            if self.is_cut(tile):
                rows = [AxisLoop(a, counts[a]) for a in sorted(self.rows) if may_repeat(counts[a])]
                self._pieces_of(tile, placed.slots).write(w, [*loops, *rows])
                return
            level = self.stages.levels({loop.axis: i for i, loop in enumerate(loops, start=1)})
            order = self.stages.ordered(range(len(self.stages)))
            LoopNest(w, self.stages, loops, level, order).write()

        nest = vector_nest(self.stages, placed, self.fusion.location, write)
        return [SectionNest(vector_section(self.machine), nest)]

    def frame(self, schedule: Schedule) -> Frame:
        tensors = [gm_of(a) for a in self.inputs], [gm_of(v) for v in self.yielded]
        return vector_frame(self.machine, *tensors, as_vector("", schedule).ub or 1, self.fusion.location)

    @cached_property
    def pieces(self) -> RowPieces:
        """What emits the steps where rows are read in pieces, and there is room."""
        return RowPieces(self.stages, self.extents, lanewise=not self.asked.piecewise)
