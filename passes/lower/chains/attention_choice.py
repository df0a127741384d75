"""How attention is cut: which rows and keys fit on chip, what a schedule costs, and why one cannot be obeyed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import gcd

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from ....dialects.base import describe, to_ints
from ....dialects.dtypes import itemsize, size
from ....dialects.graph import AttentionSchedule, ContractOp, FusionOp
from ....dialects.graph.interface import element_of, shape_of
from ....dialects.npu.types import padded_bytes
from ....dialects.open_sizes import any_open, certain, example
from ....kernels.builder import divide_grid
from ....kernels.product import FRACTAL, round_up
from ....kernels.stage import tile_bytes
from ....machine import Machine
from ...errors import TooLarge
from ...forms.attention import Attention
from ...forms.layout_axes import base_of
from ...forms.visible_keys import VisibleKeys, visible_keys
from ..scheduled import cannot_obey
from .attention_parts import ProductPart, ScoreStages, chained_in, result_dims
from .row_tiles import RowTiles

ROWS = (128, 112, 96, 80, 64, 48, 32, 16)
KEYS = (512, 384, 320, 256, 192, 128, 96, 64, 48, 32, 16)
"""Rows and keys of a tile that are tried."""

MOST_BANDS = 8
"""Bands of rows that are tried, at most."""

MOST_PARTS = 4
"""Parts of a tile that are handed over one by one, at most."""


def equal_parts(keys: int) -> list[int]:
    """The lengths of a few equal parts of a tile, in whole fractals, the longest first."""
    return [keys // n for n in range(1, MOST_PARTS + 1) if keys % (n * FRACTAL) == 0]


def _loaded(chain: ScoreStages, tile: Sequence[int]) -> int:
    """Bytes of what steps load and keep."""
    steps = [step for step in chain.stages if step.kind in ("load", "fill")]
    return sum(tile_bytes(tile, step.axes, step.elements, step.spacing) for step in steps)


def _even_steps(whole: int) -> list[int]:
    """Lengths of equal steps along a summed axis, in whole fractals, the longest first."""
    return sorted({round_up(-(-whole // n)) for n in range(1, -(-whole // 16) + 1)}, reverse=True)


@dataclass(frozen=True)
class Band:
    """The band of this number, of so many that the rows are cut into: its rows are those from `begin` up to `end`, and
    its keys those from `first` up to `stop`, which one of the rows sees."""

    number: int
    of: int
    begin: int
    end: int
    first: int
    stop: int


class AttentionChoice(RowTiles):
    """Attention, or what else is chained, on a chip whose cube and vector cores exchange tiles through device memory,
    while its schedule is chosen. It is that of a `band` of the rows, which may be all of them."""

    kinds = frozenset({"cube", "vector"})

    def __init__(
        self, fusion: FusionOp, machine: Machine, asked: AttentionSchedule, band: Band | None = None
    ):
        self.fusion, self.machine, self.asked = fusion, machine, asked
        at = self.at = chained_in(fusion, machine)
        self.softmax = at if isinstance(at, Attention) else None
        """What is between the products, where it has a softmax."""
        scores, product = at.scores, at.product
        batch = len(to_ints(scores.lhs_batch))
        self.scores = [
            ProductPart.of(fusion, op, at.axes[op.result], self._swapped(op), [], machine) for op in at.first
        ]
        """The first products, with what is loaded for each of them."""
        weights = product.operands[at.weights]
        self.values = ProductPart.of(
            fusion, product, at.axes[product.result], at.weights == 0, [weights], machine
        )
        order = result_dims(scores, self._swapped(scores))
        extents = [*shape_of(scores.result), at.domain[-1]]
        self.whole: Mapping[int, int] = {a: n for a, n in enumerate(extents) if n != 1}
        """The extent of each axis; `extents`: of what is computed here."""
        self.keys, self.feature = at.keys, len(extents) - 1
        self.outer = [a for a in order if a in self.whole and a != self.keys]
        """The axes of tiles: all of the result's but the last."""
        rows = [a for a in self.outer if a >= batch and a not in at.groups]
        self.row = max(rows, key=lambda a: self.whole[a])
        self.others = [a for a in self.outer if a != self.row]
        self.band = band or Band(0, 1, 0, self.whole[self.row], 0, self.whole[self.keys])
        lengths = {self.row: self.band.end - self.band.begin, self.keys: self.band.stop - self.band.first}
        self.extents: Mapping[int, int] = {**self.whole, **lengths}
        self.wide = round_up(self.extents.get(self.feature, 1))
        self.units = machine.vector_cores // machine.cube_cores
        self.values.takes(self.row)
        order = [*(a for a in order if a not in (self.keys, self.row)), self.keys, self.row]
        self.chain = ScoreStages.of(fusion, at, [op.result for op in at.first], at.x, order, machine)
        self.behind = None
        """What becomes of the weights of a softmax: it is linear, so that exponentials are not divided before."""
        if self.softmax is not None:
            quotient = self.softmax.quotient.results[0]
            self.behind = ScoreStages.of(fusion, at, [quotient], weights, order, machine)
        self.chains = [self.chain] if self.behind is None else [self.chain, self.behind]
        self.scored = [element_of(op.result) for op in at.first]
        self.weighed = element_of(weights)
        self.result = element_of(product.result)
        self.width = itemsize(self.weighed)
        """Bytes of a weight."""

    def _swapped(self, op: ContractOp) -> bool:
        """Whether the keys are on the right of a first product."""
        batch, (left, _) = len(to_ints(op.lhs_batch)), op.free_dims()
        return self.at.axes[op.result].index(self.at.keys) >= batch + len(left)

    @cached_property
    def visible(self) -> VisibleKeys | None:
        """The keys that rows see, where those are not all of them."""
        return None if self.softmax is None else visible_keys(self.softmax, self.row)

    @property
    def _blocks(self) -> tuple[int, int]:
        """How many blocks of rows there are that give all cores as many of the largest tiles, and tiles along the rows
        of each; the last one may have fewer."""
        each = self.machine.cube_cores // gcd(size([self.whole[a] for a in self.others]), self.machine.cube_cores)
        tiles = -(-self.whole[self.row] // ROWS[0])
        return -(-tiles // each), each

    def bands(self, name: str, count: int) -> list[Band]:
        """So many bands of all rows. Raises PassError where they cannot be cut so."""
        blocks, each = self._blocks
        if len(self._yielded) > 1:
            raise cannot_obey(name, f"bands={count}: its result is stored more than once")
        if count > blocks:
            many = f"{blocks} block{'s' * (blocks != 1)} of {each * ROWS[0]}"
            raise cannot_obey(name, f"bands={count}: its rows have {many}")
        edges = [min(blocks * n // count * each * ROWS[0], self.whole[self.row]) for n in range(count + 1)]
        found: list[Band] = []
        for number, rows in enumerate(pairwise(edges)):
            keys = (0, self.whole[self.keys]) if self.visible is None else self.visible.of(*rows)
            found.append(Band(number, count, *rows, *keys))
        return found

    def bands_tried(self) -> list[int]:
        """Numbers of bands that are worth judging; none where all rows see all keys, or sizes are open."""
        if any_open([*self.whole.values()]):
            return []
        most = min(self._blocks[0], MOST_BANDS)
        if most == 1 or len(self._yielded) > 1 or self.visible is None:
            return []
        return sorted({most, (most + 1) // 2} - {1})

    @abstractmethod
    def _cube_cycles(self, schedules: Sequence[AttentionSchedule]) -> Sequence[float]:
        """Cycles of the slowest pipe of a cube core for one piece of the keys, of each schedule."""

    def candidates(self, name: str) -> Iterator[AttentionSchedule]:
        asked, found = self.asked, False
        longest = max(round_up(self.extents[self.row]), ROWS[-1])
        tried = [
            (rows, keys, places)
            for rows in ((asked.rows,) if asked.rows else ROWS)
            if asked.rows or (rows <= longest and self._fits_band(rows))
            for keys in ((asked.keys,) if asked.keys else self._keys_tried())
            for places in self._places_tried(keys)
        ]
        for first in self._cheapest(tried):
            assert first.rows
            for buffered in (asked.buffered,) if asked.buffered else (2, 1):
                schedule = replace(first, buffered=buffered)
                if self._refusal(schedule) is None:
                    found = True
                    yield from (replace(schedule, grid=grid) for grid in self._grids(first.rows))
                    break
        if not found:
            if asked.chosen():
                (least,) = self._cheapest([(asked.rows or 16, asked.keys or 16, asked.places or 1)])
                least = replace(least, buffered=asked.buffered or 2)
                raise cannot_obey(name, self._refusal(least) or "")
            raise TooLarge(f"{describe(self.at.product)}: 16 rows and keys do not fit on chip")

    def _fits_band(self, rows: int) -> bool:
        """Whether no tile of so many rows reaches into the next band."""
        return self.band.end == self.whole[self.row] or self.extents[self.row] % rows == 0

    def _keys_tried(self) -> list[int]:
        """Lengths of pieces of the keys that leave little of the last one empty."""
        whole = round_up(example(self.extents[self.keys]))
        counts = {1, *(-(-whole // most // 2) * 2 for most in KEYS if most < whole)}
        return sorted({round_up(-(-whole // n)) for n in counts if n and whole // n <= KEYS[0]}, reverse=True)

    def _places_tried(self, keys: int) -> Sequence[int]:
        """Whether the last parts of a result are added behind the loop over the keys: that takes more memory, and less
        time."""
        if self.asked.places is not None:
            return (self.asked.places,)
        return (1,) if self.pieces(keys) == 1 else (2, 1)

    def _cheapest(self, tried: Sequence[tuple[int, int, int]]) -> list[AttentionSchedule]:
        """For rows, keys and places the schedule of which the cube takes least, with the first of its grids."""
        found = [
            [self.completed_tile(*each, *summed) for summed in self._summed_at_once(*each)] for each in tried
        ]
        cycles = iter(self._cube_cycles([s for several in found for s in several]))
        least: list[AttentionSchedule] = []
        for (rows, _, _), several in zip(tried, found, strict=True):
            us = [next(cycles) for _ in several]
            least.append(replace(several[us.index(min(us))], grid=self._first_grid(rows)))
        return least

    def _first_grid(self, rows: int) -> tuple[int, ...]:
        """Cores along each axis of tiles, as asked for, or as many as there are."""
        counts = [self._tiles(a, rows) for a in self.outer]
        cores = min(self.asked.cores or self.machine.cube_cores, self.machine.cube_cores)
        return self.asked.grid or tuple(n for n, _ in divide_grid(counts, cores))

    def completed_tile(
        self, rows: int, keys: int, places: int, scored: int, columns: int, sums: int
    ) -> AttentionSchedule:
        """A schedule without a grid."""
        features, summed, buffers = self._steps(rows, keys, scored, columns, places)
        slots = self.asked.slots({"l1": 2, "l0a": buffers, "l0b": buffers, "l0c": sums, "ub": 1})
        cores = self.asked.cores
        bands = self.asked.bands
        return AttentionSchedule(
            rows, keys, scored, columns, None, features, summed, None, bands, places, **slots, cores=cores
        )

    def _summed_at_once(self, rows: int, keys: int, places: int) -> list[tuple[int, int, int]]:
        """Keys of a tile of scores and columns of a part of the result that fit in l0c and, with what else is there, in
        l1, each in equal parts; and how often they fit: twice, so that one is stored while the next one is summed up,
        or once. The longest ones of each kind."""
        asked, wide, p = self.asked, self.wide, self.width
        each = sum(round_up(shared) * q for shared, q in self.loaded)
        others = 2 * rows * each + 2 * keys * (wide * places + rows * (1 if self.pieces(keys) == 1 else 2)) * p
        loaded = (self.machine.spaces["l1"].bytes - others) // (2 * each)
        scored = [asked.scored] if asked.scored else [n for n in equal_parts(keys)[:2] if n <= loaded]
        found = []
        for columns in (asked.columns,) if asked.columns else self.columns_tried:
            for sums in (asked.l0c,) if asked.l0c else (2, 1):
                room = self.machine.spaces["l0c"].bytes // (rows * 4 * sums)
                fitting = [n for n in scored if n * len(self.loaded) + columns * self._totals(places) <= room]
                found += [(fitting[0], columns, sums)] if fitting else []
        return found or [
            ((scored or equal_parts(keys))[-1], asked.columns or self.columns_tried[-1], asked.l0c or 1)
        ]

    def _totals(self, places: int) -> int:
        """Sums of weights and values in l0c: one at each place, unless all are added to one."""
        return 1 if self.softmax is None else places

    def zeros_stored(self, keys: int) -> int:
        """The keys of weights of zero that are stored at once."""
        return equal_parts(keys)[-1]

    def _steps(self, rows: int, keys: int, scored: int, columns: int, places: int) -> tuple[int, int, int]:
        """Elements along the summed axes of the steps of both products, and how often l0a and l0b hold them: the
        longest ones that fit."""
        asked = self.asked
        q, p = sum(q for _, q in self.loaded), self.width
        room = [self.machine.spaces[space].bytes for space in ("l0a", "l0b")]
        whole = round_up(max(shared for shared, _ in self.loaded))
        first = [asked.features] if asked.features else [n for n in _even_steps(whole) if whole % n == 0]
        second = [asked.summed] if asked.summed else [n for n in _even_steps(keys) if keys % n == 0]
        for buffers in (2, 1):
            fitting = [
                (f, s)
                for f in first
                for s in second
                if buffers * (scored * f * q + places * columns * s * p) <= room[0]
                and buffers * rows * (f * q + places * s * p) <= room[1]
            ]
            if fitting:
                features, summed = max(fitting, key=lambda steps: (min(steps), sum(steps)))
                return features, summed, buffers
        return first[-1], second[-1], 1

    @cached_property
    def loaded(self) -> list[tuple[int, int]]:
        """Elements that are summed up for a number that each first product gives, and the bytes of one."""
        return [(size([p.extents[a] for a in p.k_axes]), itemsize(element_of(p.anchor.lhs))) for p in self.scores]

    @property
    def columns_tried(self) -> list[int]:
        """Columns of a part of the result: all, where sums stay in l0c over the pieces."""
        return [self.wide] if self.softmax is None else equal_parts(self.wide)

    @property
    def columns_stored(self) -> int:
        """Columns of the result that a vector core divides and stores at once."""
        return equal_parts(self.wide)[-1]

    def pieces(self, keys: int) -> int:
        """One, or an even number."""
        count = -(-self.extents[self.keys] // keys)
        return count + count % 2 if count > 1 else 1

    def _refusal(self, s: AttentionSchedule) -> str | None:
        """Why a complete schedule cannot be obeyed, as the rest of a sentence."""
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed and s.grid
        if any(n % FRACTAL for n in (s.rows, s.keys, s.scored, s.columns, s.features, s.summed)):
            return f"rows, keys, scored, columns, features and summed must be multiples of {FRACTAL}"
        if (s.bands or 1) != self.band.of:
            return f"a launch for one of {s.bands} bands is none for all rows"
        if not self._fits_band(s.rows):
            return f"tiles of {s.rows} rows do not divide the {self.extents[self.row]} of a band"
        if s.keys % s.summed:
            return f"steps of {s.summed} keys do not divide {s.keys}"
        if self.wide % s.columns:
            return f"{s.columns} columns at once do not divide {self.wide}"
        if s.columns not in self.columns_tried:
            return f"its sums stay in l0c, so that columns must be all {self.wide}"
        if (s.places or 1) > (1 if self.pieces(s.keys) == 1 else 2):
            return f"{s.places} places are too many: there can be 2 where there are several pieces of keys"
        if s.buffered not in (1, 2):
            return f"{s.buffered} tiles of scores are buffered, and there can be 1 or 2"
        if s.buffered == 1 and (
            self.chain.over is None
            or self.is_masked(s)
            or itemsize(self.scored[0]) != 4
            or self.softmax is None
        ):
            return "its scores cannot be worked on in place: buffered must be 2"
        if s.keys % s.scored:
            return f"scores of {s.scored} keys at once do not divide {s.keys}"
        return self._refused_grid(s) or self._refused_bytes(s)

    def _bytes(self, s: AttentionSchedule) -> dict[str, int]:
        """Bytes of each memory space that a tile takes."""
        assert s.rows and s.keys and s.scored and s.columns and s.features and s.summed
        wide, p, q, first = self.wide, self.width, sum(q for _, q in self.loaded), len(self.loaded)
        slots = {space: getattr(s, space) for space in ("l1", "l0a", "l0b", "l0c")}
        each = sum(-(-shared // s.features) * s.features * q for shared, q in self.loaded)
        l1 = slots["l1"] * s.rows * each
        weights = s.rows * s.keys * p * (1 if self.pieces(s.keys) == 1 else 2)
        places = s.places or 1
        l1 += slots["l1"] * (s.scored * each + weights + places * s.keys * wide * p)
        l0a = slots["l0a"] * (s.scored * s.features * q + places * s.columns * s.summed * p)
        l0b = slots["l0b"] * s.rows * (s.features * q + places * s.summed * p)
        l0c = slots["l0c"] * s.rows * (s.scored * first + self._totals(places) * s.columns) * 4
        return {"l1": l1, "l0a": l0a, "l0b": l0b, "l0c": l0c, "ub": self._ub_bytes(s)}

    def _ub_bytes(self, s: AttentionSchedule) -> int:
        """Bytes of ub: what is loaded and stored, what is carried, and temporaries: of the ops before the softmax, of
        the softmax and what follows it, or of the end."""
        assert s.rows and s.keys
        h, keys, wide, once = s.rows // self.units, s.keys, self.wide, self.pieces(s.keys) == 1
        tile = self.chain_tile(s)
        loads = [_loaded(chain, tile) for chain in self.chains]
        scores = max(self.chain.stages.ub_bytes(tile, 1, in_place=True) - loads[0], 0)
        held, wideness = padded_bytes([keys, h], f32), padded_bytes([wide, h], f32)
        row = padded_bytes([h], f32)
        crossing = padded_bytes([keys + (0 if once else self.zeros_stored(keys)), h], self.weighed) + wideness
        each = self.columns_stored
        crossing += padded_bytes([h, each], self.result)
        end = each * h * 4 * (2 if each == wide else 1) + padded_bytes([each, h], self.result)
        carried = 0 if once or self.softmax is None else wideness * (s.places or 1) + 8 * row
        softmax = held * (2 if self.is_masked(s) else 1) + 8 * row
        softmax += held * itemsize(element_of(self.at.x)) // 4 if itemsize(element_of(self.at.x)) != 4 else 0
        if s.buffered == 1:
            scores, softmax = 0, 8 * row
        again = 0
        if self.behind is not None:
            behind = sum(step.kind == "op" for step in self.behind.stages)
            behind += self.behind.computes and self.is_masked(s)
            softmax += held * min(max(behind - 1, 0), 2)  # the last one gives what is stored
            # exponentials are counted as what the softmax has
            given = next(iter(self.behind.scored.values()), None)
            again = 0 if given is None else held * itemsize(self.behind.stages[given[0]].elements[0]) // 4
        return crossing + carried + sum(loads) - again + max(scores, softmax, end)

    def is_masked(self, s: AttentionSchedule) -> bool:
        """Whether the pieces of a schedule have places behind the last key that count: maxima that are stored must not
        see those of the pieces that follow the last one."""
        assert s.keys
        count = self.pieces(s.keys)
        if self.statistics and count > 1 and s.places != 2:
            return True
        return not certain(self.band.first + count * s.keys, "<=", self.whole[self.keys])

    @property
    def results(self) -> list[tuple[int, SSAValue, SSAValue]]:
        """What is stored: its number, the value, and the one behind layout ops."""
        return [(i, value, base_of(value)) for i, value in enumerate(self._yielded)]

    @property
    def statistics(self) -> list[tuple[int, SSAValue, SSAValue]]:
        """What is stored of maxima and sums."""
        return [each for each in self.results if each[2] is not self.at.product.result]

    @property
    def summed(self) -> list[int]:
        return [shared for shared, _ in self.loaded]

    def chain_tile(self, s: AttentionSchedule) -> list[int]:
        """Elements of a vector core's tile of scores along each axis of the steps between the products."""
        assert s.rows and s.keys
        lengths = {self.row: s.rows // self.units, self.keys: s.keys}
        return [lengths.get(a, 1) for a in self.chain_axes]

    @cached_property
    def chain_axes(self) -> list[int]:
        """The axis of the whole of each axis of the steps between the products."""
        return [*self.others, self.keys, self.row]
