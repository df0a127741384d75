"""Products on the vector cores: each weight is multiplied where it is loaded, and added up.

A cube takes sixteen rows at once; a product of one row leaves it waiting for the weights. The vector cores together
load faster than the cubes that are their share of the launch, and no sums leave them before they are whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from ....dialects.dtypes import itemsize, size
from ....dialects.graph import ContractOp, FusionOp, VectorSchedule
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.graph.schedules import Schedule
from ....dialects.npu.types import Pipe
from ....dialects.open_sizes import any_open
from ....kernels.columns import Number, columns, launching_vectors, most, parts
from ....kernels.price import Price
from ....kernels.product import grids
from ....kernels.stage import spanning, tile_bytes
from ....kernels.vector_cost import computing, copying
from ....machine import Machine
from ...errors import TooLarge
from ..schedule import largest_tile
from ..scheduled import as_vector
from ..spaces import KernelSpace
from ..streaming import PeeledPieces, RowPieces
from ..vector import VectorKernel
from .contraction_axes import product_in
from .split import split_extents
from .spreading import innermost, is_spread, longer_operand, spread, why_not_spread
from .vector_product_space import VectorProductSpace

LINES = (0.25, 0.5, 1, 2)
"""Lines of memory that one run of a load may be long, where it is not a whole row: of shorter ones more cores have
some."""

PIECES = (16384, 32768)
"""Bytes of one load that are tried, as far as they fit: longer ones have fewer starts, shorter ones end sooner."""

FEWEST_ROWS = 64
"""Of what is summed over, a part has at least so many."""

MOST_SPLITS = 2
"""Numbers of parts that are judged, the ones that look best."""


def vector_parts(fusion: FusionOp, machine: Machine) -> list[int]:
    """Into how many parts the sums of a product on vector cores could be cut, the best guesses first; none where its
    longer operand is contiguous along them, as then its other axes give all cores work in long runs."""
    op = product_in(fusion)
    if not isinstance(op, ContractOp) or why_not_spread(fusion, machine) is not None:
        return []
    longer = longer_operand(op)
    inner = innermost(op, longer)
    if inner is None:
        return []
    move, width = machine.moves["gm", "ub"], itemsize(element_of(longer))
    bytes_, summed = size(shape_of(longer)) * width, split_extents(op)
    run = min(machine.gm_align, inner * width)
    tiles = max(bytes_ // max(size(summed), 1) // run, 1)
    each = max(move.run_cycles / run, 1 / move.bytes_per_cycle) + move.miss_cycles

    def microseconds(parts: int) -> float:
        cores = min(tiles * parts, machine.vector_cores)
        most = -(-tiles * parts // cores) / (tiles * parts)
        cycles = bytes_ * max(most * each, 1 / machine.hbm_bytes_per_cycle)
        return machine.vector_launch_microseconds(cores) + machine.cycles_to_microseconds(cycles)

    most = 2 * machine.vector_cores // tiles
    tried = {p for n in summed for p in range(2, min(most, n // FEWEST_ROWS) + 1) if n % p == 0}
    return sorted(tried, key=lambda parts: (microseconds(parts), parts))[:MOST_SPLITS]


class _TileCycles(NamedTuple):
    """What the steps of a tile take, of those for every piece of what is summed over, and of those for every result:
    cycles by pipe, and bytes that come from HBM; ends: cycles of all, once."""

    pipes: Mapping[Pipe, Sequence[float]]
    crossing: Sequence[float]
    ends: float


class VectorProductKernel(VectorKernel):
    """A product and its epilogue as one kernel of the vector cores."""

    ROWS = 8
    """Rows of a piece are a multiple of this, so that what is left of a part is short."""

    def __init__(self, fusion: FusionOp, machine: Machine, asked: VectorSchedule):
        super().__init__(fusion if is_spread(fusion) else spread(fusion), machine, asked)
        self.fusion = fusion
        loads = [step for step in self.stages if step.kind == "load" and step.view is not None]
        self.longest = max(
            loads, key=lambda s: size(s.view.shape) * itemsize(s.view.element) if s.view else 0
        )
        """The load of what is read once: the weights."""
        self.cycles_known: dict[tuple[int, ...], _TileCycles] = {}
        """What the steps take on a tile, as far as known."""

    def space(self, name: str) -> KernelSpace:
        return VectorProductSpace(self, name)

    def candidates(self, name: str) -> Iterator[VectorSchedule]:
        pinned = self._pinned_tile(name)
        tiles = [pinned] if pinned is not None else self.tiles_tried
        if not tiles:
            raise TooLarge(f"{name}: one element of each value does not fit ub")
        most = self.asked.cores or self.machine.vector_cores
        for tile in tiles:
            counts = self.counts(tile)
            if self.asked.grid:
                tried = [self._grid(name, counts, most)]
            else:
                tried = grids([n if a in self.divided else 1 for a, n in enumerate(counts)], most)
            for grid in tried:
                yield VectorSchedule(tuple(map(tuple, self.merged)), tile, tuple(grid), self.slots)

    @cached_property
    def tiles_tried(self) -> list[tuple[int, ...]]:
        """Different tiles: runs of some lines, as many of them as make a load of some bytes."""
        assert self.longest.view is not None
        width, last = itemsize(self.longest.view.element), len(self.extents) - 1
        line = max(self.machine.gm_align // width, 1)
        lengths = {min(max(int(line * n), 1), self.extents[last]) for n in LINES} | {self.extents[last]}
        found: dict[tuple[int, ...], None] = {}
        for length, bytes_ in product(sorted(lengths), PIECES):
            tile = self._tile_of(length, bytes_ // width)
            if tile is not None:
                found[tile] = None
        return list(found)

    def _tile_of(self, length: int, elements: int) -> tuple[int, ...] | None:
        """The tile with runs of at most so many elements, and about so many in all of what is loaded; None where not
        even one run fits."""
        # what is left behind whole pieces may need more room with a shorter tile: where the one found, made even, has
        # none, each tile is taken to leave as much as it has
        tiles = (self._longest_tile(length, max(elements, length), whole) for whole in (False, True))
        return next((t for t in tiles if t is not None and self._needed_bytes(t) <= self._capacity), None)

    def _longest_tile(self, length: int, most: int, whole: bool) -> tuple[int, ...] | None:
        """The tile with runs of at most so many elements, and at most so many in all of what is loaded, in even parts.
        whole: whether what is left behind whole pieces counts as one of them."""
        last = len(self.extents) - 1

        def fits(tile: Sequence[int]) -> bool:
            rest = tile if whole else None
            return (
                size(spanning(tile, self.longest.axes)) <= most
                and self._needed_bytes(tile, rest) <= self._capacity
            )

        caps = [length if a == last else n for a, n in enumerate(self.extents)]
        tile = largest_tile(caps, frozenset(), fits)
        if tile is None:
            return None
        cut = [a in self.rows and n >= self.ROWS for a, n in enumerate(tile)]
        fewer = [n // self.ROWS * self.ROWS if whole else n for n, whole in zip(tile, cut, strict=True)]
        return tuple(n if t == e else f for n, f, t, e in zip(tile, fewer, tile, self.extents, strict=True))

    def _needed_bytes(self, tile: Sequence[int], rest: Sequence[int] | None = None) -> int:
        """Bytes of ub with this tile: results are written over what ends there. rest: what is left behind whole pieces,
        where it is not what this tile leaves."""
        needed = self.stages.ub_bytes(tile, self.slots, in_place=True)
        if not self.is_cut(tile):
            return needed
        rest = rest or [self.extents[a] % n if a in self.rows else n for a, n in enumerate(tile)]
        if not self._masked(tile) and all(
            rest
        ):  # what is left behind the whole pieces is loaded to a place of its own
            loads = [self.stages[i] for i in self.of_pieces if self.stages[i].kind == "load"]
            needed += self.slots * sum(tile_bytes(rest, s.axes, s.elements) for s in loads)
        return needed + self.pieces.walks.combining_bytes(tile, ragged=self._masked(tile))

    def _masked(self, tile: Sequence[int]) -> bool:
        """Whether pieces are masked: where the last one is shorter along more than the one axis of a plain product."""
        return len(self.rows) > 1 and any(self.extents[a] % tile[a] for a in self.rows)

    def _pieces_of(self, tile: Sequence[int], slots: int) -> RowPieces:
        return self.pieces

    @cached_property
    def pieces(self) -> RowPieces:
        kind = PeeledPieces if len(self.rows) == 1 else RowPieces
        return kind(self.stages, self.extents)

    def price(self, schedule: Schedule) -> Price:
        """The pipes overlap; the first loads, the work on the last piece and the last store do not."""
        plan = as_vector("", schedule)
        return self._on_grid(plan.tile or (), plan.grid or ())

    def price_many(self, schedules: Sequence[Schedule]) -> np.ndarray:
        found, alike = np.empty(len(schedules)), defaultdict[object, list[int]](list)
        plans, is_open = [as_vector("", schedule) for schedule in schedules], any_open(self.extents)
        for i, plan in enumerate(plans):
            alike[i if is_open else plan.tile].append(i)
        for numbers in alike.values():
            grid = columns([plans[i].grid or () for i in numbers])
            found[numbers] = self._on_grid(plans[numbers[0]].tile or (), grid).microseconds
        return found

    def _on_grid(self, tile: Sequence[int], grid: Sequence[Number]) -> Price:
        """What one tile costs on a grid of cores, or on each of many."""
        own = [parts(n, g) for n, g in zip(self.counts(tile), grid, strict=True)]
        return self.priced(tile, size([own[a] for a in self.outer]), size(grid))

    def priced(self, tile: Sequence[int], results: Number, cores: Number) -> Price:
        """What one tile costs where the busiest one of so many cores has so many tiles of the result."""
        machine, counts = self.machine, self.counts(tile)
        pieces = results * size([counts[a] for a in self.rows])
        known, times = self._tile_cycles(tile), (pieces, results)
        pipes = {pipe: sum(n * each for n, each in zip(times, both, strict=True)) for pipe, both in known.pipes.items()}
        crossing = sum(n * each for n, each in zip(times, known.crossing, strict=True)) * cores
        loading = most(pipes[Pipe.MTE2], crossing / machine.hbm_bytes_per_cycle)
        pipes[Pipe.MTE2] = loading + machine.wait_cycles.get("MTE2", 0) * pieces
        launch = launching_vectors(machine, cores)
        return Price(launch, pipes, 1, machine.clock_mhz, behind=known.ends)

    def _tile_cycles(self, tile: Sequence[int]) -> _TileCycles:
        """What the steps take on a tile."""
        known = self.cycles_known.get(tuple(tile))
        if known is not None:
            return known
        pipes, crossing, ends = {pipe: [0.0, 0.0] for pipe in (Pipe.MTE2, Pipe.V, Pipe.MTE3)}, [0.0, 0.0], 0.0
        for i, step in enumerate(self.stages):
            which = 0 if i in self.of_pieces else 1
            if step.view is None:
                cycles = computing(step, tile, self.machine)
            else:
                cycles, bus = copying(step, tile, self.machine)
                if step is self.longest:
                    crossing[which] = bus
                    cycles += bus * self.machine.moves["gm", "ub"].miss_cycles
            pipes[step.pipe][which] += cycles
            ends += cycles
        known = self.cycles_known[tuple(tile)] = _TileCycles(pipes, crossing, ends)
        return known

    @cached_property
    def of_pieces(self) -> frozenset[int]:
        """The steps that are done for every piece of what is summed over."""
        at = next(i for i, step in enumerate(self.stages) if step.reduces)
        return frozenset([*self.stages.ancestors(at), at])
